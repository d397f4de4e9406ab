"""Sources of published models: paths, installed packages, and downloads from the Hugging Face hub.

Downloads are data only; no code is executed.
"""

import os
import re
from pathlib import Path

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained import packages
from jaxformer.models.pretrained.gguf_file import is_gguf

NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]{0,95}", re.ASCII)
REVISION = re.compile(r"[\w./-]{1,200}", re.ASCII)
MODELS_VARIABLE = "JAXFORMER_MODELS"
FILE_PATTERNS = [
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "chat_template.jinja"),
]


def path_of(source: str | Path) -> Path:
    """Returns the folder or the GGUF file of a model.

    Args:
      source: a folder, a GGUF file, "package:NAME", or a name on the hub.
    """
    if str(source).startswith(packages.PREFIX):
        return packages.weights_of(str(source))
    path = Path(source)
    return path if path.is_dir() or is_gguf(path) else fetch(str(source))


def check_name(name: str) -> None:
    """Raises unless this is a possible name on the hub."""
    if not NAME.fullmatch(name) or ".." in name or "--" in name:
        raise UserError(
            f"{name!r:.200} is neither a folder nor the name of a model, such as "
            "'EleutherAI/pythia-1b'."
        )


def check_revision(revision: str) -> None:
    """Raises unless this is a possible revision, whose path stays in the models' folder."""
    parts = revision.split("/")
    if not REVISION.fullmatch(revision) or any(part in ("", ".", "..") for part in parts):
        raise UserError(f"{revision!r:.200} is not a revision, such as 'main' or 'step1000'.")


def local_folder(name: str, revision: str | None = None) -> Path | None:
    """Returns the model's path inside $JAXFORMER_MODELS, or None if that variable is not set."""
    root = os.environ.get(MODELS_VARIABLE)
    if revision:
        check_revision(revision)
    if not root:
        return None
    return Path(root) / (f"{name}@{revision}" if revision else name)


def fetch(name: str, revision: str | None = None) -> Path:
    """Returns the folder of a model on the hub, from the hub's cache or the network.

    HF_TOKEN and HF_HUB_OFFLINE have their usual meaning. If the variable JAXFORMER_MODELS is set,
    models are read from that folder under their names on the hub, without a network.

    Args:
      name: a name such as "gpt2" or "EleutherAI/pythia-1b".
      revision: a revision; its folder in JAXFORMER_MODELS is "EleutherAI/pythia-1b@step1000".
    """
    check_name(name)
    at_revision = f" at revision {revision!r}" if revision else ""
    if folder := local_folder(name, revision):
        if not folder.is_dir():
            root = os.environ[MODELS_VARIABLE]
            raise UserError(f"{MODELS_VARIABLE}={root} has no folder {folder.relative_to(root)}.")
        return folder
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise UserError(
            f"{name!r} is not a folder, and the hub needs pip install 'jaxformer[hf]'."
        ) from None
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILE_PATTERNS))
    except errors.GatedRepoError:
        raise UserError(
            f"{name} is gated: request access on huggingface.co and set HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name} has no revision {revision!r} on the hub.") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name!r} is neither a folder nor a model on the hub.") from None
    except Exception as error:
        # Without a network, several libraries raise errors of many classes, whose texts are about
        # their own retries. A full disk is named by the system.
        cause = getattr(error, "strerror", None) or type(error).__name__
        raise UserError(
            f"there is no folder {name!r:.200}, and the hub cannot be reached "
            f"({one_line(cause, 60)}): check the path or the network."
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{name}{at_revision} has no safetensors on the hub, and pickles are refused: write a "
            "folder with transformers, model.save_pretrained(FOLDER), and load it."
        )
    return folder
