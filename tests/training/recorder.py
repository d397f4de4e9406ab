"""A callback that records the metrics of every step."""

from collections import defaultdict

from jaxformer.training.callbacks import Callback


class Recorder(Callback):
    """`metrics` has one entry per step; `steps` has the number of steps before it."""

    def __init__(self):
        self.steps, self.metrics = [], defaultdict(list)

    def on_dispatch(self, dispatch):
        for name, values in dispatch.metrics.items():
            self.metrics[name] += [*values]
        self.steps += range(dispatch.first_step, dispatch.first_step + dispatch.steps)
