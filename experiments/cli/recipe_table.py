"""The recipes that a config can name, and the sections of a config that each of them uses."""

from typing import NamedTuple


class Recipe(NamedTuple):
    """The properties of a recipe that commands need before they import it."""

    sections: tuple[str, ...]  # sections of a config that the recipe uses; others keep defaults
    resumes: bool  # whether a stopped run continues from its last checkpoint
    # Whether more seeds change the results. None: the module's `uses_seeds(config)` decides.
    uses_seeds: bool | None = True


COMMON = ("name", "recipe", "arguments", "seed", "n_seeds")
TRAINING = ("task", "data", "model", "partition", "unfreeze", "optim", "devices", "train")
RECIPES = {
    "train": Recipe(TRAINING, resumes=True),
    "look": Recipe(TRAINING, resumes=True),
    "recall": Recipe((*TRAINING, "recall"), resumes=True),
    "oneshot": Recipe((*TRAINING[1:], "bayes"), resumes=True),  # without the section "task"
    "measure": Recipe(("task", "data", "model", "partition", "measure"), resumes=False),
    "solve": Recipe(("figure", "data"), resumes=False, uses_seeds=None),
    "posterior": Recipe(("task", "data", "posterior"), resumes=True, uses_seeds=False),
}


def sections(recipe: str) -> tuple[str, ...]:
    """Returns the sections of a config that a recipe uses."""
    return (*COMMON, *RECIPES[recipe].sections)
