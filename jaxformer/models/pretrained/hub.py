"""A model of the Hugging Face hub as a local folder. No code of the model is downloaded or run."""

import os
import re
from pathlib import Path

from jaxformer.core.errors import UserError, one_line

NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]{0,95}", re.ASCII)
FOLDER_VARIABLE = "JAXFORMER_MODELS"
DOWNLOADED_FILES = [
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json"),
]


def folder_of(source: str | Path) -> Path:
    """Returns a local folder unchanged, or the folder of a model named as on the hub."""
    return Path(source) if Path(source).is_dir() else fetch(str(source))


def check_name(name: str) -> None:
    """Raises UserError unless the name is a valid name of a model on the hub."""
    if not NAME.fullmatch(name) or ".." in name or "--" in name:
        raise UserError(
            f"{name!r:.200} is no folder, and no name of a model such as 'EleutherAI/pythia-1b'."
        )


def on_shelf(name: str, revision: str | None = None) -> Path | None:
    """Returns the path of a model in the folder JAXFORMER_MODELS, whether or not it exists.

    Returns None if the variable is not set.
    """
    parent = os.environ.get(FOLDER_VARIABLE)
    if not parent:
        return None
    return Path(parent) / (f"{name}@{revision}" if revision else name)


def fetch(name: str, revision: str | None = None) -> Path:
    """Returns the folder of a model, from the hub's cache or downloaded.

    huggingface_hub reads HF_TOKEN and HF_HUB_OFFLINE. If the variable JAXFORMER_MODELS names a
    folder, models are read from it instead and nothing is downloaded. Its folders have the names of
    the hub; a revision is a folder such as "EleutherAI/pythia-1b@step1000".

    Args:
        name: the name on the hub ("gpt2", "EleutherAI/pythia-1b").
        revision: a branch, tag or commit; the newest if None.
    """
    check_name(name)
    at = f" at revision {revision!r}" if revision else ""
    if folder := on_shelf(name, revision):
        if not folder.is_dir():
            parent = os.environ[FOLDER_VARIABLE]
            raise UserError(
                f"{FOLDER_VARIABLE}={parent} has no folder {folder.relative_to(parent)}."
            )
        return folder
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise UserError(
            f"{name!r} is not a local folder, and the hub needs pip install 'jaxformer[hf]'."
        ) from None
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=DOWNLOADED_FILES))
    except errors.GatedRepoError:
        raise UserError(
            f"{name} is gated: ask for access on huggingface.co and set HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name} has no revision {revision!r} on the hub.") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name!r} is neither a folder here nor a model on the hub.") from None
    except Exception as error:
        # Without a network: LocalEntryNotFoundError, or the errors of an HTTP library.
        raise UserError(
            f"{name!r}{at} is no folder here, and the hub cannot be reached: {one_line(error, 120)}"
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{name}{at} has no safetensors on the hub, and pickles are refused: convert it with "
            "transformers, model.save_pretrained(FOLDER), and load FOLDER."
        )
    return folder
