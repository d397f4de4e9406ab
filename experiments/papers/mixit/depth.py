"""Table 6 of the MixiT paper (version B): how similar are the last layer's tokens, by depth?"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Outcome, exact
from jaxformer.core.errors import UserError
from jaxformer.interp import observables
from jaxformer.models.decoder import Block, DecoderSpec
from jaxformer.training.metrics import Mean, over_seeds
from theory.numerics import states_at

STATISTICS = {"covariance": observables.token_covariance, "cosine": observables.token_cosine}
NAMES = {"mixit": "MixiT", "random": "Random transformer"}
LABELS = (
    "mean covariance of two tokens",
    "mean cosine of two tokens",
    "dimensions filled by tokens",  # of trained networks alone
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
    """Covariance and cosine of the last layer's tokens against depth, at initialisation.

    `models` maps "random" and "mixit" to the fields of a decoder. Tokens follow Zipf's law. Layer L
    of one deep network is the last layer of a network of depth L, so each seed draws one network;
    if branches are scaled by the depth, the layers of that one are scaled anew for each depth.
    """
    specs = check_covariance_depth(models, depths, sequences, length, vocab)
    keys = jax.random.split(jax.random.key(seed), n_seeds)
    values: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        runs = []
        for some in [(L,) for L in depths] if spec.depth_alpha else [tuple(depths)]:
            sized = dataclasses.replace(spec, layers=some[-1])
            runs.append(jax.jit(functools.partial(_by_depth, sized, some, sequences)))
        values[name] = np.stack([np.concatenate([run(key) for run in runs]) for key in keys])
    metrics = numbers(values, depths)
    metrics |= {f"verdict/{name}": exact(value) for name, value in verdict(values).items()}
    return Outcome({"depths": depths, **values}, metrics)


def check_covariance_depth(
    models: Mapping[str, Mapping[str, Any]],
    depths: Sequence[int],
    sequences: int,
    length: int,
    vocab: int,
) -> dict[str, DecoderSpec]:
    """One block of each model; raises if it cannot be built, or the depths make no sense."""
    check(depths, sequences=sequences, length=length, vocab=vocab)
    sizes: dict[str, Any] = {"vocab_size": vocab, "length": length, "layers": 1}
    return {name: DecoderSpec(**fields, **sizes) for name, fields in models.items()}


def check(depths: Sequence[int], **counts: int) -> None:
    """Increasing depths and positive counts, or one line that says which is not."""
    if not depths or depths[0] < 1 or any(b <= a for a, b in pairwise(depths)):
        raise UserError(f"figure.depths must increase from at least 1, got {tuple(depths)}.")
    for name, value in counts.items():
        least = 2 if name == "length" else 1  # two tokens make a pair
        if value < least:
            raise UserError(f"figure.{name} must be at least {least}, got {value}.")


def numbers(values: Mapping[str, np.ndarray], depths: Sequence[int], where: str = "") -> dict:
    """Over seeds: each statistic, its growth from the first depth to the last, and MixiT's lack.

    Growth is that of the logarithm; `below` is the least of ln(random / MixiT) over the depths,
    seeds paired. A statistic that is not positive has no logarithm: nan.
    """
    metrics: dict[str, Mean] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = {name: np.log(found) for name, found in values.items()}
    for s, statistic in enumerate(STATISTICS):
        for name, found in values.items():
            for k, L in enumerate(depths):
                metrics[f"{where}{statistic}/{name}/L={L}"] = over_seeds(found[:, k, s])
            growth_S = logs[name][:, -1, s] - logs[name][:, 0, s]
            metrics[f"{where}log_growth/{statistic}/{name}"] = over_seeds(growth_S)
        below_SxL = logs["random"][:, :, s] - logs["mixit"][:, :, s]
        least = int(np.argmin(below_SxL.mean(0)))
        metrics[f"{where}log_random_over_mixit/{statistic}"] = over_seeds(below_SxL[:, least])
    return metrics


def verdict(values: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Growth from the first to the last depth, and MixiT below the random one at every depth."""
    found = {}
    for s, statistic in enumerate(STATISTICS):
        random, mixit = (values[name][:, :, s].mean(0) for name in ("random", "mixit"))
        found[f"{statistic}_grows"] = bool(random[-1] > random[0] and mixit[-1] > mixit[0])
        found[f"{statistic}_mixit_below"] = bool((mixit < random).all())
    return found


def _by_depth(spec: DecoderSpec, depths: tuple[int, ...], sequences: int, key) -> jax.Array:
    """(depths, statistics) of a network drawn from `key`, one block after the other."""
    key_data, key_embed, key = jax.random.split(key, 3)
    logits_V = -jnp.log(jnp.arange(1, spec.vocab_size + 1, dtype=float))  # Zipf: rank r has 1/r
    tokens_BxT = jax.random.categorical(key_data, logits_V, shape=(sequences, spec.length))
    rows_E = spec.vocab_size + (spec.length if spec.learned_positions else 0)
    table_ExN = spec.embed_init_std * jax.random.normal(key_embed, (rows_E, spec.width))
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
    """Each statistic against depth; `before`, the same before training, in dashes."""
    figure, axes = plots.row(values["mixit"].shape[-1], (plots.PAGE, 2.1))
    for s, axis in enumerate(axes):
        for colour, (name, label) in zip(plots.COLOURS, NAMES.items()):
            look = {"color": colour, "label": label}
            plots.means(axis, depths, values[name][:, :, s], fmt="o-", **look)
            if before is not None:
                look |= {"label": f"{label}, at initialisation", "alpha": 0.5}
                plots.means(axis, depths, before[name][:, :, s], fmt="o--", **look)
        axis.set(xscale="log", yscale="log", xlabel="layers L", ylabel=LABELS[s])
        axis.set_xticks(depths, [str(L) for L in depths])
        axis.set_xticks([], minor=True)
    grows = []
    for name in ("random", "mixit"):
        first, *_, last = values[name].swapaxes(0, 1)
        covariance, cosine, *_ = last.mean(0) / first.mean(0)
        grows.append(f"{NAMES[name]} covariance x{covariance:.3g}, cosine x{cosine:.2g}")
    found = verdict(values)
    below = all(found[f"{statistic}_mixit_below"] for statistic in STATISTICS)
    when = "At initialisation" if before is None else "After training"
    plots.headed(
        figure,
        f"{when}, from L = {depths[0]} to {depths[-1]}: {'; '.join(grows)}. "
        f"MixiT is {'' if below else 'not '}below the random transformer at every depth",
        f"Tokens of the last layer. Bars: standard errors over {len(values['mixit'])} seeds.",
        axes[0],
    )
    return figure
