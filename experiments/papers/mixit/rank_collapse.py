"""Rank collapse and gradients in the limit of Theorem 2.1 of the MixiT paper.

The theorem's layer maps the hidden states h, (m, n), of m tokens to (I + A) h W. W and the mixing A
are random and fixed. tau is depth / width. Rank collapse means that all tokens become parallel, so
that the absolute correlation of two tokens is 1.

S is the axis of networks or paths, K of times, L of layers, M of tokens, N the width. There is one
head H.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome
from jaxformer.models.attention import mix, mixing_matrix
from jaxformer.training.metrics import Mean, over_seeds
from theory import covariance_sde as cs

GROUPS = 20  # of networks or paths: the spread of their medians gives the error of a median
NETWORKS_AT_ONCE = 50  # networks in memory at the same time


def measure_rank_collapse(
    length: int,
    width: int,
    times: Sequence[float],
    paths: int,
    steps: int,
    networks: int,
    seed: int,
) -> Outcome:
    """Measures how parallel tokens are, and how large the gradient is, against tau.

    Args:
      length: The number of tokens m. They start with a correlation of .5.
      width: The width n of the networks.
      times: Increasing values of tau, in networks rounded to whole layers.
      paths: Paths of the stochastic differential equation.
      steps: Steps of a path.
      networks: Random networks.
      seed: The seed of paths and networks.
    """
    start_MxM = 0.5 * jnp.eye(length) + 0.5
    layers = [round(tau * width) for tau in times]
    keys = jax.random.split(jax.random.key(seed), 3)
    solved = cs.predict(keys[0], start_MxM, times[-1], paths, steps, times)
    measured = cs.measure(keys[1], start_MxM, width, layers[-1], networks, layers)
    log_size_SxL = _gradient_sizes(jax.random.split(keys[2], networks), length, width, layers[-1])
    log_size_SxK = np.asarray(log_size_SxL)[:, np.array(layers) - 1]
    outcome = Outcome({"times": times, "log10_gradient": log_size_SxK})
    for name, phi in (("equation", solved), ("networks", measured)):
        correlation_SxK = np.abs(np.asarray(cs.correlation(phi)))
        outcome.arrays[name] = correlation_SxK
        for tau, values_S in zip(times, correlation_SxK.T, strict=True):
            outcome.metrics[f"correlation/{name}/tau={tau:g}"] = _median(values_S)
    outcome.grid("log10_gradient/tau={:g}", log_size_SxK.T, times)
    return outcome


def _median(values_S: np.ndarray) -> Mean:
    """Returns the mean of the medians of `GROUPS` groups, and its standard error."""
    return over_seeds([np.median(group) for group in np.array_split(values_S, GROUPS)])


@partial(jax.jit, static_argnames=("length", "width", "layers"))
def _gradient_sizes(keys_S: jax.Array, length: int, width: int, layers: int) -> jax.Array:
    """Returns log10 of the gradient's norm, relative to the output, after each layer backwards.

    The loss is the inner product of the output with a random matrix. Layers are independent and
    linear, so the gradient after k layers backwards has the distribution of a network of k layers.

    Returns:
      (S, layers) for S networks.
    """
    std_H = jnp.full((1,), (width * length) ** -0.5)

    def backwards(gradient_MxN, key):
        value_key, mixing_key = jax.random.split(key)
        value_NxN = jax.random.normal(value_key, (width, width)) / width**0.5
        mixing_HxMxM = mixing_matrix(mixing_key, 1, length, std_H, causal=False)

        def layer(hidden_MxN):
            return mix(mixing_HxMxM, (hidden_MxN @ value_NxN)[:, None])[:, 0]

        (gradient_MxN,) = jax.linear_transpose(layer, gradient_MxN)(gradient_MxN)
        return gradient_MxN, jnp.log10(jnp.linalg.norm(gradient_MxN))

    def network(key):
        loss_key, *layer_keys = jax.random.split(key, layers + 1)
        gradient_MxN = jax.random.normal(loss_key, (length, width))
        log_size_L = jax.lax.scan(backwards, gradient_MxN, jnp.stack(layer_keys))[1]
        return log_size_L - jnp.log10(jnp.linalg.norm(gradient_MxN))

    return jax.lax.map(network, keys_S, batch_size=min(NETWORKS_AT_ONCE, len(keys_S)))


def draw_rank_collapse(arrays, length: int, width: int):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.2))
    times = arrays["times"]
    low, middle, high = np.quantile(arrays["equation"], (0.25, 0.5, 0.75), axis=0)
    plots.band(left, times, low, middle, high, plots.COLOURS[0], "equation, with quartiles")
    medians = np.median(arrays["networks"], 0)
    left.plot(times, medians, "o", color=plots.COLOURS[1], label=f"networks of width {width}")
    left.set(xscale="log", ylim=(0, 1.02), xlabel="depth / width", ylabel="|correlation|, median")
    plots.label_panel(left, "two tokens")
    plots.means(right, times, arrays["log10_gradient"], fmt="o-", color=plots.COLOURS[1])
    right.set(xscale="log", xlabel="depth / width", ylabel=r"$\log_{10}$ of the ratio")
    plots.label_panel(right, "norm of the gradient: input over output")
    plots.add_finding(
        figure,
        f"The equation of Theorem 2.1 collapses: at depth / width = {times[-1]:g} the median "
        f"|correlation| of two tokens is {middle[-1]:.3f}",
        f"m = {length} tokens that start with a correlation of .5.",
        left,
    )
    return figure


RANK_COLLAPSE = Figure(measure=measure_rank_collapse, draw=draw_rank_collapse)
