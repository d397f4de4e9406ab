"""Table 6 of the MixiT paper (version B): similarity of the last layer's tokens against depth.

S is the axis of seeds, L of depths, K of statistics; in a network B is the axis of sequences, T of
tokens, N the width.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.core.errors import UserError
from jaxformer.interp import observables
from jaxformer.models.decoder import Block, DecoderSpec
from jaxformer.training.metrics import over_seeds
from theory.numerics import states_at

STATISTICS = {"covariance": observables.token_covariance, "cosine": observables.token_cosine}
NAMES = {"mixit": "MixiT", "random": "Random transformer"}
LABELS = (
    "mean covariance of two tokens",
    "mean cosine of two tokens",
    "dimensions filled by tokens",  # only in trained networks
)


def measure_covariance_depth(
    models: Mapping[str, Mapping[str, Any]],
    depths: Sequence[int],
    sequences: int,
    length: int,
    vocab: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures covariance and cosine of the last layer's tokens against depth, at initialisation.

    Tokens follow Zipf's law. Layer L of a deep network is the last layer of a network of depth L,
    so each seed draws one network. If the depth scales the branches, the layers of this network
    are scaled again for each depth.

    Args:
      models: The decoder fields of "random" and "mixit".
      depths: Increasing numbers of layers L.
      sequences: The number of sequences.
      length: Tokens per sequence.
      vocab: The number of symbols.
      seed: The first seed.
      n_seeds: The number of networks.
    """
    specs = check_covariance_depth(models, depths, sequences, length, vocab)
    keys = jax.random.split(jax.random.key(seed), n_seeds)
    values: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        by_depth_functions = []
        groups = [tuple(depths)]  # depths that share a network
        if spec.depth_alpha:  # the depth scales the branches: each depth has its own network
            groups = [(L,) for L in depths]
        for group in groups:
            group_spec = dataclasses.replace(spec, layers=group[-1])
            by_depth = functools.partial(_by_depth, group_spec, group, sequences)
            by_depth_functions.append(jax.jit(by_depth))
        values[name] = np.stack(
            [np.concatenate([by_depth(key) for by_depth in by_depth_functions]) for key in keys]
        )
    outcome = Outcome({"depths": depths, **values})
    add_numbers(outcome, values, depths)
    return outcome


def check_covariance_depth(
    models: Mapping[str, Mapping[str, Any]],
    depths: Sequence[int],
    sequences: int,
    length: int,
    vocab: int,
) -> dict[str, DecoderSpec]:
    """Returns the spec of one block of each model; raises if it cannot be built."""
    check(depths, sequences=sequences, length=length, vocab=vocab)
    sizes: dict[str, Any] = {"vocab_size": vocab, "length": length, "layers": 1}
    return {name: DecoderSpec(**fields, **sizes) for name, fields in models.items()}


def check(depths: Sequence[int], **counts: int) -> None:
    """Raises unless the depths increase and the counts are positive."""
    if not depths or depths[0] < 1 or any(b <= a for a, b in pairwise(depths)):
        raise UserError(f"figure.depths must increase from at least 1, got {tuple(depths)}.")
    for name, value in counts.items():
        least = 2 if name == "length" else 1  # two tokens make a pair
        if value < least:
            raise UserError(f"figure.{name} must be at least {least}, got {value}.")


def add_numbers(
    outcome: Outcome, values: Mapping[str, np.ndarray], depths: Sequence[int], prefix: str = ""
) -> None:
    """Adds the metrics of Table 6 to an outcome.

    Each statistic of each model has its value at each depth, and the growth of its logarithm from
    the first depth to the last. Each statistic has ln(random / MixiT), with paired seeds, at the
    depth where it is smallest, and its verdicts. Logarithms of numbers that are not positive are
    nan.

    Args:
      outcome: The outcome to extend.
      values: (seeds, depths, statistics) of each model.
      depths: Numbers of layers.
      prefix: The beginning of each metric's name.
    """
    metrics = outcome.metrics
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = {name: np.log(values_SxLxK) for name, values_SxLxK in values.items()}
    for s, statistic in enumerate(STATISTICS):
        for name, values_SxLxK in values.items():
            outcome.grid(f"{prefix}{statistic}/{name}/L={{}}", values_SxLxK[:, :, s].T, depths)
            growth_S = logs[name][:, -1, s] - logs[name][:, 0, s]
            metrics[f"{prefix}log_growth/{statistic}/{name}"] = over_seeds(growth_S)
        ratio_SxL = logs["random"][:, :, s] - logs["mixit"][:, :, s]
        smallest = int(np.argmin(ratio_SxL.mean(0)))
        metrics[f"{prefix}log_random_over_mixit/{statistic}"] = over_seeds(ratio_SxL[:, smallest])
    for name, value in verdict(values).items():
        metrics[f"verdict/{prefix}{name}"] = exact(value)


