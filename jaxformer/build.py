"""Config in, typed nouns out: the border below which no function sees a config.

Sections: task, model, partition, optim, data, train. A field that the noun does not have is an
error with the closest name; there are no hidden defaults, a config is whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxformer import optim, records
from jaxformer.errors import UserError, did_you_mean, unknown
from jaxformer.models.decoder import DecoderSpec, decoder
from jaxformer.models.encoder import EncoderSpec, encoder
from jaxformer.models.recall import RecallSpec, recall
from jaxformer.partition import Partition
from jaxformer.tasks.arithmetic import DecimalAddition, ModularAddition
from jaxformer.tasks.dyck import Dyck
from jaxformer.tasks.hops import Hops
from jaxformer.tasks.ioi import SyntheticIOI
from jaxformer.tasks.memorize import Memorize
from jaxformer.tasks.recall import Recall
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import Source
from jaxformer.tasks.task import Task
from jaxformer.tasks.text import CausalText, MaskedText
from jaxformer.training import settings

TASKS: dict[str, type[Task]] = {
    "addition": DecimalAddition,
    "causal_text": CausalText,
    "dyck": Dyck,
    "hops": Hops,
    "masked_text": MaskedText,
    "ioi": SyntheticIOI,
    "memorization": Memorize,
    "modular_addition": ModularAddition,
    "recall": Recall,
    "retrieval": Retrieval,
}
# name -> (function of the fields, the dataclass that lists them)
MODELS: dict[str, tuple[Callable, type]] = {
    "decoder": (decoder, DecoderSpec),
    "encoder": (encoder, EncoderSpec),
    "recall": (recall, RecallSpec),
}
OPTIMIZERS = {"adamw": optim.AdamW, "sgd": optim.SGD}
SETTINGS = {
    "data": settings.DataSettings,
    "optim": settings.OptimSettings,
    "devices": settings.DeviceSettings,
    "train": settings.TrainSettings,
}
DTYPES = ("bfloat16", "float16", "float32", "float64")


def task(config: Any) -> Task:
    """The task of `config.task`."""
    name, given = _named(config.task, "task", TASKS)
    return _make(f"task {name!r}", TASKS[name], TASKS[name], given)


def model(config: Any, task: Task) -> Any:
    """The model of `config.model`, sized for the task."""
    name, given = _named(config.model, "model", MODELS)
    function, spec = MODELS[name]
    for field in ("dtype", "param_dtype"):
        given[field] = _dtype(given[field])
    sizes = {"vocab_size": task.vocab_size, "length": task.length}
    return _make(f"model {name!r}", function, spec, sizes | _numbers(given))


def partition(config: Any) -> Partition:
    """The rules of `config.partition`, a sequence of (pattern, label)."""
    try:
        rules = [(pattern, label) for pattern, label in config.partition]
    except (TypeError, ValueError):
        raise UserError(
            f"partition must be a sequence of (pattern, label) pairs, got {config.partition!r}."
        ) from None
    return Partition(rules)


def optimizer(config: Any, partition: Partition) -> optax.GradientTransformation:
    """The transformation of `config.optim`; the learning rates stay in the state."""
    section = config.optim
    specs = {}
    for label, given in section.labels.items():
        name, given = _named(given, "optimizer", OPTIMIZERS)
        specs[label] = _make(f"optimizer {name!r}", OPTIMIZERS[name], OPTIMIZERS[name], given)
    factor = optim.schedule(section.schedule, config.train.steps, section.warmup)
    return optim.optimizer(partition, specs, section.clip, factor)


def source(config: Any, task: Task) -> Source:
    """Where the batches of `config.data` come from."""
    for name in ("test_size", "validation_size"):
        if config.data[name] < 1:
            raise UserError(f"data.{name} must be at least 1, got {config.data[name]}.")
    if config.data.train_size < 0 or config.train.batch_size < 1:
        raise UserError(
            "data.train_size must be at least 0 (0 streams) and train.batch_size at least 1, got "
            f"{config.data.train_size} and {config.train.batch_size}."
        )
    kept = config.data.test_size + config.data.validation_size
    if task.held_out and kept >= task.size:
        raise UserError(
            f"data.test_size + data.validation_size = {kept} leave nothing to train on: the task "
            f"has {task.size} examples."
        )
    return Source(
        task,
        jax.random.key(config.data.seed),
        config.train.batch_size,
        config.data.train_size,
        config.data.test_size,
        config.data.validation_size,
    )


def said(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config (of nested dicts) says, and its record is known by.

    Left out are the labels in `arguments`, fields that equal the default of their noun, and then
    empty sections. A section without a noun (figure, recall, measure, ..) is said whole.
    """
    found = {
        kind: records.said(section, _noun(kind, section.get("name")))
        if isinstance(section, Mapping)
        else section
        for kind, section in config.items()
        if kind != "arguments"
    }
    if "labels" in found.get("optim", {}):
        found["optim"]["labels"] = {
            label: records.said(given, OPTIMIZERS.get(given["name"]))
            for label, given in found["optim"]["labels"].items()
        }
    return {kind: section for kind, section in found.items() if section != {}}


def x64() -> bool:
    """Is float64 on?"""
    return jax.dtypes.canonicalize_dtype(float).itemsize == 8


def _noun(kind: str, name: str | None) -> type | None:
    """The dataclass whose fields a section has, if it has one."""
    specs = {model: spec for model, (_, spec) in MODELS.items()}
    return SETTINGS.get(kind) or {"task": TASKS, "model": specs}.get(kind, {}).get(name)


def _named(section: Mapping[str, Any], kind: str, choices: Mapping[str, Any]):
    given = dict(section)
    name = given.pop("name")
    if name not in choices:
        raise unknown(kind, name, choices)
    return name, given


def _make(what: str, function: Callable, spec: type, given: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(spec)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"{what} has no field {name!r}.{hint} It has: {', '.join(known)}.")
    return function(**given)


def _numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """A field such as init_std is a name or a number; a flag gives both as strings."""
    return {name: _number(value) for name, value in given.items()}


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _dtype(name: str) -> Any:
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    if name == "float64" and not x64():
        raise UserError("float64 needs x64; recipes that train run in float32 or bfloat16.")
    return jnp.dtype(name)
