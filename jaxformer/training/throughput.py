"""How fast a run was, as the training loop itself sees it, and what the machine could do.

    {"step": 400, "throughput": {                 rows, where train.throughput asks for them
        "tokens_per_second":   of all members together, without the first dispatch, which compiles
        "samples_per_second":  the same in examples
        "model_flops":         operations of the matrix products of a step of all members, without
                               what remat and a loss in chunks compute again (training/flops.py)
        "flops_per_second":    the same a second
        "share_of_matmul":     of what one large product reaches on each of these devices
        "waiting_share":       of the time, in which nothing was there to compute with
    }}

    "performance": {                              result.json of every run, of its last session
        "tokens_per_second", "step_seconds", "share_of_matmul"    none of a single dispatch
        "model_flops":         as above
        "peak_memory":         bytes: of one accelerator, or of this process on a CPU
    }

These are times and sizes of a machine, not results.
"""

import math
import time
from typing import Any

import jax

from jaxformer.training import cost, flops
from jaxformer.training.setup import Setup

EVERY = 10.0  # seconds between two rows


class Throughput:
    """Hears of the program and of every dispatch (`loop.fit`) and says what came of it."""

    def __init__(self, setup: Setup, length: int):
        self.setup = setup
        self.samples = len(setup.members.members) * setup.data.batch_size
        self.tokens = self.samples * length
        self.flops = 0.0  # of a step as it is computed
        self.without_repeats = 0.0  # the same without what is computed again; 0: not yet known
        self.steps, self.seconds, self.waited, self.heard = 0, 0.0, 0.0, 0
        self.said = time.monotonic()

    def trace(self, program: Any) -> None:
        """Hears what a dispatch computes; the next one compiles."""
        self.flops, self.heard = flops.of(program), 0

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
        per_second, model_flops = self.steps / self.seconds, self._model_flops()
        return {
            "tokens_per_second": self.tokens * per_second,
            "samples_per_second": self.samples * per_second,
            "model_flops": model_flops,
            "flops_per_second": model_flops * per_second,
            "share_of_matmul": self._share(model_flops * per_second),
            "waiting_share": self.waited / self.seconds,
        }

    def performance(self) -> dict[str, float]:
        """For the result: what a step took, and what the run held."""
        found = {"peak_memory": float(cost.peak_memory())}
        found["model_flops"] = model_flops = self._model_flops()
        if self.steps:
            per_step = self.seconds / self.steps
            found["step_seconds"] = per_step
            found["tokens_per_second"] = self.tokens / per_step
            found["share_of_matmul"] = self._share(model_flops / per_step)
        return found

    def _model_flops(self) -> float:
        plain = cost.without_repeats(self.setup)
        if plain is self.setup and self.flops:
            return self.flops
        if not self.without_repeats:
            state = jax.eval_shape(plain.create)
            self.without_repeats = flops.products(plain.step(), state, cost.batch_shapes(plain))
        return self.without_repeats

    def _share(self, flops_per_second: float) -> float:
        rate = cost.matmul_rate(getattr(self.setup.model.spec, "dtype", float))
        return flops_per_second / (rate * self.setup.mesh.size) if rate else math.nan
