"""Expands grids over config fields into runs; what can share a program becomes one run.

Learning rates and consecutive seeds are members of one population, so a grid over them does not
make more runs. Every other field does, and so does every choice in braces in the config string.
"""

import ast
import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import recipes
from experiments.cli import flags
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.io.run_folder import flatten_config

RATE = "optim.learning_rate"
# What stands between the commas outside brackets and quotes.
VALUES = re.compile(r"(?:\([^()]*\)|'[^']*'|\"[^\"]*\"|[^,])+")
MOST = 10_000  # runs of a sweep
FILE_KEYS = ("config", "grid", "fields")


class Run(NamedTuple):
    """One config of a sweep."""

    config: str
    overrides: dict[str, str]
    varied: dict[str, str]  # the part of the overrides that the grid sets, without the members'


def expand(config: str, grid: Mapping[str, Sequence[str]], fields: Mapping[str, str]) -> list[Run]:
    """Every combination; `fields` are set in all of them."""
    configs = braces(config)
    for field, values in grid.items():
        if len({*map(_meaning, values)}) < len(values):
            raise UserError(f"--grid {field} has a value twice: {','.join(values)}.")
    common, product = _shared(configs[0], grid)
    if (n := len(configs) * math.prod(map(len, product.values()))) > MOST:
        raise UserError(f"the grid makes {n:,} runs; at most {MOST:,} are one sweep.")
    runs = []
    for name, values in itertools.product(configs, itertools.product(*product.values())):
        varied: dict[str, str] = {}
        for field, value in zip(product, values, strict=True):
            varied |= _together(field, value)
        runs.append(Run(name, dict(fields) | common | varied, varied))
    return runs


def braces(text: str) -> list[str]:
    """ "a={b,c}" -> ["a=b", "a=c"]; several braces make all combinations."""
    parts = re.split(r"\{([^{}]*)\}", text)
    if any("{" in part or "}" in part for part in parts[::2]):
        raise UserError(f"--config has a brace without its other half: {text!r}.")
    choices = [[part] for part in parts]
    if math.prod(part.count(",") + 1 for part in parts[1::2]) > MOST:
        raise UserError(f"--config has braces for more than {MOST:,} runs.")
    choices[1::2] = [[word for word in part.split(",") if word] for part in parts[1::2]]
    if any(len(set(words)) < len(words) for words in choices):
        raise UserError(f"--config has a word twice in its braces: {text!r}.")
    if not all(choices):
        raise UserError(f"--config has empty braces: {text!r}.")
    return ["".join(words) for words in itertools.product(*choices)]


def parse_grid(words: Sequence[str]) -> dict[str, list[str]]:
    """{"model.layers": ["2", "4"]} of ["model.layers=2,4"]."""
    grid: dict[str, list[str]] = {}
    for word in words:
        field, equals, text = word.partition("=")
        if field in grid:
            raise UserError(f"--grid {field} is given twice.")
        grid[field] = [value for part in VALUES.findall(text) if (value := part.strip())]
        if not (field and equals and grid[field]):
            raise UserError(f"--grid {word!r} has no values; say --grid FIELD=VALUE,VALUE.")
    return grid


def read(path: str) -> tuple[str, dict[str, list[str]], dict[str, str]]:
    """(config, grid, fields) of a TOML file; found from here or from the repository."""
    try:
        file = next((p for p in (Path(path), flags.ROOT / path) if p.is_file()), None)
    except (OSError, ValueError):  # too long a name, a NUL in it
        file = None
    if file is None:
        known = sorted(p.name for p in (flags.ROOT / "configs/sweeps").glob("*.toml"))
        hint = did_you_mean(Path(path).name, known)
        raise UserError(f"no sweep file {path!r}.{hint} configs/sweeps has {', '.join(known)}.")
    try:
        held = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{file} is not TOML: {error}.") from None
    if wrong := set(held) - set(FILE_KEYS):
        raise UserError(f"{file} has {sorted(wrong)}; a sweep file has config, grid and fields.")
    for name in ("grid", "fields"):
        if not isinstance(held.get(name, {}), dict):
            raise UserError(f"{file}: {name} must be a table [{name}], got {held[name]!r:.100}.")
    if not isinstance(held.get("config", ""), str):
        raise UserError(f"{file}: config must be a text, got {held['config']!r:.100}.")
    grid = {}
    for field, values in flatten_config(held.get("grid", {})).items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{file}: {field} must be a list of values, got {values!r}.")
        grid[field] = [_spelled(field, value) for value in values]
    fields = {
        name: _spelled(name, value)
        for name, value in flatten_config(held.get("fields", {})).items()
    }
    return str(held.get("config", "")), grid, fields


def members(held: Mapping[str, Any]) -> int:
    """How many the population of a config has."""
    rates = held["optim"]["learning_rate"] if "optim" in held else (0.0,)
    return len(rates) * max(int(held["n_seeds"]), 1)


def _shared(config: str, grid: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict]:
    """(what becomes members of every run, the rest of the grid)."""
    members, product = {}, dict(grid)
    if RATE in product:
        members[RATE] = ",".join(product.pop(RATE)) + ","
    seeds = [int(text) for text in grid.get("seed", ()) if text.isdecimal()]
    in_a_row = bool(seeds) and seeds == list(range(seeds[0], seeds[0] + len(grid["seed"])))
    if in_a_row and "n_seeds" not in grid and recipes.uses_seeds(flags.load_config(config)):
        del product["seed"]
        members |= {"seed": str(seeds[0]), "n_seeds": str(len(seeds))}
    return members, product


def _together(field: str, value: str) -> dict[str, str]:
    """ "model.width+model.mlp_width" with "64+256" sets both."""
    names = field.split("+")
    values = value.split("+") if names[1:] else [value]
    if len(names) != len(values):
        raise UserError(f"--grid {field} needs {len(names)} numbers joined by +, got {value!r}.")
    return dict(zip(names, values, strict=True))


def _meaning(value: str) -> Any:
    """1e-3 and 0.001 are one value."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def _spelled(field: str, value: Any) -> str:
    if "+" in field and isinstance(value, list):
        return "+".join(map(str, value))
    return str(flags.tuples(value))
