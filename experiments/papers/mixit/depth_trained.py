"""Table 6 of the MixiT paper (version B) after a short training on text: how similar are tokens?"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.mixit import depth
from experiments.shared.fitting import fitted
from experiments.shared.outcome import Outcome, exact
from jaxformer import optim
from jaxformer.capture import capture
from jaxformer.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.partition import Partition
from jaxformer.tasks.text import CausalText
from jaxformer.training.metrics import over_seeds


def covariance_trained(
    models: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, Sequence[tuple[str, str]]],
    depths: Sequence[int],
    sequences: int,
    length: int,
    text: str,
    learning_rates: Sequence[float],
    batch_size: int,
    steps: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Covariance and cosine of the last layer's tokens against depth, before and after training.

    One network a depth and seed, trained under `rules` to name the next symbol of the text; of
    several learning rates the one with the lowest final loss counts. Measured on held-out text.
    """
    depth.check(depths, steps=steps, batch_size=batch_size, sequences=sequences, length=length)
    task = CausalText(text=text, window=length)
    factor = optim.schedule("cosine", steps, min(20, steps))
    shape = (n_seeds, len(depths), len(depth.STATISTICS))
    values = {when: {name: np.empty(shape) for name in models} for when in ("before", "after")}
    metrics = {}
    for name, fields in models.items():
        partition = Partition([(pattern, label) for pattern, label in rules[name]])
        tx = optim.optimizer(partition, {"train": optim.AdamW()}, 1.0, factor)
        for k, L in enumerate(depths):
            model = decoder(
                **fields, vocab_size=task.vocab_size, length=length, layers=L,
                dtype=jnp.float32, param_dtype=jnp.float32,
            )  # fmt: skip
            run = fitted(
                model, task, partition, tx, rates=learning_rates, seed=seed, n_seeds=n_seeds,
                steps=steps, batch_size=batch_size, test_size=sequences,
            )  # fmt: skip
            last_RxS = run.losses_RxSxT[..., -10:].mean(-1)
            means_R = last_RxS.mean(-1)  # a rate at which one seed diverges is out
            if np.isnan(means_R).all():
                raise UserError(
                    f"{name} with {L} layers diverges at every learning rate of "
                    f"{[*learning_rates]}. Try lower --config.figure.learning_rates."
                )
            best = int(np.nanargmin(means_R))
            chosen = slice(best * n_seeds, (best + 1) * n_seeds)
            for when, params in (("before", run.initial), ("after", run.params)):
                mine = jax.tree.map(lambda x, chosen=chosen: x[chosen], params)
                values[when][name][:, k] = _measure(model, L, mine, run.test.inputs)
            metrics[f"loss/{name}/L={L}"] = over_seeds(last_RxS[best])
            raw, cosine = values["after"][name][:, k].mean(0)
            print(f"{name}, L = {L}: loss {last_RxS[best].mean():.3f}, covariance {raw:.4g}, "
                  f"cosine {cosine:.3f}", flush=True)  # fmt: skip
    verdicts = {}
    for when, found in values.items():
        metrics |= depth.numbers(found, depths, "" if when == "after" else "before/")
        verdicts[when] = depth.verdict(found)
    metrics |= {f"verdict/{name}": exact(value) for name, value in verdicts["after"].items()}
    metrics |= {f"verdict/before/{n}": exact(value) for n, value in verdicts["before"].items()}
    arrays = {"depths": depths} | {
        f"{when}/{name}": v for when, found in values.items() for name, v in found.items()
    }
    figure = depth.figure(values["after"], depths, verdicts["after"], values["before"])
    return Outcome(figure, arrays, metrics)


def _measure(model, layers: int, params, tokens_BxT) -> np.ndarray:
    """(members, statistics) of the last block's states."""
    name = f"block_{layers - 1}/states"

    def one(params):
        states = capture(model, params, tokens_BxT, names=[name])[name]
        return jnp.stack([f(states).mean() for f in depth.STATISTICS.values()])

    with jax.enable_x64(False):
        return np.asarray(jax.jit(lambda p: jax.lax.map(one, p))(params))
