"""Recipes: one module for each value of `config.recipe`, with `run` and `dry_run`.

`run(config, workdir)` writes the run's folder and returns the exit code. `dry_run(config)` builds
everything and prints it. A module may also have `redraw` (draws the figure of a finished run),
`tidy` (deletes temporary files) and `uses_seeds`. The table of recipes is
`experiments.cli.recipe_table`.
"""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from experiments.cli.recipe_table import RECIPES, sections
from jaxformer import build
from jaxformer.core.errors import UserError, check_choice


def module(name: str) -> ModuleType:
    """Imports the module of a recipe."""
    check_choice("recipe", name, RECIPES)
    return importlib.import_module(f"experiments.recipes.{name}")


def uses_seeds(config: Any) -> bool:
    """Returns whether more seeds change the results of a config."""
    uses = RECIPES[config.recipe].uses_seeds  # None: the config decides
    return module(config.recipe).uses_seeds(config) if uses is None else uses


def check(config: Mapping[str, Any]) -> None:
    """Raises UserError if a config changes a section that its recipe does not use."""
    used = sections(config["recipe"])
    # The identity has only the sections that differ from their defaults.
    for name in build.config_identity(config):
        if name not in used:
            raise UserError(
                f"the recipe {config['recipe']!r} does not use {name!r}; leave it at its default. "
                f"It uses: {', '.join(used)}."
            )
