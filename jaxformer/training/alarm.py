"""Runs that end knowing less than how frequent each answer is: said once, kept in the record."""

from collections.abc import Mapping, Sequence
from typing import Any

UNIGRAM = "unigram_loss"  # the baseline: nats of naming each answer by its frequency
SLACK = 1e-3  # nats; a model that has learned the frequencies alone ends this close to them


def alarms(members: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]) -> list[str]:
    """A line if chosen members end above the loss of the unigram predictor, else nothing."""
    if UNIGRAM not in baselines:
        return []
    losses = {m["seed"]: m["metrics"]["loss"].mean for m in members if m["chosen"]}
    return list(filter(None, [above_unigram("the test loss", losses, baselines[UNIGRAM])]))


def above_unigram(what: str, losses: Mapping[int, float], unigram: float) -> str:
    """The line, or "" if no seed of {seed: loss} is above."""
    high = {seed: loss for seed, loss in losses.items() if loss > unigram + SLACK}
    if not high:
        return ""
    seeds = f"{len(high)} of {len(losses)} seeds" if len(losses) > 1 else "the seed"
    return (
        f"{what} of {seeds} ends at {max(high.values()):.3f} nats, above the {unigram:.3f} of who "
        "only knows how frequent each answer is: too few steps, another learning rate, or learned "
        "by heart."
    )
