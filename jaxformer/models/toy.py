"""Small trained networks that come with the package.

    model, params, config = jaxformer.load("toy:induction")

"toy:induction" is a decoder of two attention blocks without MLPs. It reads letters in which a
segment is repeated, and predicts the next letter. `python examples/train_toy.py` trained it.

A network is a file NAME.npz in the folder `toys`: float16 parameters by path, and the JSON text of
its config under the key "config".
"""

import functools
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import unknown
from jaxformer.models.decoder import Decoder, decoder
from jaxformer.models.source import Source, with_source
from jaxformer.models.words import Letters

PREFIX = "toy:"
CONFIG = "config"
FOLDER = Path(__file__).with_name("toys")


def load_toy(source: str) -> tuple[Decoder, dict[str, Any], dict[str, Any]]:
    """Loads a network that comes with the package.

    Args:
        source: "toy:NAME".

    Returns:
        (model, params, config). The config has the model's hyperparameters, the alphabet of its
        tokens, the training task and the accuracy.
    """
    name = source.removeprefix(PREFIX)
    names = sorted(file.stem for file in FOLDER.glob("*.npz"))
    if name not in names:
        raise unknown("toy network", name, names)
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as stored:
        config = json.loads(str(stored[CONFIG]))
        arrays = {
            path: jnp.asarray(stored[path], jnp.float32) for path in stored.files if path != CONFIG
        }
    read = functools.partial(Letters, config["alphabet"])
    model = with_source(decoder(**config["model"]), Source(source, read))
    return model, paths.unflatten(arrays), config


def save_toy(file: str | Path, params: Any, config: dict[str, Any]) -> None:
    """Writes parameters and config as `load_toy` reads them."""
    arrays = {path: np.asarray(x, np.float16) for path, x in paths.flatten(params).items()}
    stored: dict[str, Any] = arrays | {CONFIG: np.array(json.dumps(config))}
    np.savez_compressed(file, **stored)