def verdict(values: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Returns two verdicts on the seed means of each statistic.

    "grows" is True if both models have more at the last depth than at the first, "mixit_below" if
    MixiT is below the random transformer at every depth.
    """
    verdicts = {}
    for s, statistic in enumerate(STATISTICS):
        random, mixit = (values[name][:, :, s].mean(0) for name in ("random", "mixit"))
        verdicts[f"{statistic}_grows"] = bool(random[-1] > random[0] and mixit[-1] > mixit[0])
        verdicts[f"{statistic}_mixit_below"] = bool((mixit < random).all())
    return verdicts


def _by_depth(spec: DecoderSpec, depths: tuple[int, ...], sequences: int, key) -> jax.Array:
    """Returns the (depths, statistics) of one random network, computed block by block."""
    key_data, key_embed, key = jax.random.split(key, 3)
    # Zipf's law: the symbol of rank r has a probability proportional to 1/r.
    logits_V = -jnp.log(jnp.arange(1, spec.vocab_size + 1, dtype=float))
    tokens_BxT = jax.random.categorical(key_data, logits_V, shape=(sequences, spec.length))
    n_rows = spec.vocab_size + (spec.length if spec.learned_positions else 0)
    # The embeddings of all symbols, then of all positions.
    table_ExN = spec.embed_init_std * jax.random.normal(key_embed, (n_rows, spec.width))
    h_BxTxN = table_ExN[tokens_BxT]
    if spec.learned_positions:
        h_BxTxN = h_BxTxN + table_ExN[None, spec.vocab_size :]
    block = Block(spec)

    def advance(l, h_BxTxN):
        params = block.init(jax.random.fold_in(key, l), h_BxTxN[:1], None)
        return block.apply(params, h_BxTxN, None)

    def read(h_BxTxN):
        return jnp.stack([f(h_BxTxN).mean() for f in STATISTICS.values()])

    return states_at(jnp.array(depths), advance, h_BxTxN, read)


def draw_covariance_depth(arrays):
    return draw({name: arrays[name] for name in NAMES}, arrays["depths"])


def draw(values: Mapping[str, np.ndarray], depths: np.ndarray, before=None):
    """Draws each statistic against depth; `before` is drawn dashed, as values before training."""
    figure, axes = plots.row(values["mixit"].shape[-1], (plots.PAGE, 2.1))
    for s, axis in enumerate(axes):
        for colour, (name, label) in zip(plots.COLOURS, NAMES.items()):
            style = {"color": colour, "label": label}
            plots.means(axis, depths, values[name][:, :, s], fmt="o-", **style)
            if before is not None:
                style |= {"label": f"{label}, at initialisation", "alpha": 0.5}
                plots.means(axis, depths, before[name][:, :, s], fmt="o--", **style)
        axis.set(xscale="log", yscale="log", xlabel="layers L", ylabel=LABELS[s])
        plots.value_ticks(axis, depths)
    growth = []
    for name in ("random", "mixit"):
        first, *_, last = values[name].swapaxes(0, 1)
        covariance, cosine, *_ = last.mean(0) / first.mean(0)
        growth.append(f"{NAMES[name]} covariance x{covariance:.3g}, cosine x{cosine:.2g}")
    verdicts = verdict(values)
    below = all(verdicts[f"{statistic}_mixit_below"] for statistic in STATISTICS)
    when = "At initialisation" if before is None else "After training"
    plots.add_finding(
        figure,
        f"{when}, from L = {depths[0]} to {depths[-1]}: {'; '.join(growth)}. "
        f"MixiT is {'' if below else 'not '}below the random transformer at every depth",
        f"Tokens of the last layer. Bars: standard errors over {len(values['mixit'])} seeds.",
        axes[0],
    )
    return figure


COVARIANCE_DEPTH = Figure(
    measure=measure_covariance_depth, draw=draw_covariance_depth, check=check_covariance_depth
)
