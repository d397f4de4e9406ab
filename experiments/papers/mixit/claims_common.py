"""Cells, rules and notes that several claims files of the MixiT papers share."""

import functools
from collections.abc import Callable, Mapping

from experiments.cli.describe import label
from experiments.ledger.item import Cell
from experiments.ledger.rules import Rule, Side, above, near, of
from experiments.papers import row_numbers

SMALL = ("small",)
TRAINED = ("standard", "frozen_qk", "mixit")  # the variants of most rows
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

# The shortest examples of these tasks are so few that they occur in all sets.
HAVE_SEEN_EXAMPLES = ("retrieval", "dyck")
UNSEEN = "accuracy_unseen"
UNSEEN_NOTE = "The rules use `accuracy_unseen`: test examples that occur in no other set."
unseen = functools.partial(of, metric=UNSEEN)

# MixiT still improves at the end of its config's steps in these tasks.
STILL_IMPROVING = ("retrieval", "dyck", "hops")
LONGER = row_numbers.patient("mixit")  # the name of the cell with four times the steps
LONGER_NOTE = (
    "MixiT still improves at the end of its config's steps, so the rules use a run with four times "
    "as many. Even longer runs were not made."
)


def small(task: str, variant: str, overrides: Mapping[str, str] = {}) -> Cell:
    """Returns a cell that exists at scale small only."""
    return Cell(f"configs/mixit/{task}.py:variant={variant}", overrides, scales=SMALL)


def longer_mixit(task: str) -> dict[str, Cell]:
    """Returns the cell of MixiT with four times the steps of its config.

    In retrieval, where seeds differ most, only the best of three learning rates is run.
    """
    rate = {"optim.learning_rate": "(1e-3,)"} if task == "retrieval" else {}
    return {LONGER: small(task, "mixit", {"train.steps": str(4 * STEPS[task])} | rate)}


def accuracy_of(task: str) -> Callable[[str], Side]:
    """Returns the side of a task's cell: accuracy, on unseen examples where sets overlap."""
    return unseen if task in HAVE_SEEN_EXAMPLES else of


def as_good_as(variant: str, other: str, by: float = 0.02, metric: str = "accuracy") -> Rule:
    """Returns the rule that a variant is at most `by` below another one."""
    return above(of(variant, metric), of(other, metric), -by)


def as_good_as_standard(*variants: str, metric: str = "accuracy") -> dict[str, Rule]:
    return {
        f"{label(name)} is as good as Standard": as_good_as(name, "standard", metric=metric)
        for name in variants
    }


def solved(sentence: str, variants: tuple[str, ...] = TRAINED, cell: str = "{}") -> dict[str, Rule]:
    """Returns a rule for each variant: the accuracy of its cell is 1, within .02."""
    return {
        sentence.format(label(name)): near(of(cell.format(name)), 1.0, 0.02) for name in variants
    }
