"""A model of the Hugging Face hub as a folder on this machine. Data is fetched, nothing is run."""

import os
import re
from pathlib import Path

from jaxformer.core.errors import UserError, one_line

NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]{0,95}", re.ASCII)
SHELF = "JAXFORMER_MODELS"
WANTED = [
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json"),
]


def folder_of(source: str | Path) -> Path:
    """The folder itself, or that of a name on the hub."""
    return Path(source) if Path(source).is_dir() else fetch(str(source))


def check_name(name: str) -> None:
    """Raises unless the hub could have a model of this name."""
    if not NAME.fullmatch(name) or ".." in name or "--" in name:
        raise UserError(
            f"{name!r:.200} is no folder, and no name of a model such as 'EleutherAI/pythia-1b'."
        )


def on_shelf(name: str, revision: str | None = None) -> Path | None:
    """Where the folder of JAXFORMER_MODELS has this model, or would; None without the variable."""
    shelf = os.environ.get(SHELF)
    return Path(shelf) / (f"{name}@{revision}" if revision else name) if shelf else None


def fetch(name: str, revision: str | None = None) -> Path:
    """The folder of `name` ("gpt2", "EleutherAI/pythia-1b") at a revision, from the hub's cache or
    from the network; HF_TOKEN and HF_HUB_OFFLINE work as they do elsewhere.

    If the variable JAXFORMER_MODELS names a folder, models are there instead, under their names on
    the hub, "EleutherAI/pythia-1b@step1000" for a revision, and there is no network.
    """
    check_name(name)
    at = f" at revision {revision!r}" if revision else ""
    if folder := on_shelf(name, revision):
        if not folder.is_dir():
            shelf = os.environ[SHELF]
            raise UserError(f"{SHELF}={shelf} has no folder {folder.relative_to(shelf)}.")
        return folder
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise UserError(
            f"{name!r} is no folder here, and the hub needs pip install 'jaxformer[hf]'."
        ) from None
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=WANTED))
    except errors.GatedRepoError:
        raise UserError(
            f"{name} is gated: ask for access on huggingface.co and set HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name} has no revision {revision!r} on the hub.") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name!r} is neither a folder here nor a model on the hub.") from None
    except Exception as error:
        # Without a network: its own kinds of many libraries, and LocalEntryNotFoundError.
        raise UserError(
            f"{name!r}{at} is no folder here, and the hub cannot be reached: {one_line(error, 120)}"
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{name}{at} has no safetensors on the hub, and pickles are refused: write a folder of "
            "them with transformers, model.save_pretrained(FOLDER), and load that."
        )
    return folder
