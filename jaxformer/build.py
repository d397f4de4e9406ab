"""Builds tasks, models, optimizers and settings from a config. The built objects read no config.

A config has the sections task, model, partition, optim, data, train, devices. It is complete:
there are no hidden defaults. An unknown field is an error that names the closest field of its
section.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import optax

from jaxformer.core import optim
from jaxformer.core.config_fields import construct, dtype_of, json_fields, parse_number, split_name
from jaxformer.core.errors import UserError, setting
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.io.atomic_files import json_value
from jaxformer.models.attention_paths import AttentionPathsSpec, attention_paths
from jaxformer.models.classifier import ClassifierSpec, classifier
from jaxformer.models.decoder import DecoderSpec, decoder
from jaxformer.models.encoder import EncoderSpec, encoder
from jaxformer.models.pretrained_init import LoadedSpec, loaded
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
from jaxformer.training.phases import Phase, make_phases
from jaxformer.training.population import Population, population
from jaxformer.training.setup import Setup, make_setup

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
# {name: (constructor, the dataclass of its fields)}
MODELS: dict[str, tuple[Callable, type]] = {
    "attention_paths": (attention_paths, AttentionPathsSpec),
    "classifier": (classifier, ClassifierSpec),
    "decoder": (decoder, DecoderSpec),
    "encoder": (encoder, EncoderSpec),
    "loaded": (loaded, LoadedSpec),
    "recall": (recall, RecallSpec),
}
OPTIMIZERS = {"adamw": optim.AdamW, "sgd": optim.SGD}
SETTINGS = {
    "data": DataSettings,
    "optim": OptimSettings,
    "devices": DeviceSettings,
    "train": TrainSettings,
}
# {section: {field: the value at which it is off}} of fields that no dataclass has and that older
# records lack. A field that is off is no part of a config's identity: older records stay valid.
FIELDS_OFF: dict[str, dict[str, Any]] = {
    "bayes": {"draws": 0},
    "data": {"file": "", "folder": ""},
    "posterior": {"least_ess": 0.0, "most_draws": 100_000},
}
# {dataclass: {field: its default when records were made}} of the fields whose default has changed
# since. `config_identity` alone reads it, so that records keep their names. A config that leaves
# such a field out means today's default, and its identity says so.
DEFAULTS_OF_RECORDS: dict[type, dict[str, Any]] = {
    DecoderSpec: {"init_std": 0.02, "qk_init_std": 0.02, "embed_init_std": 0.02},
    EncoderSpec: {"sigma_b2": 0.0},
    optim.AdamW: {"weight_decay": 0.0},
}
# The learning rates in the config of a run whose optimizer is the user's and has its own.
OWN_RATE = ("own",)


def has_known_task(config: Any) -> bool:
    """Returns whether the task of a config is one of TASKS, so that it can be built."""
    return config.task.name in TASKS


def has_task(config: Any, task: Task) -> bool:
    """Whether the task of a config has the class of this task, which no config can build."""
    return config.task.name == own_name(task)


def task(config: Any) -> Task:
    """Builds the task of `config.task`."""
    name, options = split_name(config.task, "task", TASKS)
    return construct(f"task {name!r}", TASKS[name], TASKS[name], options)


def model(config: Any, task: Task | None) -> Any:
    """Builds the model of `config.model`.

    Args:
        task: the task, which gives sizes that the config leaves out.
    """
    name, options = split_name(config.model, "model", MODELS)
    function, spec = MODELS[name]
    for field in ("dtype", "param_dtype"):
        if field in options:
            options[field] = dtype_of(options[field])
    sizes = task.sizes if task else {}
    options = {field: parse_number(value) for field, value in options.items()}
    return construct(f"model {name!r}", function, spec, sizes | options)


def partition(config: Any) -> Partition:
    """Builds the partition of `config.partition`, a sequence of (pattern, label)."""
    return Partition(_rules("partition", config.partition))


def _rules(where: str, value: Any) -> list[tuple[str, str]]:
    """Checks that a value is a sequence of pairs of strings."""
    rules: list[Any]
    try:
        rules = [(pattern, label) for pattern, label in value]
    except (TypeError, ValueError):
        rules = [(None, None)]
    if isinstance(value, str) or not all(isinstance(part, str) for rule in rules for part in rule):
        raise UserError(f"{where} must be a sequence of (pattern, label) pairs, got {value!r}.")
    return rules


def optimizer(config: Any, partition: Partition) -> optax.GradientTransformation:
    """Builds the optimizer of `config.optim`. The training state has the learning rates instead."""
    section = config.optim
    specs = {}
    for label, options in section.labels.items():
        name, options = split_name(options, "optimizer", OPTIMIZERS)
        specs[label] = construct(f"optimizer {name!r}", OPTIMIZERS[name], OPTIMIZERS[name], options)
    factor = optim.schedule(section.schedule, config.train.steps, section.warmup)
    return optim.optimizer(partition, specs, section.clip, factor)


def source(config: Any, task: Task, batch_size: int | None = None) -> Source | OnDisk:
    """Builds the source of batches of `config.data`.

    Args:
        task: the task whose examples are drawn or read.
        batch_size: examples in a batch; `config.train.batch_size` if None.
    """
    sizes = construct("data", DataSettings, DataSettings, dict(config.data))
    return make_source(task, sizes, batch_size or config.train.batch_size)


def settings(config: Any) -> TrainSettings:
    """Builds the settings of `config.train`."""
    train = construct("train", TrainSettings, TrainSettings, dict(config.train))
    if train.eval_every < 1:
        raise UserError(
            f"{setting('train.eval_every')} must be at least 1, got {train.eval_every}."
        )
    return train


def device_settings(config: Any) -> DeviceSettings:
    """Builds the sizes of the mesh axes from `config.devices`."""
    return construct("devices", DeviceSettings, DeviceSettings, dict(config.devices))


def use_one_device(config: Any) -> None:
    """Sets the sizes of all mesh axes in `config.devices` to 1."""
    config.devices.update(dict(members=1, data=1, fsdp=1, tensor=1))


def members(config: Any) -> Population:
    """Builds the population: every seed at every learning rate of a config."""
    rates = config.optim.learning_rate
    if tuple(rates) == OWN_RATE:
        rates = (1.0,)  # the factor of the user's optimizer, as in `jaxformer.train`
    members = population(config.seed, config.n_seeds, rates)
    return members._replace(seeds=tuple(config.seeds)) if "seeds" in config else members


def setup(config: Any, task: Task, model: Any, data: Data) -> Setup:
    """Builds and checks the first phase of training.

    Args:
        config: a config; its sections partition, optim, train and devices are used.
        task: the task, which also defines the loss.
        data: the source of batches and held-out sets.
    """
    train, labelling = settings(config), partition(config)
    devices = device_settings(config)
    tx = optimizer(config, labelling)
    return make_setup(task, model, labelling, tx, data, members(config), train, devices)


def phases(config: Any, first: Setup | None = None) -> list[Phase]:
    """Builds all phases: `config.partition` from the start, later the rules of `config.unfreeze`.

    Args:
        first: the first phase; built from the config if None.
    """
    if first is None:
        new_task = task(config)
        first = setup(config, new_task, model(config, new_task), source(config, new_task))
    later = []
    for phase in config.unfreeze:
        if not (isinstance(phase, tuple | list) and len(phase) == 2 and type(phase[0]) is int):
            raise UserError(
                "unfreeze must be a sequence of (step, ((pattern, label), ..)), got "
                f"{config.unfreeze!r}."
            )
        later.append((phase[0], _rules(f"unfreeze of step {phase[0]}", phase[1])))
    return make_phases(first, config.train.steps, later, partial(optimizer, config))


def own_name(value: Any) -> str:
    """The name, in a config, of a task or model whose class no config can build."""
    return f"own: {type(value).__name__}"


def sections(task: Task, model: Any) -> dict[str, Any]:
    """Returns the sections "task" and "model" of a config that would build this task and model.

    A class that no config can build has its `own_name`.
    """
    tasks = {kind: name for name, kind in TASKS.items()}
    models = {
        type(make(**vars(model.spec))): name
        for name, (make, spec) in MODELS.items()
        if spec is type(model.spec)
    }

    def section(value: Any, spec: Any, names: Mapping[type, str]) -> dict[str, Any]:
        name = names.get(type(value), own_name(value))
        return {"name": name} | json_fields(spec)

    return {"task": section(task, task, tasks), "model": section(model, model.spec, models)}


def label_sections(optimizers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the section optim.labels of a config that would build these optimizers.

    A transformation of optax, which no config can build, has the name "own: IDENTITY".
    """
    names = {kind: name for name, kind in OPTIMIZERS.items()}
    return {
        label: {"name": names[type(value)], **json_fields(value)}
        if type(value) in names
        else {"name": f"own: {value!r}"}
        for label, value in optimizers.items()
    }


