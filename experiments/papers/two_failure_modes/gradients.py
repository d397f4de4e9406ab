"""Gradients of deep encoders at initialisation in the regimes of arXiv 2505.24333.

The paper says that rank collapse makes gradients vanish. The work that it cites says this of the
gradients of queries and keys only. This module measures both kinds.

Tokens of a deep encoder become alike block by block, so "under rank collapse" is a statement about
the blocks whose input tokens are alike already. One norm over all blocks would hide it: the first
blocks, where tokens differ, have most of the gradient.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome
from experiments.papers.two_failure_modes.random_encoder import random_encoder
from jaxformer.models.encoder import EncoderSpec
from jaxformer.models.layers import rms_normalise
from jaxformer.models.transformer import TransformerBlock
from theory.signal.measurement import mean_cosine

COLLAPSE = "rank_collapse"  # the regime whose tokens become alike
ALIKE = 0.97  # the mean cosine of two tokens above which a block's input counts as collapsed


class Gradients(NamedTuple):
    """Norms of the gradients of one network, block by block, and cosines of its tokens."""

    cosine_L: jax.Array  # mean cosine of two tokens at the input of each block
    stream_L: jax.Array  # of the input of each block
    queries_keys_L: jax.Array  # of the kernels of queries and keys together
    values_L: jax.Array  # of the kernel of the values
    output: jax.Array  # of the output
    cosine: jax.Array  # mean cosine of two output tokens


def measure_gradients(
    regimes: Mapping[str, tuple[float, float]],
    layers: int,
    length: int,
    width: int,
    heads: int,
    sigma2: float,
    sigma_b2: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures the gradient of a random linear loss in random encoders with random inputs.

    Args:
      regimes: (beta, alpha_SA) of each regime.
      layers: The depth L.
      length: The number of tokens.
      width: The width N.
      heads: The number of heads.
      sigma2: The variance of values and of the MLP's weights, times the fan-in.
      sigma_b2: The variance of the biases.
      seed: The seed of the first network.
      n_seeds: The number of networks.
    """
    keys_S = jax.vmap(jax.random.key)(np.arange(seed, seed + n_seeds))
    outcome, gradients = Outcome(), {}
    for name, (beta, alpha_sa) in regimes.items():
        spec = random_encoder(length, width, layers, heads, beta, alpha_sa, sigma2, sigma_b2)
        gradients[name] = jax.tree.map(lambda x: np.asarray(x, float), _gradients(keys_S, spec))
    is_alike_L = collapsed_blocks(gradients[COLLAPSE].cosine_L)
    outcome.scalar("collapsed_blocks", np.full(n_seeds, is_alike_L.sum()))
    for name, measured in gradients.items():
        stream_SxL = np.log10(measured.stream_L / measured.output[:, None])
        queries_keys_S, values_S = (
            np.log10(np.linalg.norm(norm_SxL, axis=1))
            for norm_SxL in (measured.queries_keys_L, measured.values_L)
        )
        outcome.scalar(f"cosine/{name}", measured.cosine)
        outcome.scalar(f"log10_stream/{name}", stream_SxL[:, 0])
        outcome.scalar(f"slope/{name}", np.polyfit(np.arange(layers), stream_SxL.T, 1)[0])
        outcome.scalar(f"log10_queries_keys/{name}", queries_keys_S)
        alike_S = np.linalg.norm(measured.queries_keys_L[:, is_alike_L], axis=1)
        outcome.scalar(f"log10_queries_keys_collapsed/{name}", np.log10(alike_S))
        outcome.scalar(f"log10_queries_keys_over_values/{name}", queries_keys_S - values_S)
        outcome.arrays[f"stream/{name}"] = stream_SxL
        outcome.arrays[f"queries_keys/{name}"] = np.log10(measured.queries_keys_L)
    return outcome


def collapsed_blocks(cosine_SxL: np.ndarray) -> np.ndarray:
    """Whether each block's input tokens are alike (ALIKE), on average over the networks.

    The last block stands for all of a network that is too shallow to collapse.
    """
    is_alike_L = cosine_SxL.mean(0) > ALIKE
    is_alike_L[-1] = True
    return is_alike_L


