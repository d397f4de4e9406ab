"""Reads adapter_config.json of the package peft, which a stranger may have written.

Every field is checked before it is used: a number must be finite, a switch true or false, and a
regular expression one that matches quickly (`core.paths.check_pattern`).
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained.safetensors_folder import read_json

# Fields that we honour, and those that select modules (the tensors say which), start or describe an
# adapter. Any other field that is not empty is refused, as in config.json of a model.
HONOURED = ("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
HARMLESS = (
    *("auto_mapping", "base_model_name_or_path", "ensure_weight_tying"),
    *("exclude_modules", "fan_in_fan_out", "inference_mode", "layers_pattern", "lora_dropout"),
    *("layers_to_transform", "megatron_core", "peft_version", "qalora_group_size", "revision"),
    *("target_modules", "task_type"),
)
ALLOWED = {"bias": ("none",), "init_lora_weights": (True, "gaussian", "orthogonal")}
MAX_RANK, MAX_ALPHA = 10**6, 1e30
ALL_LINEAR = "all-linear"  # a value of target_modules: every linear map but the unembedding
NUMBER_OF_LAYER = re.compile(r".*\.[^.]*\.(\d+)\.")  # as in peft without layers_pattern


def checked_config(file: Path) -> dict[str, Any]:
    """Returns the content of the file.

    Raises:
        UserError: a field has a value that is not supported, or one of the wrong type or size.
    """
    config = read_json(file)
    if config.get("peft_type") != "LORA":
        kind = one_line(repr(config.get("peft_type")), 40)
        raise UserError(f"{file}: peft_type {kind} is not supported; only LORA is.")
    for field, value in config.items():
        if field in (*HONOURED, *HARMLESS) or not value or value in ALLOWED.get(field, ()):
            continue
        variant = " (DoRA)" if field == "use_dora" else ""
        raise UserError(
            f"{file}: {one_line(field, 60)} = {one_line(repr(value), 60)} is not supported"
            f"{variant}; only plain and rank-stabilised LoRA is."
        )
    _check_rank(file, "r", config.get("r"))
    _check_alpha(file, "lora_alpha", config.get("lora_alpha"))
    if not isinstance(config.get("use_rslora"), bool | None):
        got = one_line(repr(config["use_rslora"]), 40)
        raise UserError(f"{file}: use_rslora must be true or false, got {got}.")
    for field, check in (("rank_pattern", _check_rank), ("alpha_pattern", _check_alpha)):
        patterns = config.get(field) or {}
        if not isinstance(patterns, dict):
            got = one_line(repr(patterns), 40)
            raise UserError(f"{file}: {field} must be an object, got {got}.")
        for pattern, value in patterns.items():
            _check_pattern(f"{file}: {field}", pattern)
            check(file, f"{field}[{one_line(repr(pattern), 60)}]", value)
    return config


def rank(config: Mapping[str, Any], module: str) -> int:
    """The rank of a module's adapter."""
    return _by_pattern(config.get("rank_pattern"), module, config["r"])


def scale(config: Mapping[str, Any], module: str) -> float:
    """The factor of a module's update.

    Raises:
        UserError: it is not finite in float32.
    """
    alpha, n = (
        _by_pattern(config.get("alpha_pattern"), module, config["lora_alpha"]),
        rank(config, module),
    )
    factor = alpha / (n**0.5 if config.get("use_rslora") else n)
    with np.errstate(over="ignore"):
        is_finite = bool(np.isfinite(np.float32(factor)))
    if not is_finite:
        raise UserError(f"the scale of the adapter of {module} is {factor:g}, beyond float32.")
    return factor


def base_name(config: Mapping[str, Any]) -> str:
    """The base model of an adapter, for messages."""
    return one_line(config.get("base_model_name_or_path") or "an unnamed one", 100)


def targeted(config: Mapping[str, Any], modules: Iterable[str], file: Path) -> list[str]:
    """Returns the modules that an adapter should have by target_modules, as peft chooses them.

    Args:
        config: the content of adapter_config.json.
        modules: the linear maps of the base model, as transformers names them.
        file: the file of the config, for messages.
    """
    target, excluded = config.get("target_modules"), config.get("exclude_modules")
    layers: Any = config.get("layers_to_transform")
    if not target:
        return []
    try:
        chosen = [
            module
            for module in modules
            if _is_named(target, module) and not (excluded and _is_named(excluded, module))
        ]
        if layers not in (None, []):
            numbers = [layers] if isinstance(layers, int) else [*layers]
            readers = _readers_of_layers(config.get("layers_pattern"))
            chosen = [module for module in chosen if _layer(readers, module) in numbers]
    except (UserError, TypeError) as error:
        # The tensors say what is adapted, so that an adapter is read that does not say it clearly.
        warnings.warn(
            f"{file}: target_modules cannot be read, so that it is not checked whether all of its "
            f"tensors are there: {one_line(error, 200)}",
            stacklevel=3,
        )
        return []
    return chosen


def _is_named(names: Any, module: str) -> bool:
    """Whether a regular expression matches a module, or one of some names ends its name."""
    if isinstance(names, str):
        if names == ALL_LINEAR:
            return not module.endswith(("lm_head", "embed_out"))
        paths.check_pattern(names)
        return re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _readers_of_layers(patterns: Any) -> list[re.Pattern]:
    """Returns patterns whose first group is the number of the layer in a module's name."""
    if not patterns:
        return [NUMBER_OF_LAYER]
    readers = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        paths.check_pattern(pattern)
        readers.append(re.compile(rf".*\.{pattern}\.(\d+)\."))
    return readers


def _layer(readers: Iterable[re.Pattern], module: str) -> int | None:
    for reader in readers:
        if match := reader.match(module):
            return int(match.groups()[-1])
    return None


def _check_rank(file: Path, field: str, value: Any) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= MAX_RANK:
        got = one_line(repr(value), 40)
        raise UserError(f"{file}: {field} must be a number from 1 to {MAX_RANK:,}, got {got}.")


def _check_alpha(file: Path, field: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < MAX_ALPHA:  # nan is not below it either
        got = one_line(repr(value), 40)
        raise UserError(f"{file}: {field} must be a number below {MAX_ALPHA:g}, got {got}.")


def _check_pattern(where: str, pattern: str) -> None:
    try:
        paths.check_pattern(pattern)
        paths.check_pattern(_at_the_end(pattern))
    except UserError as error:
        raise UserError(f"{where}: {one_line(error, 300)}") from None


def _by_pattern(patterns: Any, module: str, default: Any) -> Any:
    """The value of the first pattern that matches the end of a module's name, as in peft."""
    for pattern, value in (patterns or {}).items():
        if re.match(_at_the_end(pattern), module):
            return value
    return default


def _at_the_end(pattern: str) -> str:
    return rf"(.*\.)?({pattern})$"
