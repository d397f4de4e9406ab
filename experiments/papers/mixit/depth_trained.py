"""Table 6 of the MixiT paper (version B) after a short training on text."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.fitting import fitted
from experiments.papers.mixit import depth
from experiments.papers.outcome import Figure, Outcome, Training
from jaxformer.capture import capture
from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.data.tokens import folder_of
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
    """Measures covariance and cosine of tokens against depth, before and after training.

    Each depth and seed has its own network, which learns to predict the next token of the text. Of
    several learning rates the one with the lowest final loss is used. All statistics are measured
    in the last layer on held-out text. `dimensions` counts the directions that the tokens' states
    fill: they are few if a network works in a subspace of its width.

    Args:
      models: The decoder fields of "random" and "mixit".
      rules: The partition rules of each model.
      depths: Increasing numbers of layers L.
      sequences: The number of held-out sequences.
      length: Tokens per sequence.
      text: A packaged text, or a folder of experiments/prepare.py.
      training: Learning rates, steps and seeds.
    """
    _, batch_size, steps, _, n_seeds = training
    depth.check(depths, steps=steps, batch_size=batch_size, sequences=sequences, length=length)
    is_prepared = bool(text) and folder_of(text).is_dir()
    task = (
        NextToken(tokens=text, window=length)
        if is_prepared
        else CausalText(text=text, window=length)
    )
    schedule = optim.schedule("cosine", steps, min(20, steps))  # 20 steps of warm-up
    shape = (n_seeds, len(depths), len(depth.STATISTICS) + 1)
    values = {when: {name: np.empty(shape) for name in models} for when in ("before", "after")}
    outcome = Outcome({"depths": depths})
    for name, fields in models.items():
        partition = Partition([(pattern, label) for pattern, label in rules[name]])
        tx = optim.optimizer(partition, {"train": optim.AdamW(weight_decay=0.0)}, 1.0, schedule)
        precision = {"dtype": jnp.float32, "param_dtype": jnp.float32}
        for k, L in enumerate(depths):
            sizes = {"vocab_size": task.vocab_size, "length": length, "layers": L}
            model = decoder(**fields, **sizes, **precision)
            run = fitted(model, task, partition, tx, test_size=sequences, **training.arguments())
            best, final_loss_S = training.best(run.losses_RxSxT, f"{name} with {L} layers")
            chosen = slice(best * n_seeds, (best + 1) * n_seeds)  # all seeds at the best rate
            for when, params in (("before", run.initial), ("after", run.params)):
                chosen_params = jax.tree.map(lambda x, chosen=chosen: x[chosen], params)
                values[when][name][:, k] = _measure(model, L, chosen_params, run.test.inputs)
            outcome.metrics[f"loss/{name}/L={L}"] = over_seeds(final_loss_S)
            outcome.baselines = task.baselines(run.test)
            losses = dict(enumerate(final_loss_S, training.seed))
            title, unigram = f"{name} with {L} layers: the loss", outcome.baselines["unigram_loss"]
            outcome.alarms += filter(None, [above_unigram(title, losses, unigram)])
            covariance, cosine, filled = values["after"][name][:, k].mean(0)
            print(
                f"{name}, L = {L}: loss {final_loss_S.mean():.3f}, covariance {covariance:.4g}, "
                f"cosine {cosine:.3f}, {filled:.3g} dimensions",
                flush=True,
            )
    for when, by_model in values.items():
        outcome.arrays |= {f"{when}/{name}": array for name, array in by_model.items()}
        prefix = "" if when == "after" else "before/"
        for name, values_SxLxK in by_model.items():
            add_dimensions(outcome, name, values_SxLxK[:, :, -1], depths, prefix)
        depth.add_numbers(outcome, by_model, depths, prefix)
    return outcome


def add_dimensions(
    outcome: Outcome, name: str, filled_SxL: np.ndarray, depths: Sequence[int], prefix: str
) -> None:
    """Adds the dimensions that tokens fill at each depth, and the growth of their logarithm."""
    outcome.grid(f"{prefix}dimensions/{name}/L={{}}", filled_SxL.T, depths)
    growth_S = np.log(filled_SxL[:, -1]) - np.log(filled_SxL[:, 0])
    outcome.metrics[f"{prefix}log_growth/dimensions/{name}"] = over_seeds(growth_S)


def draw_covariance_trained(arrays):
    before, after = (
        {name: arrays[f"{when}/{name}"] for name in depth.NAMES} for when in ("before", "after")
    )
    return depth.draw(after, arrays["depths"], before)


def _measure(model, layers: int, params, tokens_BxT) -> np.ndarray:
    """Returns the statistics and the dimensions of the last block's states, (members, 3)."""
    name = f"block_{layers - 1}/states"

    def of_member(params):
        states = capture(model, params, tokens_BxT, names=[name])[name]
        pairs = [f(states).mean() for f in depth.STATISTICS.values()]
        return jnp.stack([*pairs, observables.dimensions(states)])

    with jax.enable_x64(False):
        return np.asarray(jax.jit(lambda p: jax.lax.map(of_member, p))(params))


COVARIANCE_TRAINED = Figure(measure=measure_covariance_trained, draw=draw_covariance_trained)
