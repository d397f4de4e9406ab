"""Attention and depth at initialisation with weights that are not Gaussian (arXiv 2505.24333).

The paper says that its results depend only on the variance of the weights, and that the critical
beta does not depend on hyperparameters. Scores have the standard deviation beta sqrt(ln T). Axes: S
networks, L layers, T tokens, N width, G the width of a head.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome
from experiments.papers.two_failure_modes.lengths import crossing_std
from experiments.papers.two_failure_modes.random_encoder import random_encoder
from jaxformer.models.encoder import EncoderSpec
from jaxformer.models.layers import rms_normalise
from jaxformer.models.transformer import TransformerBlock
from theory.signal.measurement import mean_cosine

Law = Callable[[jax.Array], jax.Array]  # maps standard normal numbers to another distribution
# Each law has mean 0 and variance 1.
LAWS: Mapping[str, Law] = {
    "normal": lambda z: z,
    "uniform": lambda z: 3**0.5 * jax.scipy.special.erf(z / 2**0.5),
    "signs": jnp.sign,
}


def measure_weight_laws(
    sizes: Sequence[tuple[int, int]],
    length: int,
    panels: Sequence[tuple[int, float, float]],
    tokens: int,
    width: int,
    sigma2: float,
    sigma_b2: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures beta at which one head condenses, and the cosine of tokens in deep encoders.

    Args:
      sizes: (width, heads) of the network of each head.
      length: The number of tokens of a head.
      panels: (layers, beta, alpha_SA) of each deep encoder.
      tokens: The number of tokens of the deep encoders.
      width: The width N of deep encoders and of the heads that compare laws. They have one head.
      sigma2: The variance of values and of the MLP's weights, times the fan-in.
      sigma_b2: The variance of the biases.
      seed: The seed of the first network.
      n_seeds: The number of networks.
    """
    keys_S = jax.vmap(jax.random.key)(np.arange(seed, seed + n_seeds))
    outcome = Outcome()
    heads = {f"width={n}/heads={h}": (n, h, "normal") for n, h in sizes}
    heads |= {f"law={law}": (width, 1, law) for law in LAWS}
    for name, (head_width, n_heads, law) in heads.items():
        outcome.scalar(
            f"crossing_beta/{name}",
            crossing_betas(keys_S, length, head_width, n_heads, LAWS[law]),
        )
    for layers, beta, alpha_sa in panels:
        spec = random_encoder(tokens, width, layers, 1, beta, alpha_sa, sigma2, sigma_b2)
        for law, function in LAWS.items():
            cosine_SxL = deep_cosines(keys_S, spec, function)
            outcome.arrays[f"cosine_by_layer/{layers}/{law}"] = cosine_SxL
            outcome.scalar(f"cosine/layers={layers}/law={law}", cosine_SxL[:, -1])
    return outcome


def crossing_betas(keys_S: jax.Array, length: int, width: int, heads: int, law: Law) -> np.ndarray:
    """Returns beta at which the entropy of a random head is half of ln T, (S,).

    The tokens are independent, so that the paper's critical beta is sqrt(2).
    """
    scores = map(partial(_unit_scores, length=length, width=width, heads=heads, law=law), keys_S)
    return np.array([crossing_std(np.asarray(s, float)) for s in scores]) / np.log(length) ** 0.5


@partial(jax.jit, static_argnames=("length", "width", "heads", "law"))
def _unit_scores(key, length: int, width: int, heads: int, law: Law) -> jax.Array:
    """Returns the scores of a head of an untrained network, of variance 1, (T, T)."""
    token_key, *kernel_keys = jax.random.split(key, 3)
    normal = partial(jax.random.normal, dtype=jnp.float32)
    x_TxN = rms_normalise(normal(token_key, (length, width)))
    kernels = (law(normal(k, (width, width // heads))) / width**0.5 for k in kernel_keys)
    q_TxG, k_TxG = (x_TxN @ kernel for kernel in kernels)
    return q_TxG @ k_TxG.T / (width // heads) ** 0.5


@partial(jax.jit, static_argnames=("spec", "law"))
def deep_cosines(keys_S: jax.Array, spec: EncoderSpec, law: Law) -> jax.Array:
    """Returns the mean cosine of two tokens after each block, (S, L).

    Inputs are independent, biases are normal, and the entries of all matrices have the given law.
    """
    block = TransformerBlock(spec.block)

    def network(key):
        input_key, *block_keys = jax.random.split(key, spec.layers + 1)
        shape = (1, spec.length, spec.width)
        x_1xTxN = rms_normalise(jax.random.normal(input_key, shape, spec.dtype))

        def step(x_1xTxN, key):
            params = block.init(key, x_1xTxN)["params"]
            params = jax.tree_util.tree_map_with_path(partial(_with_law, law=law), params)
            out_1xTxN: Any = block.apply({"params": params}, x_1xTxN)
            return out_1xTxN, mean_cosine(out_1xTxN[0])

        return jax.lax.scan(step, x_1xTxN, jnp.stack(block_keys))[1]

    return jax.lax.map(network, keys_S)


def _with_law(path, values: jax.Array, law: Law) -> jax.Array:
    """Returns a normal matrix with entries of another law and the same variance."""
    if path[-1].key != "kernel":
        return values
    std = jnp.sqrt(jnp.mean(values**2))
    return std * law(values / std)


def draw_weight_laws(
    arrays, sizes: Sequence[tuple[int, int]], panels: Sequence[tuple[int, float, float]]
):
    figure, (left, *axes) = plots.row(1 + len(panels), (plots.PAGE, 2.2))
    labels = {f"width={n}/heads={h}": f"{n}, {h}" for n, h in sizes}
    labels |= {f"law={law}": law for law in LAWS}
    for x, name in enumerate(labels):
        values_S = arrays[f"crossing_beta/{name}"]
        left.plot(np.full(len(values_S), x), values_S, "o", ms=2, color=plots.COLOURS[0])
    left.set_xticks(range(len(labels)), labels.values(), rotation=60, ha="right")
    left.set(ylabel=r"$\beta$", ylim=(0, None))
    plots.set_title(left, r"entropy is half of $\ln T$: width, heads; law")
    for axis, (layers, beta, alpha) in zip(axes, panels, strict=True):
        for colour, dashes, law in zip(plots.COLOURS, ("-", "--", ":"), LAWS):
            cosine_L = arrays[f"cosine_by_layer/{layers}/{law}"].mean(0)
            axis.plot(np.arange(1, layers + 1), cosine_L, dashes, color=colour, label=law)
        axis.set(xlabel="layer", ylim=(0, 1.03))
        title = rf"cosine of two tokens, $\beta={beta:g}$, $\alpha_{{SA}}={alpha:g}$"
        plots.set_title(axis, title)
    layers = panels[-1][0]
    ends = [arrays[f"cosine_by_layer/{layers}/{law}"][:, -1].mean() for law in LAWS]
    values = ", ".join(f"{end:.3f}" for end in ends)
    plots.add_finding(
        figure,
        f"After {layers} layers tokens have the cosine {values} with normal, uniform and binary "
        "weights of one variance",
        f"Dots: {len(values_S)} random heads; lines: means over as many encoders.",
        axes[-1],
    )
    return figure


WEIGHT_LAWS = Figure(measure=measure_weight_laws, draw=draw_weight_laws)
