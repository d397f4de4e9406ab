"""A callback that records the metrics of every step."""

from collections import defaultdict

from jaxformer.training.callbacks import Callback


class Recorder(Callback):
    """`metrics` has one entry a step; `steps` has the number of steps before it."""

    def __init__(self):
        self.steps, self.metrics = [], defaultdict(list)

    def on_dispatch(self, first_step, metrics, seconds, waiting_seconds):
        for name, values in metrics.items():
            self.metrics[name] += [*values]
        self.steps += range(first_step, first_step + len(values))
