"""Configs on the command line: "FILE:ARGUMENTS", and overrides of any field.

Wrong input raises UserError with one line: the expected value, the given value and the choices.
"""

import ast
import contextlib
import functools
import importlib.util
import inspect
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from ml_collections import ConfigDict

from configs.arguments import ConfigError
from experiments.cli.completion import config_path
from experiments.cli.recipe_table import RECIPES, sections
from jaxformer.core.errors import UserError, check_choice, did_you_mean
from jaxformer.io.run_folder import flatten_config

ROOT = Path(__file__).parents[2]
IS_CLONE = (ROOT / "pyproject.toml").is_file()
# The folder with results/ and runs/: the clone, or for an installed wheel the current folder.
WORKSPACE = ROOT if IS_CLONE else Path.cwd()
MAX_MAGNITUDE = {int: 2**62, float: 3e38}  # {type: the largest number that a field may have}
# Names of fields in other libraries, for suggestions.
FOREIGN_NAMES = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "d_model": "width",
    "n_layers": "layers",
}
# Fields that define a variant. An override of one turns the label of the variant into "custom".
VARIANT_FIELDS = ("partition", "unfreeze", "model.mixer", "posterior.method")


def config_docstring(text: str) -> str:
    """Returns the docstring of the config file in "FILE:ARGUMENTS"."""
    file = text.partition(":")[0]
    return inspect.getdoc(config_module(file)) or f"{file} has no docstring."


def load_config(text: str) -> ConfigDict:
    """Loads the config "FILE:ARGUMENTS".

    Args:
        text: FILE is relative to the current folder or to the repository.
    """
    name, _, arguments = text.partition(":")
    module = config_module(name)
    if not hasattr(module, "get_config"):
        raise UserError(f"{name!r} has no function get_config(arg).")
    with _one_line_errors(f"get_config of {name!r}"):
        config = module.get_config(arguments)
    if not isinstance(config, ConfigDict):
        kind = type(config).__name__
        raise UserError(f"get_config of {name!r} must return a ConfigDict, it returned a {kind}.")
    values = config.to_dict()
    check_choice("recipe", str(values.get("recipe", "")), RECIPES)
    missing = [section for section in sections(values["recipe"]) if section not in values]
    if missing:
        raise UserError(f"the config of {name!r} lacks {', '.join(missing)}.")
    return config


def load_with_overrides(text: str, overrides: Mapping[str, Any]) -> ConfigDict:
    """Loads the config "FILE:ARGUMENTS" with the overrides of a command or a record."""
    config = load_config(text)
    for name, value in overrides.items():
        override(config, name, format_value(value))
    return config.copy_and_resolve_references()


def load_recorded_config(text: str, overrides: Mapping[str, Any]) -> ConfigDict:
    """Loads the config that a record names, if it is a file below configs/ of this checkout.

    A config is a program, and a record may come from any source. Other files are never executed,
    also not through symbolic links.
    """
    name, _, arguments = text.partition(":")
    try:
        file, configs = (ROOT / name).resolve(), (ROOT / "configs").resolve()
        is_config = file.is_relative_to(configs) and file.suffix == ".py" and file.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, links in a circle
        is_config = False
    if not is_config:
        raise UserError(f"no config file {name!r:.200} below configs/ of this checkout.")
    return load_with_overrides(f"{file}:{arguments}", overrides)


