"""A config as the command line names it: a file with arguments, and overrides of any field.

Every mistake is one line that says what was expected, what came and what is possible.
"""

import ast
import contextlib
import importlib.util
import inspect
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs.arguments import ConfigError
from experiments import recipes
from jaxformer.core.errors import UserError, check_choice, did_you_mean
from jaxformer.io.run_folder import flatten_config

ROOT = Path(__file__).parents[2]
LARGEST = {int: 2**62, float: 3e38}  # numbers of fields are below it
# What other libraries call a field -> its name here.
ELSEWHERE = {"lr": "learning_rate", "wd": "weight_decay", "d_model": "width", "n_layers": "layers"}
# Set by hand, what runs is no longer the variant that its label names.
OF_A_VARIANT = ("partition", "unfreeze", "model.mixer", "posterior.method")


def manual(text: str) -> str:
    """The docstring of the config "FILE:ARGUMENTS"."""
    file = text.partition(":")[0]
    return inspect.getdoc(config_module(file)) or f"{file} has no docstring."


def load_config(text: str) -> ConfigDict:
    """The config of "FILE:ARGUMENTS"; FILE is found from here or from the repository."""
    name, _, arguments = text.partition(":")
    module = config_module(name)
    if not hasattr(module, "get_config"):
        raise UserError(f"{name!r} has no function get_config(arg).")
    with _said_in_a_line(f"get_config of {name!r}"):
        config = module.get_config(arguments)
    if not isinstance(config, ConfigDict):
        kind = type(config).__name__
        raise UserError(f"get_config of {name!r} must return a ConfigDict, it returned a {kind}.")
    held = config.to_dict()
    check_choice("recipe", str(held.get("recipe", "")), recipes.RECIPES)
    sections = (*recipes.COMMON, *recipes.RECIPES[held["recipe"]].sections)
    if lacking := [section for section in sections if section not in held]:
        raise UserError(f"the config of {name!r} lacks {', '.join(lacking)}.")
    return config


def configured(text: str, overrides: Mapping[str, Any]) -> ConfigDict:
    """The config of "FILE:ARGUMENTS" with the overrides of a command or a record."""
    config = load_config(text)
    for name, value in overrides.items():
        override(config, name, spelled(value))
    return config.copy_and_resolve_references()


def of_a_record(text: str, overrides: Mapping[str, Any]) -> ConfigDict:
    """Like `configured`, except that a record may name only a config of this checkout.

    A record may come from anybody, and a config is a program: what does not lie below configs/,
    links resolved, is never executed.
    """
    name, _, arguments = text.partition(":")
    try:
        file, configs = (ROOT / name).resolve(), (ROOT / "configs").resolve()
        is_ours = file.is_relative_to(configs) and file.suffix == ".py" and file.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, links in a circle
        is_ours = False
    if not is_ours:
        raise UserError(f"no config file {name!r:.200} below configs/ of this checkout.")
    return configured(f"{file}:{arguments}", overrides)


