"""`jaxformer.load`: the network of a run's folder. It reads and never writes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import build, paths
from jaxformer.errors import UserError
from jaxformer.partition import Partition
from jaxformer.records import Workdir
from jaxformer.stored import newest


def load(
    source: str | Path, member: int | None = None, *, model: Any = None
) -> tuple[Any, dict[str, Any], Any]:
    """(model, params, config) of a run, from its newest checkpoint.

    `member` counts the population (learning rates slowest, then seeds); by default it is the first
    seed of the learning rate that the run chose. A model class of one's own is given as `model`.
    """
    # Imported here, so that the library works without the package of configs.
    import ml_collections

    folder = Workdir(source)
    held = folder.read("config.json")["config"]
    if "model" not in held or held["recipe"] == "measure":
        raise UserError(
            f"{folder.path} is a run of the recipe {held['recipe']!r}, which trains no network; "
            "its numbers are in result.json and arrays.npz."
        )
    config = ml_collections.ConfigDict(held)
    if model is None:
        model = _model(held, config, folder)
    found = newest(folder / "ckpt").whole
    if found is None:
        raise UserError(f"{folder.path} has no checkpoint yet.")
    members = found.arrays["learning_rate"].shape[0]
    member = _first_chosen(folder) if member is None else member
    if not 0 <= member < members:
        raise UserError(f"the run has members 0 to {members - 1}, got {member}.")
    halves = paths.unflatten(found.arrays)
    params = Partition.merge(halves.get("trainable", {}), halves.get("frozen", {}))
    return model, jax.tree.map(lambda leaf: jnp.asarray(leaf[member]), params), config


def _model(held: dict[str, Any], config: Any, folder: Workdir) -> Any:
    name = held["model"]["name"]
    if name not in build.MODELS:
        raise UserError(
            f"the model of {folder.path} is {name!r}, which jaxformer does not have; give it as "
            "jaxformer.load(folder, model=...)."
        )
    named = "task" in held and held["task"]["name"] in build.TASKS
    return build.model(config, build.task(config) if named else None)


def _first_chosen(folder: Workdir) -> int:
    if not (folder / "result.json").exists():
        return 0
    chosen = [member["chosen"] for member in folder.read("result.json")["members"]]
    return chosen.index(True) if True in chosen else 0