def config_module(name: str) -> Any:
    """Executes a config file, given as a path or as "mixit/retrieval", and returns its module."""
    try:
        path = config_path(name)
        file = next((p for p in (Path(path), ROOT / path) if p.is_file()), None)
    except (OSError, ValueError):  # the name is too long or contains NUL
        file = None
    if file is None:
        names = config_files()
        if not name.endswith(".py"):  # as `jaxformer run mixit/retrieval`
            names = [file.removeprefix("configs/").removesuffix(".py") for file in names]
        hint = did_you_mean(name, names)
        raise UserError(f"no config file {name!r}.{hint} `jaxformer configs` lists all configs.")
    spec = importlib.util.spec_from_file_location("config_file", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{name!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    with _one_line_errors(repr(name)):
        exec(_compiled(str(file), file.read_bytes()), vars(module))
    return module


@functools.cache
def _compiled(file: str, source: bytes) -> CodeType:
    """Compiles a config file once: the ledger loads each file for many cells."""
    return compile(source, file, "exec", dont_inherit=True)


@contextlib.contextmanager
def _one_line_errors(source: str) -> Iterator[None]:
    """Turns any error inside a config into a UserError that names the config."""
    try:
        yield
    except (ConfigError, UserError) as error:
        raise UserError(str(error)) from None
    except (Exception, SystemExit) as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{source} is not a config: it raises {message:.300}") from None


def config_files() -> list[str]:
    """Returns the config files of the repository, relative to its root."""
    files = (ROOT / "configs").rglob("*.py")
    configs = [f for f in files if f.parent != ROOT / "configs" and f.name != "__init__.py"]
    return sorted(str(f.relative_to(ROOT)) for f in configs)


def training_configs(variant: str) -> dict[str, str]:
    """Returns the config files that train a variant, by task, such as {"retrieval": FILE}."""
    files = {}
    for file in config_files():
        with contextlib.suppress(UserError):
            if load_config(f"{file}:variant={variant}").recipe == "train":
                files[Path(file).stem] = file
    return files


def override(config: ConfigDict, name: str, text: str) -> Any:
    """Parses `text` in the type of the field's value and sets the field.

    Args:
        config: the config, which is changed.
        name: the field, such as "optim.learning_rate".
        text: the value as on the command line.

    Returns:
        The new value.
    """
    flat = flatten_config(config.to_dict())
    fields = [field for field in flat if not field.startswith("arguments.")]
    labels: Any = config.arguments  # such as {"variant": "mixit", "scale": "tiny"}
    argument = name.removeprefix("arguments.")
    if name not in fields and argument in labels:
        raise UserError(
            f"{argument} is not a field to override: give it after the colon of "
            f"--config=FILE:{argument}=..."
        )
    if name in ("name", "recipe"):
        raise UserError(f"{name} is not a field to override: the config file sets it.")
    if name not in fields:
        *parents, last = name.split(".")
        hint = did_you_mean(".".join([*parents, FOREIGN_NAMES.get(last, last)]), fields)
        section = ".".join(parents)
        prefix = f"{section}."
        fields_of_section = {f.removeprefix(prefix) for f in fields if f.startswith(prefix)}
        sections_of_config = {field.split(".")[0] for field in fields} - {"name", "recipe"}
        subject = section if fields_of_section else "It"
        choices = ", ".join(sorted(fields_of_section or sections_of_config))
        raise UserError(f"the config has no field {name!r}.{hint} {subject} has: {choices}.")
    section_config: Any = config
    *parents, last = name.split(".")
    for parent in parents:
        section_config = section_config[parent]
    value = _parse_value(name, text, section_config[last])
    if name in VARIANT_FIELDS and value != section_config[last]:
        labels.update({label: "custom" for label in ("variant", "thaw") if label in labels})
    if name == "task.tokens" and Path(value).name != Path(section_config[last]).name:
        section_config.fingerprint = ""  # that of the config's own text
    section_config[last] = value
    return value


def run_command(config: str, overrides: Mapping[str, Any]) -> str:
    """Returns the shell command that runs "FILE:ARGUMENTS" with overrides."""
    name, colon, labels = config.partition(":")
    if name.startswith("configs/"):
        name = name.removeprefix("configs/").removesuffix(".py")
    arguments = [f"{name}{colon}{labels}"]
    arguments += [f"--config.{field}={format_value(value)}" for field, value in overrides.items()]
    return "jaxformer run " + " ".join(map(shlex.quote, arguments))


def format_value(value: Any) -> str:
    """Formats a value for the command line, so that `override` parses it back."""
    if not isinstance(value, list | tuple):
        return str(value)
    is_numeric = value and all(isinstance(entry, int | float) for entry in value)
    return ",".join(map(str, value)) if is_numeric else repr(to_tuples(value))


def to_tuples(value: Any) -> Any:
    """Converts nested lists, as in JSON and TOML, to nested tuples."""
    return tuple(to_tuples(entry) for entry in value) if isinstance(value, list | tuple) else value


def _parse_value(name: str, text: str, old: Any) -> Any:
    if isinstance(old, str):
        return text
    if isinstance(old, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise _wrong_value(name, "true or false", text)
    try:
        value = _check_magnitude(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if isinstance(old, tuple | list):
        items = value if isinstance(value, tuple | list) else (value,)
        kind = type(old[0]) if old else None
        if kind is float:
            items = tuple(float(i) if type(i) is int else i for i in items)
        if value is None or (kind and not all(_is_like(item, old) for item in items)):
            example = f"such as {','.join(map(str, old))}" if kind is float else f"such as {old}"
            raise _wrong_value(name, f"a sequence {example}", text)
        return tuple(items)
    if isinstance(old, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # such as 1e4 for a number of steps
        if type(value) is int and abs(value) < MAX_MAGNITUDE[int]:
            return value
        raise _wrong_value(name, f"a whole number such as {old}", text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _wrong_value(name, f"a number such as {old}", text)


def _is_like(item: Any, examples: Sequence[Any], is_record: bool = True) -> bool:
    """Returns whether an item of a sequence has the form of one of the examples.

    A tuple with numbers is a record: each position has a meaning, so its length is checked. A tuple
    of names, such as the heads of a layer, and a tuple inside a record may have any length. Inside
    a record, `is_record` is False.
    """
    if not isinstance(item, tuple | list):
        kinds = set(map(type, examples))
        return type(item) in kinds or (type(item) is int and float in kinds)
    is_free = not is_record or all(isinstance(entry, str) for entry in item)
    return any(
        all(_is_like(entry, example, is_record=False) for entry in item)
        and (is_free or len(item) == len(example))
        for example in examples
        if isinstance(example, tuple | list)
    )


def _check_magnitude(value: Any) -> Any:
    """Returns the value; raises ValueError if a number in it is too large or not finite."""
    if isinstance(value, tuple | list):
        for entry in value:
            _check_magnitude(entry)
    elif isinstance(value, dict | set | bytes | complex):
        raise ValueError  # no field has this type
    elif type(value) in MAX_MAGNITUDE and not abs(value) < MAX_MAGNITUDE[type(value)]:
        raise ValueError
    return value


def _wrong_value(name: str, expected: str, text: str) -> UserError:
    return UserError(f"--config.{name} must be {expected}, got {text!r:.200}.")


def to_dict(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config as nested dicts."""
    return config.to_dict() if isinstance(config, ConfigDict) else dict(config)