@partial(jax.jit, static_argnames="spec")
def _gradients(keys_S: jax.Array, spec: EncoderSpec) -> Gradients:
    """Returns the gradients of each network, with a leading axis of S networks."""
    block = TransformerBlock(spec.block)
    shape = (1, spec.length, spec.width)

    def network(key):
        input_key, loss_key, *block_keys = jax.random.split(key, spec.layers + 2)
        x_1xTxN = rms_normalise(jax.random.normal(input_key, shape, spec.dtype))
        direction_1xTxN = jax.random.normal(loss_key, shape, spec.dtype)
        params_L = jax.vmap(lambda key: block.init(key, x_1xTxN)["params"])(jnp.stack(block_keys))

        def loss(params_L, shifts_Lx1xTxN):
            # The gradient with respect to a zero shift is that of the block's input.
            def step(x_1xTxN, layer):
                params, shift_1xTxN = layer
                out_1xTxN = block.apply({"params": params}, x_1xTxN + shift_1xTxN)
                return out_1xTxN, mean_cosine(x_1xTxN[0])

            out_1xTxN: Any
            out_1xTxN, cosine_L = jax.lax.scan(step, x_1xTxN, (params_L, shifts_Lx1xTxN))
            return jnp.vdot(out_1xTxN, direction_1xTxN), (out_1xTxN, cosine_L)

        shifts_Lx1xTxN = jnp.zeros((spec.layers, *shape), spec.dtype)
        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradients_L, stream_Lx1xTxN), (out_1xTxN, cosine_L) = differentiate(
            params_L, shifts_Lx1xTxN
        )
        query_L, key_L, value_L = (
            _norms(gradients_L["attn"][name]["kernel"]) for name in ("query", "key", "value")
        )
        return Gradients(
            cosine_L,
            _norms(stream_Lx1xTxN),
            jnp.hypot(query_L, key_L),
            value_L,
            jnp.linalg.norm(direction_1xTxN),
            mean_cosine(out_1xTxN[0]),
        )

    return jax.lax.map(network, keys_S)


def _norms(gradient_L: jax.Array) -> jax.Array:
    """Returns the norm of each entry of the first axis."""
    return jnp.linalg.norm(gradient_L.reshape(len(gradient_L), -1), axis=1)


def draw_gradients(arrays, regimes: Mapping[str, tuple[float, float]], layers: int, width: int):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.2))
    blocks = np.arange(1, layers + 1)
    for colour, (name, (beta, alpha_sa)) in zip(plots.COLOURS, regimes.items()):
        label = f"{name.replace('_', ' ')}: " + rf"$\beta={beta:g}$, $\alpha_{{SA}}={alpha_sa:g}$"
        for axis, kind in ((left, "stream"), (right, "queries_keys")):
            values_SxL = arrays[f"{kind}/{name}"]
            low, high = np.quantile(values_SxL, (0.05, 0.95), axis=0)
            plots.band(axis, blocks, low, values_SxL.mean(0), high, colour, label)
    left.set(xlabel="block", ylabel=r"$\log_{10}$ of the norm")
    right.set(xlabel="block")
    plots.label_panel(left, "input of the block, over the output")
    plots.label_panel(right, "kernels of queries and keys")
    collapsed, trainable = (
        arrays[f"log10_queries_keys_collapsed/{name}"].mean() for name in (COLLAPSE, "trainable")
    )
    plots.add_finding(
        figure,
        f"In blocks whose tokens are alike (cosine above {ALIKE}) the gradient of queries and keys "
        f"is {10 ** (trainable - collapsed):.3g} times smaller than in a trainable network",
        f"{len(values_SxL)} random encoders of width {width}; bands: 5 to 95 % of them.",
        left,
    )
    return figure


GRADIENTS = Figure(measure=measure_gradients, draw=draw_gradients)
