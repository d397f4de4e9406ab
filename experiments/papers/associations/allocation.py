"""Figure 6 of the associations paper: the loss on bigrams against the share of weights in MLPs.

An MLP multiplier m gives an MLP m d hidden units at width d, and thereby its share of the weights.
The axes are R learning rates, S seeds, T steps, J multipliers and V symbols.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.fitting import fitted
from experiments.papers.outcome import Figure, Outcome, Training, exact
from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.recall import recall
from jaxformer.tasks.text import CausalText, transitions
from jaxformer.training.metrics import over_seeds

LAYERS = 2
PARTITION_RULES = (("(embed|unembed|positions)/.*", "frozen"), (".*", "train"))


def measure_allocation(
    text: str,
    window: int,
    totals: Sequence[int],
    multipliers: Sequence[int],
    momentum: float,
    training: Training,
) -> Outcome:
    """Measures the loss on a bigram chain for each number of parameters and each share in MLPs.

    Each network has the best of the learning rates.

    Args:
      text: A file whose bigrams are learned; "" is the packaged text.
      window: Tokens per sequence.
      totals: Numbers of trained parameters.
      multipliers: MLP multipliers. The metric `gain` compares each with the first.
      momentum: The momentum of SGD.
      training: Learning rates, steps and seeds.
    """
    rates, batch_size, steps, _, n_seeds = training
    for name, value in (("steps", steps), ("batch_size", batch_size)):
        if value < 1:
            raise UserError(f"figure.{name} must be at least 1, got {value}.")
    if not totals or not multipliers:
        raise UserError("figure.totals and figure.multipliers must not be empty.")
    bigram = CausalText(text=text, window=window)
    partition = Partition(PARTITION_RULES)
    spec = optim.SGD(momentum)
    tx = optim.optimizer(partition, {"train": spec}, 0.0, optim.schedule("constant", steps, 0))
    shares = [mlp_share(multiplier) for multiplier in multipliers]
    outcome = Outcome()
    best = np.full((len(totals), len(multipliers), n_seeds), np.nan)
    for i, total in enumerate(totals):
        baseline_S = best[i, 0]  # a view, which the first multiplier fills
        for j, multiplier in enumerate(multipliers):
            model = recall(
                vocab_size=bigram.vocab_size,
                length=bigram.length,
                width=width_of(total, multiplier),
                feed_forward=("mlp" if multiplier else "none",) * LAYERS,
                mlp_multiplier=max(multiplier, 1),
                dtype=jnp.float32,
                param_dtype=jnp.float32,
            )
            run = fitted(model, bigram, partition, tx, **training.arguments())
            name = f"total={total}/mlp={shares[j]:.2f}"
            outcome.arrays[f"losses/{name}"] = run.losses_RxSxT
            try:
                chosen, best[i, j] = training.best(run.losses_RxSxT, name)
            except UserError as error:
                print(f"{error} This cell is left out.", flush=True)
                continue
            outcome.metrics[f"loss/{name}"] = over_seeds(best[i, j])
            outcome.metrics[f"learning_rate/{name}"] = exact(rates[chosen])
            if j and not np.isnan(baseline_S).any():  # seeds are paired
                outcome.metrics[f"gain/{name}"] = over_seeds(baseline_S - best[i, j])
            loss = f"d = {model.spec.width}, loss {best[i, j].mean():.4f}"
            print(f"{name}: {loss} at rate {rates[chosen]:g}", flush=True)
    if np.isnan(best).all():
        raise UserError("every cell diverges at every rate; lower --config.figure.learning_rates.")
    floor = chain_loss(bigram)
    outcome.metrics["floor"] = exact(floor)
    outcome.arrays |= {"shares": shares, "loss": best, "floor": floor}
    return outcome


def mlp_share(multiplier: int) -> float:
    """Returns the MLP's share of a block: 2 m d^2 of (3 + 2m) d^2 parameters.

    Attention has 3 d^2 parameters: keys, values and output. It has no query matrix.
    """
    return 2 * multiplier / (3 + 2 * multiplier)


def width_of(total: int, multiplier: int) -> int:
    """Returns the width d at which LAYERS (3 + 2m) d^2 is nearest to the total."""
    if total < 1 or multiplier < 0:
        raise UserError(
            f"totals must be positive and multipliers at least 0, got {total} and {multiplier}."
        )
    return max(round((total / LAYERS / (3 + 2 * multiplier)) ** 0.5), 1)


def chain_loss(task) -> float:
    """Returns the entropy of the chain in nats per symbol, a lower bound of every model's loss."""
    characters = task.characters
    p_V, p_VxV = characters.counts_V / characters.counts_V.sum(), transitions(characters)
    logs_VxV = np.log(np.where(p_VxV > 0, p_VxV, 1))
    return float(-(p_V[:, None] * p_VxV * logs_VxV).sum())


def draw_allocation(arrays, totals: Sequence[int], steps: int):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.4))
    shares, floor, best_shares = arrays["shares"], arrays["floor"], []
    for colour, total, losses_JxS in zip(plots.COLOURS, totals, arrays["loss"]):
        label, means_J = f"{total:,} trained parameters", losses_JxS.mean(-1)
        plots.means(axis, shares, losses_JxS.T, fmt="o-", color=colour, label=label)
        if not np.isnan(means_J).all():
            gain = f"{means_J[0] - np.nanmin(means_J):.3f} lower than at share {shares[0]:.2f}"
            best_shares.append(f"{shares[np.nanargmin(means_J)]:.2f} of {total:,} ({gain})")
    axis.axhline(floor, color="0.5", ls=":", label=f"entropy of the chain, {floor:.2f}")
    axis.set_xlabel("share of the trained parameters in MLPs")
    axis.set_ylabel("training loss (nats a symbol)")
    plots.add_finding(
        figure,
        f"The bigram is learned best at MLP share {' and '.join(best_shares)}",
        f"After {steps} steps, at the best learning rate. {plots.ERRORS}",
        axis,
    )
    return figure


ALLOCATION = Figure(measure=measure_allocation, draw=draw_allocation)
