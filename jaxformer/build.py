"""Config in, typed nouns out: the border below which no function sees a config.

Sections: task, model, partition, optim, data, train. A field that the noun does not have is an
error with the closest name; there are no hidden defaults, a config is whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxformer.core import optim
from jaxformer.core.errors import UserError, check_choice, did_you_mean
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.io import run_folder
from jaxformer.models.attention_paths import AttentionPathsSpec, attention_paths
from jaxformer.models.classifier import ClassifierSpec, classifier
from jaxformer.models.decoder import DecoderSpec, decoder
from jaxformer.models.encoder import EncoderSpec, encoder
from jaxformer.models.recall import RecallSpec, recall
from jaxformer.tasks.arithmetic import DecimalAddition, ModularAddition
from jaxformer.tasks.classes import DocumentClass
from jaxformer.tasks.disk import OnDisk
from jaxformer.tasks.dyck import Dyck
from jaxformer.tasks.hops import Hops
from jaxformer.tasks.ioi import SyntheticIOI
from jaxformer.tasks.language import MaskedTokens, NextToken, PreparedText
from jaxformer.tasks.memorize import Memorize
from jaxformer.tasks.recall import Recall
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import Data, Source, make_source
from jaxformer.tasks.task import Task
from jaxformer.tasks.text import CausalText, MaskedText
from jaxformer.training.population import Population, population
from jaxformer.training.setup import Phase, Setup, make_setup, thawing

TASKS: dict[str, type[Task]] = {
    "addition": DecimalAddition,
    "causal_text": CausalText,
    "document_class": DocumentClass,
    "dyck": Dyck,
    "hops": Hops,
    "masked_text": MaskedText,
    "ioi": SyntheticIOI,
    "masked_tokens": MaskedTokens,
    "memorization": Memorize,
    "modular_addition": ModularAddition,
    "next_token": NextToken,
    "recall": Recall,
    "retrieval": Retrieval,
}
# name -> (function of the fields, the dataclass that lists them)
MODELS: dict[str, tuple[Callable, type]] = {
    "attention_paths": (attention_paths, AttentionPathsSpec),
    "classifier": (classifier, ClassifierSpec),
    "decoder": (decoder, DecoderSpec),
    "encoder": (encoder, EncoderSpec),
    "recall": (recall, RecallSpec),
}
OPTIMIZERS = {"adamw": optim.AdamW, "sgd": optim.SGD}
SETTINGS = {
    "data": DataSettings,
    "optim": OptimSettings,
    "devices": DeviceSettings,
    "train": TrainSettings,
}
# Fields of sections without a noun that came after their records: who leaves them off says nothing.
NEW: dict[str, dict[str, Any]] = {
    "bayes": {"draws": 0},
    "data": {"file": "", "folder": ""},
    "posterior": {"least_ess": 0.0, "most_draws": 100_000},
}
DTYPES = ("bfloat16", "float16", "float32", "float64")


def task(config: Any) -> Task:
    """The task of `config.task`."""
    name, given = _named(config.task, "task", TASKS)
    return _make(f"task {name!r}", TASKS[name], TASKS[name], given)


def model(config: Any, task: Task | None) -> Any:
    """The model of `config.model`, sized for the task unless it says its own sizes."""
    name, given = _named(config.model, "model", MODELS)
    function, spec = MODELS[name]
    given |= {name: _dtype(given[name]) for name in ("dtype", "param_dtype") if name in given}
    sizes = task.sizes if task else {}
    given = {name: _number(value) for name, value in given.items()}
    return _make(f"model {name!r}", function, spec, sizes | given)


def partition(config: Any) -> Partition:
    """The rules of `config.partition`, a sequence of (pattern, label)."""
    return Partition(_rules("partition", config.partition))


def _rules(what: str, given: Any) -> list[tuple[str, str]]:
    """Pairs of words."""
    rules: list[Any]
    try:
        rules = [(pattern, label) for pattern, label in given]
    except (TypeError, ValueError):
        rules = [(None, None)]
    if isinstance(given, str) or not all(isinstance(word, str) for rule in rules for word in rule):
        raise UserError(f"{what} must be a sequence of (pattern, label) pairs, got {given!r}.")
    return rules


def optimizer(config: Any, partition: Partition) -> optax.GradientTransformation:
    """The transformation of `config.optim`; the learning rates stay in the state."""
    section = config.optim
    specs = {}
    for label, given in section.labels.items():
        name, given = _named(given, "optimizer", OPTIMIZERS)
        specs[label] = _make(f"optimizer {name!r}", OPTIMIZERS[name], OPTIMIZERS[name], given)
    factor = optim.schedule(section.schedule, config.train.steps, section.warmup)
    return optim.optimizer(partition, specs, section.clip, factor)


def source(config: Any, task: Task, batch_size: int | None = None) -> Source | OnDisk:
    """Where the batches of `config.data` come from; `batch_size` for what does not train."""
    sizes = _make("data", DataSettings, DataSettings, dict(config.data))
    return make_source(task, sizes, batch_size or config.train.batch_size)


def settings(config: Any) -> TrainSettings:
    """How long, from `config.train`."""
    found = _make("train", TrainSettings, TrainSettings, dict(config.train))
    if found.eval_every < 1:
        raise UserError(f"train.eval_every must be at least 1, got {found.eval_every}.")
    return found


def members(config: Any) -> Population:
    """Every seed at every learning rate of a config; jaxformer.train may name its seeds."""
    found = population(config.seed, config.n_seeds, config.optim.learning_rate)
    return found._replace(seeds=tuple(config.seeds)) if "seeds" in config else found


def setup(config: Any, task: Task, model: Any, data: Data) -> Setup:
    """What is trained first, everything typed and checked."""
    train, rules = settings(config), partition(config)
    devices = _make("devices", DeviceSettings, DeviceSettings, dict(config.devices))
    tx = optimizer(config, rules)
    made = make_setup(task, model, rules, tx, data, members(config), train, devices)
    if {label for _, label in rules.rules} == {FROZEN}:
        raise UserError(f"nothing is trained: all rules of partition say {FROZEN!r}.")
    return made


def phases(config: Any, first: Setup | None = None) -> list[Phase]:
    """What is trained until when: `config.partition`, then the rules of `config.unfreeze`."""
    if first is None:
        named = task(config)
        first = setup(config, named, model(config, named), source(config, named))
    later = []
    for phase in config.unfreeze:
        if not (isinstance(phase, tuple | list) and len(phase) == 2 and type(phase[0]) is int):
            raise UserError(
                "unfreeze must be a sequence of (step, ((pattern, label), ..)), got "
                f"{config.unfreeze!r}."
            )
        later.append((phase[0], _rules(f"unfreeze of step {phase[0]}", phase[1])))
    return thawing(first, config.train.steps, later, partial(optimizer, config))


def sections(task: Task, model: Any) -> dict[str, Any]:
    """The sections of a config that would build this task and this model."""
    tasks = {kind: name for name, kind in TASKS.items()}
    models = {
        type(make(**vars(model.spec))): name
        for name, (make, spec) in MODELS.items()
        if spec is type(model.spec)
    }
    return {
        kind: {"name": known.get(type(noun), f"own: {type(noun).__name__}")} | plain_fields(fields)
        for kind, noun, fields, known in (
            ("task", task, task, tasks),
            ("model", model, model.spec, models),
        )
    }


def plain_fields(noun: Any) -> dict[str, Any]:
    """The fields of a dataclass as a config spells them; what JSON cannot hold as its type."""
    names = [field.name for field in fields(noun)] if is_dataclass(noun) else []
    return {name: _plain(getattr(noun, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, type) or (hasattr(value, "itemsize") and not hasattr(value, "shape")):
        return jax.dtypes.canonicalize_dtype(value).name
    return type(value).__name__


def reads_tokens(config: Mapping[str, Any]) -> bool:
    """Does its task read prepared text, of which a run must find the same again?"""
    if "task" not in config:
        return False
    name = config["task"].get("name")
    return name in TASKS and issubclass(TASKS[name], PreparedText)


def tokens_of(task: Task) -> dict[str, str]:
    """{"tokens": which prepared text a task reads}, or nothing: config.json holds it."""
    return {"tokens": task.prepared.fingerprint} if isinstance(task, PreparedText) else {}


def said(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config (of nested dicts) says, and its record is known by.

    Left out are the labels in `arguments`, fields that equal the default of their noun, and
    sections in which nothing is left. A section without a noun (figure, recall, measure, ..) is
    said whole.
    """
    config = {kind: _without_new(kind, section) for kind, section in config.items()}
    found = {
        kind: run_folder.said(section, _noun(kind, section.get("name")))
        if isinstance(section, Mapping)
        else section
        for kind, section in config.items()
        if kind != "arguments"
    }
    if "labels" in found.get("optim", {}):
        found["optim"]["labels"] = {
            label: run_folder.said(given, OPTIMIZERS.get(given["name"]))
            for label, given in found["optim"]["labels"].items()
        }
    return {kind: section for kind, section in found.items() if section not in ({}, [], ())}


def _without_new(kind: str, section: Any) -> Any:
    """A section without the fields of NEW that are off."""
    if not isinstance(section, Mapping):
        return section
    new = NEW.get(kind, {})
    return {
        name: value
        for name, value in section.items()
        if name not in new or run_folder.plain(value) != run_folder.plain(new[name])
    }


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
    check_choice(kind, name, choices)
    return name, given


def _make(what: str, function: Callable, spec: type, given: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(spec)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"{what} has no field {name!r}.{hint} It has: {', '.join(known)}.")
    needed = [f.name for f in fields(spec) if f.default is f.default_factory is MISSING]
    if lacking := [name for name in needed if name not in given]:
        raise UserError(f"{what} lacks {', '.join(lacking)}.")
    return function(**given)


def _number(value: Any) -> Any:
    """A field such as init_std is a name or a number; a flag gives both as strings."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _dtype(name: str) -> Any:
    check_choice("dtype", name, DTYPES)
    if name == "float64" and not x64():
        raise UserError("float64 needs x64; recipes that train run in float32 or bfloat16.")
    return jnp.dtype(name)
