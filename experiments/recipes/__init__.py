"""What a config can ask for: one list. A recipe is a module with run and dry_run."""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from jaxformer import build
from jaxformer.core.errors import UserError, check_choice


class Recipe(NamedTuple):
    """What the commands must know of a recipe before they import it."""

    sections: tuple[str, ...]  # of a config, that it honours; others must be left at their defaults
    resumes: bool  # does a run that was stopped go on where it was?
    uses_seeds: bool | None = True  # do more seeds change the numbers? None: ask the module


COMMON = ("name", "recipe", "arguments", "seed", "n_seeds")
TRAINING = ("task", "data", "model", "partition", "unfreeze", "optim", "devices", "train")
RECIPES = {
    "train": Recipe(TRAINING, resumes=True),
    "look": Recipe(TRAINING, resumes=True),
    "recall": Recipe((*TRAINING, "recall"), resumes=True),
    "oneshot": Recipe((*TRAINING[1:], "bayes"), resumes=True),
    "measure": Recipe(("task", "data", "model", "partition", "measure"), resumes=False),
    "solve": Recipe(("figure", "data"), resumes=False, uses_seeds=None),
    "posterior": Recipe(("task", "data", "posterior"), resumes=True, uses_seeds=False),
}


def module(name: str) -> ModuleType:
    check_choice("recipe", name, RECIPES)
    return importlib.import_module(f"experiments.recipes.{name}")


def uses_seeds(config: Any) -> bool:
    """Do more seeds change what a run of this config measures?"""
    answer = RECIPES[config.recipe].uses_seeds
    return module(config.recipe).uses_seeds(config) if answer is None else answer


def check(plain: Mapping[str, Any]) -> None:
    """Raises if the config says something that its recipe would not listen to."""
    sections = (*COMMON, *RECIPES[plain["recipe"]].sections)
    for name in build.config_identity(plain):
        if name not in sections:
            raise UserError(
                f"the recipe {plain['recipe']!r} does not use {name!r}; leave it at its default. "
                f"It uses: {', '.join(sections)}."
            )
