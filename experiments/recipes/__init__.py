"""What a config can ask for: one list. A recipe is a module with run, report and dry_run."""

import importlib
from types import ModuleType
from typing import NamedTuple

from jaxformer.errors import unknown


class Recipe(NamedTuple):
    """What the commands must know of a recipe before they import it."""

    sections: tuple[str, ...]  # of a config, that it honours; others must be left at their defaults
    resumes: bool  # does a run that was stopped go on where it was?
    uses_seeds: bool = True  # do more seeds change what is measured?


COMMON = ("name", "recipe", "arguments", "seed", "n_seeds")
TRAINING = ("task", "data", "model", "partition", "unfreeze", "optim", "devices", "train")
RECIPES = {
    "train": Recipe(TRAINING, resumes=True),
    "look": Recipe(TRAINING, resumes=True),
    "recall": Recipe((*TRAINING, "recall"), resumes=True),
    "oneshot": Recipe((*TRAINING, "bayes"), resumes=True),
    "measure": Recipe(("task", "data", "model", "partition", "measure"), resumes=False),
    "solve": Recipe(("figure",), resumes=False),  # `solve` itself says which figures use seeds
    "posterior": Recipe(("task", "posterior"), resumes=True, uses_seeds=False),
}


def module(name: str) -> ModuleType:
    """The module of a recipe."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return importlib.import_module(f"experiments.recipes.{name}")
