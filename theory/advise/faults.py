"""Names what is wrong with a network at initialisation: the numbers that are out of range."""

from typing import NamedTuple

import numpy as np

from jaxformer.training.ranges import MAX_GRADIENT_RATIO, least_keys
from theory.advise.question import Question
from theory.signal.backward import Gradients, gradients
from theory.signal.recursion import Layers, layers_of, trace


class Start(NamedTuple):
    """The signal of a network at initialisation."""

    layers: Layers
    gradient: Gradients
    faults: tuple[str, ...]  # () if the network is trainable

    @property
    def keys(self) -> np.ndarray:
        """The number of keys that a query sees, by layer."""
        return np.exp(self.layers.entropy)

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.layers.norm).all() and np.isfinite(self.gradient.ratio))


def examine(question: Question) -> Start:
    """Computes the signal of a network and names its faults."""
    net = question.architecture
    with np.errstate(over="ignore", invalid="ignore"):
        forward_pass = trace(net, *question.inputs)
        layers, gradient = layers_of(forward_pass), gradients(net, forward_pass)
        has_signal = layers.norm[0] > 0 and net.sigma_v2 + net.sigma_2_squared > 0
        is_faulty = {
            "no signal": not has_signal,
            "rank collapse": layers.cosine[-1] > 1 - question.epsilon,
            "entropy collapse": np.exp(layers.entropy).min() < least_keys(question.length),
            "vanishing gradients": gradient.ratio < 1 / MAX_GRADIENT_RATIO,
            "exploding gradients": gradient.ratio > MAX_GRADIENT_RATIO,
        }
    return Start(layers, gradient, tuple(name for name, present in is_faulty.items() if present))
