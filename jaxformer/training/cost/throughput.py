"""The speed of a run while it trains.

With `train.throughput` a run logs rows of `Throughput.numbers` in timing.jsonl. The last row is
also the entry `timing` of its result.json. Every result.json has the numbers of
`Throughput.performance`. They describe the machine, so verdicts and comparisons ignore them.

    {"step": 400, "throughput": {
        "tokens_per_second":  of all members together, without the first dispatch, which compiles
        "samples_per_second": examples of all members per second
        "model_flops":        FLOPs of a step's matrix products, without recomputation
        "flops_per_second":   model_flops times the steps per second
        "share_of_matmul":    flops_per_second divided by that of a large matrix product on each
                              of the devices
        "waiting_share":      fraction of the time in which the device waited for data
    }}
    "performance": {"tokens_per_second", "step_seconds", "share_of_matmul", "model_flops",
                    "peak_memory": bytes of one accelerator, or of this process on a CPU}
"""

import math
import time
from typing import Any

from jaxformer.training.callbacks import Callback, Dispatch
from jaxformer.training.cost.flops import matmul_flops, matmul_rate, program_flops
from jaxformer.training.cost.memory import batch_shapes, peak_memory, without_remat
from jaxformer.training.setup import Setup

LOG_SECONDS = 10.0  # interval between two rows of throughput


class Throughput(Callback):
    """Measures the speed of the dispatches of a run.

    Args:
      setup: the setup of the run.
      length: tokens per example.
    """

    def __init__(self, setup: Setup, length: int):
        self.setup = setup
        self.samples = len(setup.population.members) * setup.data.batch_size  # per step
        self.tokens = self.samples * length
        self.flops = 0.0  # of a step of the program that runs
        self.flops_without_recomputation = 0.0  # 0: not computed yet
        self.steps, self.seconds, self.waiting_seconds = 0, 0.0, 0.0
        self.is_compiling = True  # the first dispatch of a program compiles and is not counted
        self.logged_at = time.monotonic()

    def on_program(self, program: Any) -> None:
        self.flops, self.is_compiling = program_flops(program), True

    def on_dispatch(self, dispatch: Dispatch) -> None:
        if not self.is_compiling:
            self.steps += dispatch.steps
            self.seconds += dispatch.seconds
            self.waiting_seconds += dispatch.waiting_seconds
        self.is_compiling = False

    def is_due(self) -> bool:
        """Returns whether it is time for the next row."""
        return self.steps > 0 and time.monotonic() - self.logged_at >= LOG_SECONDS

    def numbers(self) -> dict[str, float]:
        """Returns the numbers of a row since the start; {} before the second dispatch."""
        self.logged_at = time.monotonic()
        if not self.steps:
            return {}
        steps_per_second, model_flops = self.steps / self.seconds, self._model_flops()
        return {
            "tokens_per_second": self.tokens * steps_per_second,
            "samples_per_second": self.samples * steps_per_second,
            "model_flops": model_flops,
            "flops_per_second": model_flops * steps_per_second,
            "share_of_matmul": self._share_of_matmul(model_flops * steps_per_second),
            "waiting_share": self.waiting_seconds / self.seconds,
        }

    def performance(self) -> dict[str, float]:
        """Returns the entry `performance` of result.json."""
        model_flops = self._model_flops()
        performance = {"peak_memory": float(peak_memory()), "model_flops": model_flops}
        if self.steps:
            step_seconds = self.seconds / self.steps
            performance["step_seconds"] = step_seconds
            performance["tokens_per_second"] = self.tokens / step_seconds
            performance["share_of_matmul"] = self._share_of_matmul(model_flops / step_seconds)
        return performance

    def _model_flops(self) -> float:
        """Returns the FLOPs of a step's matrix products, without recomputation."""
        setup = without_recomputation(self.setup)
        if setup is self.setup and self.flops:
            return self.flops
        if not self.flops_without_recomputation:
            state = setup.state_shapes()
            self.flops_without_recomputation = matmul_flops(
                setup.step(), state, batch_shapes(setup)
            )
        return self.flops_without_recomputation

    def _share_of_matmul(self, flops_per_second: float) -> float:
        rate = matmul_rate(getattr(self.setup.model.spec, "dtype", float))
        return flops_per_second / (rate * self.setup.mesh.size) if rate else math.nan


def without_recomputation(setup: Setup) -> Setup:
    """Returns the setup of the same computation without remat and without a loss in chunks."""
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        setup = without_remat(setup)
    return setup._replace(loss_chunk=0) if setup.loss_chunk else setup