def config_module(name: str) -> Any:
    """The module of a config file, executed; a mistake in it is one line."""
    try:
        file = next((p for p in (Path(name), ROOT / name) if p.is_file()), None)
    except (OSError, ValueError):  # too long a name, a NUL in it
        file = None
    if file is None:
        hint = did_you_mean(name, known_configs())
        raise UserError(f"no config file {name!r}.{hint} There are {', '.join(known_configs())}.")
    spec = importlib.util.spec_from_file_location("config_file", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{name!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    with _said_in_a_line(repr(name)):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _said_in_a_line(what: str) -> Iterator[None]:
    """What goes wrong inside a config is a mistake of its author, not one of ours."""
    try:
        yield
    except (ConfigError, UserError) as error:
        raise UserError(str(error)) from None
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{what} is not a config: it raises {said:.300}") from None


def known_configs() -> list[str]:
    files = (ROOT / "configs").rglob("*.py")
    own = [f for f in files if f.parent != ROOT / "configs" and f.name != "__init__.py"]
    return sorted(str(f.relative_to(ROOT)) for f in own)


def tasks(variant: str) -> dict[str, str]:
    """{"retrieval": its file} of the configs that train this variant."""
    found = {}
    for file in known_configs():
        with contextlib.suppress(UserError):
            if load_config(f"{file}:variant={variant}").recipe == "train":
                found[Path(file).stem] = file
    return found


def override(config: ConfigDict, name: str, text: str) -> Any:
    """Sets config.name to the value that `text` spells, in the type of the old value."""
    known = [
        field for field in flatten_config(config.to_dict()) if not field.startswith("arguments.")
    ]
    labels: Any = config.arguments
    argument = name.removeprefix("arguments.")
    if name not in known and argument in labels:
        raise UserError(
            f"{argument} is not a field to override: say it after the colon of "
            f"--config=FILE:{argument}=..."
        )
    if name in ("name", "recipe"):
        raise UserError(f"{name} is not a field to override: it is what the config file is for.")
    if name not in known:
        *where, last = name.split(".")
        hint = did_you_mean(".".join([*where, ELSEWHERE.get(last, last)]), known)
        section = ".".join(where)
        inside = [f.removeprefix(f"{section}.") for f in known if f.startswith(f"{section}.")]
        top = {field.split(".")[0] for field in known} - {"name", "recipe"}
        has = f"{section} has" if inside else "It has"
        said = ", ".join(sorted(set(inside) or top))
        raise UserError(f"the config has no field {name!r}.{hint} {has}: {said}.")
    holder: Any = config
    *parents, last = name.split(".")
    for parent in parents:
        holder = holder[parent]
    value = _value(name, text, holder[last])
    if name in OF_A_VARIANT and value != holder[last]:
        labels.update({label: "custom" for label in ("variant", "thaw") if label in labels})
    holder[last] = value
    return value


def command(config: str, overrides: Mapping[str, Any]) -> str:
    """The line that runs "FILE:ARGUMENTS" with these overrides."""
    words = [f"--config={config}"]
    words += [f"--config.{name}={spelled(value)}" for name, value in overrides.items()]
    return "python experiments/run.py " + " ".join(map(shlex.quote, words))


def spelled(value: Any) -> str:
    """A value as a flag would spell it; the inverse of `override`."""
    if not isinstance(value, list | tuple):
        return str(value)
    is_plain = value and all(isinstance(entry, int | float) for entry in value)
    return ",".join(map(str, value)) if is_plain else repr(tuples(value))


def tuples(value: Any) -> Any:
    """Nested lists, as JSON and TOML have them, as nested tuples."""
    return tuple(tuples(entry) for entry in value) if isinstance(value, list | tuple) else value


def _value(name: str, text: str, old: Any) -> Any:
    if isinstance(old, str):
        return text
    if isinstance(old, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise _wrong(name, "true or false", text)
    try:
        value = _bounded(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if isinstance(old, tuple | list):
        items = value if isinstance(value, tuple | list) else (value,)
        kind = type(old[0]) if old else None
        if kind is float:
            items = tuple(float(i) if type(i) is int else i for i in items)
        if value is None or (kind and not all(type(item) is kind for item in items)):
            example = f"such as {','.join(map(str, old))}" if kind is float else f"such as {old}"
            raise _wrong(name, f"a sequence {example}", text)
        return tuple(items)
    if isinstance(old, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1e4 steps
        if type(value) is int and abs(value) < LARGEST[int]:
            return value
        raise _wrong(name, f"a whole number such as {old}", text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _wrong(name, f"a number such as {old}", text)


def _bounded(value: Any) -> Any:
    """The value; raises ValueError if a number in it is too large to be meant, or not finite."""
    if isinstance(value, tuple | list):
        for entry in value:
            _bounded(entry)
    elif isinstance(value, dict | set | bytes | complex):
        raise ValueError  # no field is one
    elif type(value) in LARGEST and not abs(value) < LARGEST[type(value)]:
        raise ValueError
    return value


def _wrong(name: str, expected: str, text: str) -> UserError:
    return UserError(f"--config.{name} must be {expected}, got {text!r:.200}.")


def plain(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    return config.to_dict() if isinstance(config, ConfigDict) else dict(config)
