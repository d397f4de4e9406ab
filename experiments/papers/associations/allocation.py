"""Figure 6 of the associations paper: the loss of a bigram by the share of parameters in MLPs."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments.shared import plots
from experiments.shared.fitting import fitted
from experiments.shared.outcome import Outcome, exact
from jaxformer import optim
from jaxformer.errors import UserError
from jaxformer.models.recall import recall
from jaxformer.partition import Partition
from jaxformer.tasks.text import CausalText, transitions
from jaxformer.training.metrics import over_seeds

LAYERS = 2
RULES = (("(embed|unembed|positions)/.*", "frozen"), (".*", "train"))
LAST = 10  # steps that a loss is the mean of


def allocation(
    text: str,
    window: int,
    totals: Sequence[int],
    multipliers: Sequence[int],
    learning_rates: Sequence[float],
    momentum: float,
    batch_size: int,
    steps: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Training loss on the global bigram, at the best rate of each total and share."""
    for name, value in (("steps", steps), ("batch_size", batch_size)):
        if value < 1:
            raise UserError(f"figure.{name} must be at least 1, got {value}.")
    if not totals or not multipliers:
        raise UserError("figure.totals and figure.multipliers must name something, got none.")
    bigram = CausalText(text=text, window=window)
    partition = Partition(RULES)
    spec = optim.SGD(momentum)
    tx = optim.optimizer(partition, {"train": spec}, 0.0, optim.schedule("constant", steps, 0))
    metrics, arrays = {}, {}
    best = np.full((len(totals), len(multipliers), n_seeds), np.nan)
    for i, total in enumerate(totals):
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
            found = fitted(
                model, bigram, partition, tx, rates=learning_rates, seed=seed, n_seeds=n_seeds,
                steps=steps, batch_size=batch_size,
            ).losses_RxSxT  # fmt: skip
            last_RxS = found[..., -LAST:].mean(-1)
            means_R = last_RxS.mean(-1)  # a rate at which one seed diverges is out
            if np.isnan(means_R).all():
                raise UserError(
                    f"with {total} parameters and multiplier {multiplier} every learning rate of "
                    f"{[*learning_rates]} diverges. Try lower --config.figure.learning_rates."
                )
            chosen = int(np.nanargmin(means_R))
            best[i, j] = last_RxS[chosen]
            name = f"total={total}/mlp={share_of(multiplier):.2f}"
            metrics[f"loss/{name}"] = over_seeds(best[i, j])
            metrics[f"learning_rate/{name}"] = exact(learning_rates[chosen])
            arrays[f"losses/{name}"] = found
            print(f"{name}: d = {model.spec.width}, loss {best[i, j].mean():.4f} at rate "
                  f"{learning_rates[chosen]:g}", flush=True)  # fmt: skip
        for j, multiplier in enumerate(multipliers[1:], 1):  # seeds are paired
            name = f"total={total}/mlp={share_of(multiplier):.2f}"
            metrics[f"gain/{name}"] = over_seeds(best[i, 0] - best[i, j])
    floor = chain_loss(bigram)
    metrics["floor"] = exact(floor)
    shares = [share_of(multiplier) for multiplier in multipliers]
    arrays |= {"totals": totals, "shares": shares, "loss": best}
    return Outcome(_figure(best, totals, shares, steps, floor), arrays, metrics)


def share_of(multiplier: int) -> float:
    """2 m d^2 of (3 + 2m) d^2 parameters are the MLP's."""
    return 2 * multiplier / (3 + 2 * multiplier)


def width_of(total: int, multiplier: int) -> int:
    """The d at which LAYERS (3 + 2m) d^2 is nearest to the total."""
    if total < 1 or multiplier < 0:
        raise UserError(
            f"totals must be positive and multipliers at least 0, got {total} and {multiplier}."
        )
    return max(round((total / LAYERS / (3 + 2 * multiplier)) ** 0.5), 1)


def chain_loss(task) -> float:
    """The entropy of the chain, nats a symbol: no model does better."""
    p_V, p_VxV = task.corpus.counts_V / task.corpus.counts_V.sum(), transitions(task.corpus)
    logs = np.log(np.where(p_VxV > 0, p_VxV, 1))
    return float(-(p_V[:, None] * p_VxV * logs).sum())


def _figure(best, totals, shares, steps, floor):
    plt = plots.pyplot()
    figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for colour, total, losses in zip(plots.COLOURS, totals, best):
        n = losses.shape[-1]
        error = losses.std(-1, ddof=1) / n**0.5 if n > 1 else None
        axis.errorbar(
            shares, losses.mean(-1), error, fmt="o-", ms=4, capsize=3, color=colour,
            label=f"{total:,} trained parameters",
        )  # fmt: skip
    axis.axhline(floor, color="0.5", ls=":", label=f"the chain itself, {floor:.2f}")
    axis.set(
        xlabel="share of the trained parameters in MLPs",
        ylabel=f"training loss after {steps} steps (nats a symbol)",
    )
    axis.legend(fontsize=8)
    means = best.mean(-1)
    words = [
        f"{shares[int(row.argmin())]:.2f} of {total:,} ({row[0] - row.min():.3f} below share "
        f"{shares[0]:.2f})"
        for total, row in zip(totals, means, strict=True)
    ]
    figure.suptitle("The bigram is learned best at MLP share " + "\nand ".join(words), fontsize=10)
    return figure