def reads_tokens(config: Mapping[str, Any]) -> bool:
    """Tests whether the task of a config reads prepared text."""
    if "task" not in config:
        return False
    name = config["task"].get("name")
    return name in TASKS and issubclass(TASKS[name], PreparedText)


def tokens_of(task: Task) -> dict[str, str]:
    """Returns {"tokens": fingerprint} of the prepared text that a task reads, or {}.

    config.json stores it: a resumed run has to read the same text.
    """
    return {"tokens": task.prepared.fingerprint} if isinstance(task, PreparedText) else {}


def config_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config without labels and defaults. Its hash identifies the run's record.

    Left out are the labels in `arguments`, fields that equal the default of their dataclass, fields
    of FIELDS_OFF that are off, and empty sections.

    Args:
        config: a config of nested dicts.
    """
    identity = {}
    for section_name, section in config.items():
        if section_name == "arguments":
            continue
        if isinstance(section, Mapping):
            section = _without_fields_off(section_name, section)
            section = _without_defaults(section, _dataclass_of(section_name, section.get("name")))
        identity[section_name] = section
    if "labels" in identity.get("optim", {}):
        identity["optim"]["labels"] = {
            label: _without_defaults(options, OPTIMIZERS.get(options["name"]))
            for label, options in identity["optim"]["labels"].items()
        }
    return {
        section_name: section
        for section_name, section in identity.items()
        if section not in ({}, [], ())
    }


def _without_fields_off(section_name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    off = FIELDS_OFF.get(section_name, {})
    return {
        name: value
        for name, value in section.items()
        if name not in off or json_value(value) != json_value(off[name])
    }


def _without_defaults(section: Mapping[str, Any], spec: type | None) -> dict[str, Any]:
    """Removes fields that equal the defaults of a dataclass, except `name`.

    The defaults are those of the time of the records. A section without a dataclass, or with a
    field that it lacks, stays complete.
    """
    defaults = {field.name: field.default for field in fields(spec)} if spec else {}
    if not section.keys() <= {"name", *defaults}:
        return dict(section)
    changed = _changed_defaults(spec)
    # A field that is left out has today's default, which is another value than that of the records.
    whole = {name: defaults[name] for name in changed} | dict(section)
    defaults |= changed
    return {
        name: value
        for name, value in whole.items()
        if name == "name" or json_value(value) != json_value(defaults[name])
    }


def _changed_defaults(spec: type | None) -> dict[str, Any]:
    """Returns the fields of DEFAULTS_OF_RECORDS of a dataclass and of the classes it extends."""
    changed: dict[str, Any] = {}
    for kind in spec.__mro__ if spec else ():
        changed = DEFAULTS_OF_RECORDS.get(kind, {}) | changed
    return changed


def _dataclass_of(section_name: str, name: str | None) -> type | None:
    """Returns the dataclass of the fields of a section, or None if there is none."""
    if section_name == "task":
        return TASKS.get(name) if name else None
    if section_name == "model":
        return MODELS[name][1] if name in MODELS else None
    return SETTINGS.get(section_name)
