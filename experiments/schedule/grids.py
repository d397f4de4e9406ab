"""Expands grids over config fields into the runs of a sweep.

Learning rates and consecutive seeds are members of one population, so a grid over them adds no
runs. Every value of another field adds a run, as does every choice in braces in the config string.
"""

import ast
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import recipes
from experiments.cli import flags
from experiments.cli.toml_file import read_toml
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.io.run_folder import flatten_config

RATE = "optim.learning_rate"
# Matches the text between commas that are outside of brackets and quotes.
VALUE_PATTERN = re.compile(r"(?:\([^()]*\)|'[^']*'|\"[^\"]*\"|[^,])+")
MAX_RUNS = 10_000
FILE_KEYS = ("config", "grid", "fields")


class Run(NamedTuple):
    """One config of a sweep."""

    config: str
    overrides: dict[str, str]
    varied: dict[str, str]  # the overrides from the grid, without learning rates and seeds


def expand(config: str, grid: Mapping[str, Sequence[str]], fields: Mapping[str, str]) -> list[Run]:
    """Returns the runs of all combinations.

    Args:
        config: "FILE:ARGUMENTS" with choices in braces.
        grid: the values of each varied field.
        fields: overrides that all runs share.
    """
    configs = expand_braces(config)
    for field, values in grid.items():
        if len({*map(_literal, values)}) < len(values):
            raise UserError(f"--grid {field} has a value twice: {','.join(values)}.")
    population, product = _split_population_fields(configs[0], grid)
    if (n := len(configs) * math.prod(map(len, product.values()))) > MAX_RUNS:
        raise UserError(f"the grid makes {n:,} runs; at most {MAX_RUNS:,} are one sweep.")
    runs = []
    for config_string, values in itertools.product(configs, itertools.product(*product.values())):
        varied: dict[str, str] = {}
        for field, value in zip(product, values, strict=True):
            varied |= split_joined_fields(field, value)
        runs.append(Run(config_string, dict(fields) | population | varied, varied))
    return runs


def expand_braces(text: str) -> list[str]:
    """Returns "a=b" and "a=c" for "a={b,c}"; several braces make all combinations."""
    parts = re.split(r"\{([^{}]*)\}", text)
    if any("{" in part or "}" in part for part in parts[::2]):
        raise UserError(f"--config has a brace without its other half: {text!r}.")
    choices = [[part] for part in parts]  # the parts with odd indices were in braces
    if math.prod(part.count(",") + 1 for part in parts[1::2]) > MAX_RUNS:
        raise UserError(f"--config has braces for more than {MAX_RUNS:,} runs.")
    choices[1::2] = [[choice for choice in part.split(",") if choice] for part in parts[1::2]]
    if any(len(set(options)) < len(options) for options in choices):
        raise UserError(f"--config has a choice twice in its braces: {text!r}.")
    if not all(choices):
        raise UserError(f"--config has empty braces: {text!r}.")
    return ["".join(combination) for combination in itertools.product(*choices)]


def parse_grid(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Returns {"model.layers": ["2", "4"]} for ["model.layers=2,4"]."""
    grid: dict[str, list[str]] = {}
    for argument in arguments:
        field, equals, text = argument.partition("=")
        if field in grid:
            raise UserError(f"--grid {field} is given twice.")
        values = [part.strip() for part in VALUE_PATTERN.findall(text)]
        grid[field] = [value for value in values if value]
        if not (field and equals and grid[field]):
            raise UserError(f"--grid {argument!r} has no values; give --grid FIELD=VALUE,VALUE.")
    return grid


def read_file(path: str) -> tuple[str, dict[str, list[str]], dict[str, str]]:
    """Reads a sweep file.

    Args:
        path: a TOML file, relative to the current folder or to the repository.

    Returns:
        (config, grid, fields)
    """
    names = sorted(p.name for p in (flags.ROOT / "configs/sweeps").glob("*.toml"))
    hint = did_you_mean(Path(path).name, names)
    missing = f"no sweep file {path!r}.{hint} configs/sweeps has {', '.join(names)}."
    file, content = read_toml(path, missing)
    if wrong := set(content) - set(FILE_KEYS):
        raise UserError(f"{file} has {sorted(wrong)}; a sweep file has config, grid and fields.")
    for name in ("grid", "fields"):
        if not isinstance(content.get(name, {}), dict):
            raise UserError(f"{file}: {name} must be a table [{name}], got {content[name]!r:.100}.")
    if not isinstance(content.get("config", ""), str):
        raise UserError(f"{file}: config must be a text, got {content['config']!r:.100}.")
    grid = {}
    for field, values in flatten_config(content.get("grid", {})).items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{file}: {field} must be a list of values, got {values!r}.")
        grid[field] = [_format(field, value) for value in values]
    fields = flatten_config(content.get("fields", {}))
    fields = {name: _format(name, value) for name, value in fields.items()}
    return str(content.get("config", "")), grid, fields


def count_members(config: Mapping[str, Any]) -> int:
    """Returns the size of a config's population: learning rates x seeds."""
    rates = config["optim"]["learning_rate"] if "optim" in config else (0.0,)
    return len(rates) * max(int(config["n_seeds"]), 1)


def split_joined_fields(field: str, value: str) -> dict[str, str]:
    """Splits "model.width+model.mlp_width" and "64+256" into two overrides."""
    names = field.split("+")
    values = value.split("+") if names[1:] else [value]
    if len(names) != len(values):
        raise UserError(f"--grid {field} needs {len(names)} numbers joined by +, got {value!r}.")
    return dict(zip(names, values, strict=True))


def _split_population_fields(
    config: str, grid: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict]:
    """Returns (overrides, the fields of the grid whose values each make a run).

    The overrides contain the learning rates and consecutive seeds of the grid, as members of each
    run's population.
    """
    population, product = {}, dict(grid)
    if RATE in product:
        # The last comma makes a tuple even of one learning rate.
        population[RATE] = ",".join(product.pop(RATE)) + ","
    seeds = [int(text) for text in grid.get("seed", ()) if text.isdecimal()]
    is_range = bool(seeds) and seeds == list(range(seeds[0], seeds[0] + len(grid["seed"])))
    if is_range and "n_seeds" not in grid and recipes.uses_seeds(flags.load_config(config)):
        del product["seed"]
        population |= {"seed": str(seeds[0]), "n_seeds": str(len(seeds))}
    return population, product


def _literal(value: str) -> Any:
    """Returns the value of a Python literal, so that "1e-3" equals "0.001", or else the text."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def _format(field: str, value: Any) -> str:
    if "+" in field and isinstance(value, list):
        return "+".join(map(str, value))
    return str(flags.to_tuples(value))
