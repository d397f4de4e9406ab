"""Tokens a second, as the training loop itself sees them, and what the machine could do.

    {"step": 400, "throughput": {
        "tokens_per_second":   of all members together, without the first dispatch, which compiles
        "samples_per_second":  the same in examples
        "flops_per_second":    operations of the matrix products of the steps (training/flops.py)
        "share_of_matmul":     that over what one large product reaches on this machine
        "waiting_share":       of the time, in which nothing was there to compute with
    }}

Such rows are times, not results: they are written only where train.throughput asks for them.
"""

import math
import time

import jax

from jaxformer.training import cost, flops
from jaxformer.training.setup import Setup

EVERY = 10.0  # seconds between two rows


class Throughput:
    """Hears of every dispatch (`loop.fit(timed=..)`) and says what came of it."""

    def __init__(self, setup: Setup):
        batch = cost.batch_shapes(setup)
        members, examples, length = batch.inputs.shape[:3]
        self.samples, self.tokens = members * examples, members * examples * length
        state = jax.eval_shape(setup.create)
        self.flops = flops.products(setup.step(), state, batch)
        self.rate = cost.matmul_rate(getattr(setup.model.spec, "dtype", float))
        self.steps, self.seconds, self.waited, self.heard = 0, 0.0, 0.0, 0
        self.said = time.monotonic()

    def hear(self, steps: int, seconds: float, waited: float) -> None:
        self.heard += 1
        if self.heard > 1:  # the first one compiles
            self.steps += steps
            self.seconds += seconds
            self.waited += waited

    def is_due(self) -> bool:
        return self.steps > 0 and time.monotonic() - self.said >= EVERY

    def numbers(self) -> dict[str, float]:
        """Since the beginning; nothing before there was a second dispatch."""
        self.said = time.monotonic()
        if not self.steps:
            return {}
        per_second = self.steps / self.seconds
        return {
            "tokens_per_second": self.tokens * per_second,
            "samples_per_second": self.samples * per_second,
            "flops_per_second": self.flops * per_second,
            "share_of_matmul": self.flops * per_second / self.rate if self.rate else math.nan,
            "waiting_share": self.waited / self.seconds,
        }
