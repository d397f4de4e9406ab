"""Alarms: warnings in the record of a run that ends worse than a predictor of frequencies."""

from collections.abc import Mapping, Sequence
from typing import Any

UNIGRAM = "unigram_loss"  # baseline in nats: predict each answer with its frequency
TOLERANCE_NATS = 1e-3  # a model that has learned only the frequencies ends this close to them


def alarms(members: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]) -> list[str]:
    """Returns a line if chosen members end above the loss of the unigram predictor, else []."""
    if UNIGRAM not in baselines:
        return []
    losses = {m["seed"]: m["metrics"]["loss"].mean for m in members if m["chosen"]}
    line = above_unigram("the test loss", losses, baselines[UNIGRAM])
    return [line] if line else []


def above_unigram(name: str, losses: Mapping[int, float], unigram: float) -> str:
    """Returns a line if a loss is above the unigram predictor's, else "".

    Args:
      name: what the losses are, such as "the test loss".
      losses: {seed: loss in nats}.
      unigram: loss of the unigram predictor in nats.
    """
    high = {seed: loss for seed, loss in losses.items() if loss > unigram + TOLERANCE_NATS}
    if not high:
        return ""
    seeds = f"{len(high)} of {len(losses)} seeds" if len(losses) > 1 else "the seed"
    return (
        f"{name} of {seeds} ends at {max(high.values()):.3f} nats, above the {unigram:.3f} of a "
        "predictor of answer frequencies: train longer, change the learning rate, or check for "
        "overfitting, or for an optimizer of your own whose updates go up the gradient."
    )
