"""Lines about where a network starts, from the theories of initialisation."""

import math
from typing import Any

from experiments.anatomy_report.subject import Subject
from jaxformer.core.errors import UserError
from theory.advise.diagnosis import judge
from theory.advise.model_architecture import architecture_of
from theory.advise.question import Question

ADVICE_LINES = 2
TRAINABLE = "trainable"  # the regime without a fault


def lines(what: Subject) -> list[str]:
    """Returns what the advisor predicts for the network at initialisation, a line each.

    It is empty for networks that the theory does not describe.
    """
    model, length = what.network.model, max(what.task.length, 2)
    try:
        answer = judge(Question(architecture_of(model.spec), length))
    except UserError:
        return []
    advice = [] if answer["regime"] == TRAINABLE else answer["advice"][:ADVICE_LINES]
    return [*_ranges(answer), *advice]


def _ranges(answer: dict[str, Any]) -> list[str]:
    """Returns rank, entropy and gradients with the ranges in which networks train well."""
    cosine, keys, ratio = answer["cosine"][-1], min(answer["keys"]), answer["gradient_ratio"]
    low, high = answer["gradient_range"]
    start = f"At initialisation the network shows {answer['regime']}"
    if answer["regime"] == TRAINABLE:
        start = "At initialisation rank, entropy and gradients are in the trainable range"
    return [
        f"{start} (theory.advise).",
        f"Rank: the cosine of two tokens after the last block is {cosine:.2f}; collapse is above "
        f"{1 - answer['epsilon']:g}.",
        f"Entropy: a query sees {keys:.1f} of {answer['length']} keys in the block with the "
        f"fewest; fewer than {answer['least_keys']:.1f} is entropy collapse.",
        f"Gradients: those of the first block are {_times(ratio)} those of the last; the range is "
        f"{low:g} to {high:g}.",
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if math.isfinite(ratio) else "not finite compared with"
