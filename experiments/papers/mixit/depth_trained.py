"""Table 6 of the MixiT paper (version B) after a short training on text: how similar are tokens?"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.fitting import fitted
from experiments.papers.mixit import depth
from experiments.papers.outcome import Outcome, Training, exact
from jaxformer.capture import capture
from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.data.tokens import find
from jaxformer.interp import observables
from jaxformer.models.decoder import decoder
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.text import CausalText
from jaxformer.training.alarm import above_unigram
from jaxformer.training.metrics import over_seeds


def measure_covariance_trained(
    models: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, Sequence[tuple[str, str]]],
    depths: Sequence[int],
    sequences: int,
    length: int,
    text: str,
    training: Training,
) -> Outcome:
    """Covariance and cosine of the last layer's tokens against depth, before and after training.

    One network a depth and seed, trained under `rules` to name the next symbol of the text, or the
    next token if `text` is a folder of experiments/prepare.py; of several learning rates the one
    with the lowest final loss counts. Measured on held-out text. `dimensions` are the directions
    that the tokens' states fill: few where a network works in a subspace of its width.
    """
    _, batch_size, steps, _, n_seeds = training
    depth.check(depths, steps=steps, batch_size=batch_size, sequences=sequences, length=length)
    is_prepared = bool(text) and find(text).is_dir()
    task = (
        NextToken(tokens=text, window=length)
        if is_prepared
        else CausalText(text=text, window=length)
    )
    factor = optim.schedule("cosine", steps, min(20, steps))
    shape = (n_seeds, len(depths), len(depth.STATISTICS) + 1)
    values = {when: {name: np.empty(shape) for name in models} for when in ("before", "after")}
    metrics, baselines, alarms = {}, {}, []
    for name, fields in models.items():
        partition = Partition([(pattern, label) for pattern, label in rules[name]])
        tx = optim.optimizer(partition, {"train": optim.AdamW()}, 1.0, factor)
        precision = {"dtype": jnp.float32, "param_dtype": jnp.float32}
        for k, L in enumerate(depths):
            sizes = {"vocab_size": task.vocab_size, "length": length, "layers": L}
            model = decoder(**fields, **sizes, **precision)
            run = fitted(model, task, partition, tx, test_size=sequences, **training.arguments())
            best, last_S = training.best(run.losses_RxSxT, f"{name} with {L} layers")
            chosen = slice(best * n_seeds, (best + 1) * n_seeds)
            for when, params in (("before", run.initial), ("after", run.params)):
                mine = jax.tree.map(lambda x, chosen=chosen: x[chosen], params)
                values[when][name][:, k] = _measure(model, L, mine, run.test.inputs)
            metrics[f"loss/{name}/L={L}"] = over_seeds(last_S)
            baselines = task.baselines(run.test)
            losses = dict(enumerate(last_S, training.seed))
            what = f"{name} with {L} layers: the loss"
            alarms += filter(None, [above_unigram(what, losses, baselines["unigram_loss"])])
            raw, cosine, filled = values["after"][name][:, k].mean(0)
            words = f"loss {last_S.mean():.3f}, covariance {raw:.4g}, cosine {cosine:.3f}"
            words += f", {filled:.3g} dimensions"
            print(f"{name}, L = {L}: {words}", flush=True)
    arrays = {"depths": depths}
    for when, found in values.items():
        arrays |= {f"{when}/{name}": array for name, array in found.items()}
        where = "" if when == "after" else "before/"
        filled = {name: array[:, :, -1] for name, array in found.items()}
        metrics |= dimensions(filled, depths, where)
        metrics |= depth.numbers(found, depths, where)
        verdict = depth.verdict(found)
        metrics |= {f"verdict/{where}{name}": exact(value) for name, value in verdict.items()}
    return Outcome(arrays, metrics, baselines, alarms=alarms)


def dimensions(filled: Mapping[str, np.ndarray], depths: Sequence[int], where: str) -> dict:
    """Over seeds: the directions filled at each depth, and the growth of their logarithm."""
    metrics = {}
    for name, filled_SxL in filled.items():
        for L, filled_S in zip(depths, filled_SxL.T, strict=True):
            metrics[f"{where}dimensions/{name}/L={L}"] = over_seeds(filled_S)
        growth_S = np.log(filled_SxL[:, -1]) - np.log(filled_SxL[:, 0])
        metrics[f"{where}log_growth/dimensions/{name}"] = over_seeds(growth_S)
    return metrics


def draw_covariance_trained(arrays):
    before, after = (
        {name: arrays[f"{when}/{name}"] for name in depth.NAMES} for when in ("before", "after")
    )
    return depth.draw(after, arrays["depths"], before)


def _measure(model, layers: int, params, tokens_BxT) -> np.ndarray:
    """(members, statistics and dimensions) of the last block's states."""
    name = f"block_{layers - 1}/states"

    def one(params):
        states = capture(model, params, tokens_BxT, names=[name])[name]
        pairs = [f(states).mean() for f in depth.STATISTICS.values()]
        return jnp.stack([*pairs, observables.dimensions(states)])

    with jax.enable_x64(False):
        return np.asarray(jax.jit(lambda p: jax.lax.map(one, p))(params))
