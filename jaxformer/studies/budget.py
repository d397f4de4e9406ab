"""The budget of a study: what it suffices for, and the seconds that were used."""

import math
import time

import jax

from jaxformer.core.text_format import duration


def until_verdicts(trainings: int, budget: float) -> str:
    """The end of the line that a study prints before its first training."""
    limit = "" if math.isinf(budget) else f", at most {duration(budget)}"
    return f"{trainings} trainings until each has a first verdict{limit}"


class Spent:
    """Counts seconds from its beginning: of the processor where a CPU trains, else of the clock.

    On a machine that others use too, a training takes longer but no more of the processor, so a
    budget in seconds of the clock would decide less. With many idle cores it is the other way
    round, and the clock is what you wait for: the smaller number counts.

    Args:
        is_here: whether this process trains. The processor's time of others is not known.
    """

    def __init__(self, is_here: bool = True):
        self.is_processor = is_here and jax.default_backend() == "cpu"
        self.began = self._now()

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.process_time()

    def seconds(self) -> float:
        clock, processor = (now - began for now, began in zip(self._now(), self.began, strict=True))
        return min(clock, processor) if self.is_processor else clock
