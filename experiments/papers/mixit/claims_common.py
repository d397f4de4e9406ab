"""Cells, rules and notes that several claims files of the MixiT papers share."""

import functools
from collections.abc import Callable, Mapping

from experiments.ledger.item import Cell
from experiments.ledger.rules import Rule, Side, above, near, of
from experiments.papers.sentences import with_more_steps
from jaxformer.core.variants import label

SMALL = ("small",)
MAIN_VARIANTS = ("standard", "frozen_qk", "mixit")  # the variants of most rows
ONE_HOP = "accuracy/hops=1"  # at scale small the other half of the questions asks for no hop

# task -> training steps of its config at scale small
STEPS = {
    "retrieval": 4000,
    "dyck": 4000,
    "addition": 5000,
    "hops": 2000,
    "modular_addition": 6000,
}
TASK_NAMES = {
    "addition": "decimal addition",
    "modular_addition": "modular addition",
    "memorization": "memorisation",
    "dyck": "Dyck-1",
    "retrieval": "retrieval",
    "hops": "k-hop",
}

# The shortest examples of these tasks are so few that training and test sets share them.
WITH_SHARED_EXAMPLES = ("retrieval", "dyck")
UNSEEN = "accuracy_unseen"
UNSEEN_NOTE = "The rules use `accuracy_unseen`: test examples that occur in no other set."
unseen = functools.partial(of, metric=UNSEEN)

# MixiT still improves at the end of its config's steps in these tasks.
STILL_IMPROVING = ("retrieval", "dyck", "hops")
LONGER = with_more_steps("mixit")  # the name of the cell with four times the steps
LONGER_NOTE = (
    "MixiT still improves at the end of its config's steps, so the rules use a run with four times "
    "as many. Even longer runs were not made."
)


def small(task: str, variant: str, overrides: Mapping[str, str] = {}) -> Cell:
    """Returns a cell that exists at scale small only."""
    return Cell(f"configs/mixit/{task}.py:variant={variant}", overrides, scales=SMALL)


def longer_mixit(task: str) -> dict[str, Cell]:
    """Returns the cell of MixiT with four times the steps of its config.

    In retrieval, where seeds differ most, it has only the best of the config's three learning
    rates.
    """
    rate = {"optim.learning_rate": "(1e-3,)"} if task == "retrieval" else {}
    return {LONGER: small(task, "mixit", {"train.steps": str(4 * STEPS[task])} | rate)}


def accuracy_of(task: str) -> Callable[[str], Side]:
    """Returns the function from a cell to the side with its accuracy.

    In tasks whose sets share examples it is the accuracy on unseen examples.
    """
    return unseen if task in WITH_SHARED_EXAMPLES else of


def variant_of(cell: str) -> str:
    """Returns the name of the variant of a cell: "Frozen-QK" for "frozen_qk, M=8"."""
    return label(cell.split(",")[0])


def as_good_as_standard(*cells: str, metric: str = "accuracy", when: str = "") -> dict[str, Rule]:
    """Returns for each cell the rule that it is at most .02 below Standard."""
    return _compared_with_standard(cells, "as good as", 0.02, metric, when)


def on_par_with_standard(*cells: str, metric: str, when: str = "") -> dict[str, Rule]:
    """Returns for each cell the rule that it is at most .05 below Standard."""
    return _compared_with_standard(cells, "on par with", 0.05, metric, when)


def _compared_with_standard(
    cells: tuple[str, ...], words: str, by: float, metric: str, when: str
) -> dict[str, Rule]:
    standard = of("standard", metric)
    return {
        f"{when}{variant_of(cell)} is {words} Standard": above(of(cell, metric), standard, -by)
        for cell in cells
    }


def below(
    cell: str, other: str, by: float, metric: str = "accuracy", when: str = ""
) -> dict[str, Rule]:
    """Returns the rule that a cell is more than `by` below another cell."""
    gap = f"{by:g}".removeprefix("0")  # ".2"
    sentence = f"{when}{variant_of(cell)} is {gap} below {variant_of(other)}"
    return {sentence: above(of(other, metric), of(cell, metric), by)}


def reaches(cell: str, share: float, metric: str = "accuracy", when: str = "") -> dict[str, Rule]:
    """Returns the rule that a cell's accuracy is above a share."""
    sentence = f"{when}{variant_of(cell)} reaches {100 * share:g} %"
    return {sentence: above(of(cell, metric), share)}


def solved(
    sentence: str, variants: tuple[str, ...] = MAIN_VARIANTS, cell: str = "{}"
) -> dict[str, Rule]:
    """Returns a rule for each variant: the accuracy of its cell is 1, within .02."""
    return {
        sentence.format(label(name)): near(of(cell.format(name)), 1.0, 0.02) for name in variants
    }
