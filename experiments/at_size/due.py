"""Which runs of a plan are due. Some depend on what earlier runs found, by rules of the plan.

A run may also take its learning rate from earlier runs of its cell: the best of their grid.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.ledger.record import Record
from jaxformer.core.errors import check_choice

ALWAYS = "always"
LOWEST = "the best rate is the lowest, and the cell learns"
HIGHEST = "the best rate is the highest, and the cell learns"
LEARNS = "the cell learns"
NEVER_LEARNS = "the cell learns at no rate"
UNSOLVED = "a seed does not reach the target"
LONGER_HELPS = "the first run ends at a lower loss than the others at its rate"
DIVERGED = "the seed diverged"
CONDITIONS = (
    ALWAYS,
    LOWEST,
    HIGHEST,
    LEARNS,
    NEVER_LEARNS,
    UNSOLVED,
    LONGER_HELPS,
    DIVERGED,
)

LEARNS_NATS = 0.1  # below the loss of token frequencies
SAME_NATS = 0.02  # losses that differ by less are the same, for a run of twice the steps
TIED_ACCURACY = 0.02  # two rates whose validation accuracies differ by less are equally good


class When(NamedTuple):
    """The condition of a run, and the runs whose records decide it."""

    condition: str = ALWAYS
    runs: tuple[str, ...] = ()


def is_due(when: When, records: Sequence[Record]) -> bool:
    """Whether a run is due, by the records of all runs that its condition names."""
    check_choice("condition", when.condition, CONDITIONS)
    if when.condition == ALWAYS:
        return True
    if when.condition == DIVERGED:
        return any(member["diverged_at"] is not None for member in chosen_members(records))
    if when.condition == UNSOLVED:
        return any(member["reached_at"] is None for member in chosen_members(records))
    if when.condition == LONGER_HELPS:
        return _longer_helps(*records)
    rates = learning_rates(records)
    learned = [rate for rate in rates if learns(records, rate)]
    if when.condition == NEVER_LEARNS:
        return not learned
    if when.condition == LEARNS or not learned:
        return bool(learned)
    edge = rates[0] if when.condition == LOWEST else rates[-1]
    return best_rate(records) == edge


def chosen_members(records: Sequence[Record]) -> list[dict]:
    return [member for record in records for member in record.members if member["chosen"]]


def learning_rates(records: Sequence[Record]) -> list[float]:
    """The learning rates that were tried, lowest first."""
    return sorted({m["learning_rate"] for record in records for m in record.members})


def members_at(records: Sequence[Record], rate: float) -> list[dict]:
    return [m for record in records for m in record.members if m["learning_rate"] == rate]


def best_rate(records: Sequence[Record]) -> float:
    """The rate with the best mean validation score of its seeds.

    A rate at which a seed diverged counts only if one diverged at every rate. Among accuracies that
    differ by less than TIED_ACCURACY from the best, the rate nearest to the middle of the grid is
    taken, and of two of these the lower one: accuracies in digits rise by stairs, on which many
    rates stand alike.
    """
    rates = learning_rates(records)
    stable = [rate for rate in rates if not _diverged(members_at(records, rate))]
    candidates = stable or rates
    by_loss = records[0].members[0]["chosen_by"] == "loss"
    if by_loss:
        return min(candidates, key=lambda rate: _mean_score(records, rate, "validation_loss"))
    accuracies = {rate: _mean_score(records, rate, "validation_accuracy") for rate in candidates}
    best = max(accuracies.values())
    tied = [rate for rate in candidates if accuracies[rate] > best - TIED_ACCURACY]
    middle = (len(rates) - 1) / 2
    return min(tied, key=lambda rate: abs(rates.index(rate) - middle))


def learns(records: Sequence[Record], rate: float) -> bool:
    """Whether all seeds beat the best trivial predictor of the test set at this rate.

    A loss must be LEARNS_NATS below that of token frequencies, as in the rows of the ledger. An
    accuracy must be above that of all predictors that the task lists.
    """
    members = members_at(records, rate)
    if _diverged(members):
        return False
    if members[0]["chosen_by"] == "loss":
        gaps = [member["metrics"]["loss_above_unigram"]["mean"] for member in members]
        return max(gaps) < -LEARNS_NATS
    baselines = records[0].baselines
    guess = max(value for name, value in baselines.items() if value and "loss" not in name)
    return min(member["metrics"]["accuracy"]["mean"] for member in members) > guess


def _longer_helps(longer: Record, *shorter: Record) -> bool:
    rate = learning_rates([longer])[0]
    before = _mean_loss(members_at(shorter, rate))
    return _mean_loss(members_at([longer], rate)) < before - SAME_NATS


def _mean_loss(members: Sequence[dict]) -> float:
    return float(np.mean([member["metrics"]["loss"]["mean"] for member in members]))


def _diverged(members: Sequence[dict]) -> bool:
    return any(member["diverged_at"] is not None for member in members)


def _mean_score(records: Sequence[Record], rate: float, name: str) -> float:
    scores = [member[name] for member in members_at(records, rate)]
    worst = np.inf if name.endswith("loss") else -np.inf
    return float(np.mean([worst if score is None else score for score in scores]))
