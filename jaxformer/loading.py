"""`jaxformer.load`: the network of a run's folder, or a published one. It reads, never writes."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer import build
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.io.checkpoint_reader import newest
from jaxformer.io.run_folder import Workdir


def load(
    source: str | Path,
    member: int | None = None,
    *,
    model: Any = None,
    revision: str | None = None,
    dtype: Any = None,
    place: Any = None,
) -> tuple[Any, dict[str, Any], Any]:
    """(model, params, config) of a run, from its newest checkpoint, or of a published model.

    `member` counts the population (learning rates slowest, then seeds); by default it is the first
    seed of the learning rate that the run chose. A model class of one's own is given as `model`.

    A published model is a folder with config.json and safetensors, or a name on the hub with a
    `revision`. `dtype` and `place` are those of `pretrained.load_folder`.
    """
    folder = published(source, revision)
    if folder is not None:
        if member is not None or model is not None:
            raise UserError(f"{source} is a published model: it has no members and no other class.")
        from jaxformer.models.pretrained import load_folder

        return load_folder(folder, dtype, place)
    if revision is not None or dtype is not None or place is not None:
        raise UserError(f"{source} is a run: revision, dtype and place are of published models.")
    return load_run(source, member, model)[:3]


class Loaded(NamedTuple):
    """A network of a run and where in the run it stands."""

    model: Any
    params: dict[str, Any]
    config: Any
    step: int  # of the checkpoint
    member: int


def load_run(source: str | Path, member: int | None = None, model: Any = None) -> Loaded:
    """`load` of a run's folder, and which checkpoint and member it took. No network is used."""
    # Imported here, so that the library works without the package of configs.
    import ml_collections

    check_run(source)
    folder = Workdir(source)
    said = folder.read("config.json")
    held = said["config"]
    if "model" not in held or held["recipe"] == "measure":
        raise UserError(
            f"{folder.path} is a run of the recipe {held['recipe']!r}, which trains no network; "
            "its numbers are in result.json and arrays.npz."
        )
    if said.get("tokens"):  # of another text, prepared under the same name, nothing is read
        held["task"]["fingerprint"] = said["tokens"]
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
    mine = jax.tree.map(lambda leaf: jnp.asarray(leaf[member]), params)
    return Loaded(model, mine, config, found.step, member)


def at_start(loaded: Loaded) -> dict[str, Any]:
    """The parameters that this member of a run had before its first step, bit by bit."""
    task, members = build.task(loaded.config), build.members(loaded.config)

    def draw(key):
        return loaded.model.init(key, task.blank())["params"]

    # As `training.step.create` draws them, for one member.
    drawn = jax.jit(jax.vmap(draw))(members.init_keys()[loaded.member][None])
    return jax.tree.map(lambda leaf: leaf[0], drawn)


def check_run(source: str | Path) -> None:
    """Raises if the folder is that of a published model, which has no task."""
    from jaxformer.models.pretrained import is_pretrained

    if Path(source).is_dir() and is_pretrained(Path(source)):
        raise UserError(
            f"{source} is a published model, not a run: experiments/cut.py and jaxformer.load read "
            "it."
        )


def published(source: str | Path, revision: str | None = None) -> Path | None:
    """The folder of a published model, fetched if it is only a name on the hub; None for a run."""
    from jaxformer.models.pretrained import hub, is_pretrained

    path = Path(source)
    if path.is_dir():
        if revision is not None:
            raise UserError(f"{source} is a folder: a revision is of a name on the hub.")
        return path if is_pretrained(path) else None
    # "runs/x" beside a folder runs is a run that is not there; "org/name" is the hub's.
    parts = path.parts
    if path.is_absolute() or len(parts) not in (1, 2) or (len(parts) == 2 and path.parent.is_dir()):
        return None
    return hub.fetch(str(source), revision)


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
