"""The share of trials within the bounds of Theorem 1, Lemma D.1 and Lemma D.2.

A bound may fail with probability delta, so one trial outside says nothing, and four inside say that
it fails in less than 60 % of all. The share of many trials has an interval that tells it from
1 - delta. `lemmas` prints the widest of four gaps beside it.
"""

from typing import NamedTuple

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.associations.lemmas import INPUTS, gradient_gaps, margin_gaps
from experiments.papers.outcome import Figure, Outcome
from theory import one_step

MEASURED = "gap/"  # arrays: the largest gap of each trial, divided by its bound


class Sizes(NamedTuple):
    """The vocabulary N and length T of the sampled process, and the numbers of samples."""

    N: int
    T: int
    samples: int  # of each trial
    trials: int


def measure_bounds(alpha: float, delta: float, sizes: Sizes, seed: int) -> Outcome:
    """Measures the gap over the bound of each statement and trial, and the share of gaps below 1.

    Args:
      alpha: The probability of the noise.
      delta: The probability with which a bound may fail.
      sizes: N, T and the numbers of samples and trials.
      seed: The seed of all samples.
    """
    keys = jax.random.split(jax.random.key(seed), 2)
    errors = one_step.margin_errors(sizes.N, sizes.T, sizes.samples, alpha, delta)
    gaps = {
        f"Theorem 1, {name}, {part}": gap_S / float(getattr(errors, part))
        for name, inputs in INPUTS.items()
        for part, gap_S in margin_gaps(keys[0], inputs, alpha, *sizes).items()
    }
    gaps |= gradient_gaps(keys[1], alpha, delta, *sizes)
    outcome = Outcome()
    for name, gap_S in gaps.items():
        outcome.scalar(f"{MEASURED}{name}", gap_S)
        outcome.scalar(f"within/{name}", (gap_S < 1).astype(float))
    return outcome


def draw_bounds(arrays, delta: float):
    """Draws the gap of each trial, a row of points for each statement."""
    names = [name.removeprefix(MEASURED) for name in arrays if name.startswith(MEASURED)]
    figure, (axes,) = plots.row(1, (plots.PAGE, 2.6))
    for i, name in enumerate(names):
        gap_S = np.asarray(arrays[f"{MEASURED}{name}"])
        height_S = i + np.linspace(-0.25, 0.25, len(gap_S))
        axes.plot(gap_S, height_S, ".", ms=3, color=plots.COLOURS[0])
    axes.axvline(1, color="0.5", lw=0.8)
    labels = [name.replace("feed_forward", "feed-forward layer") for name in names]
    axes.set(xscale="log", xlabel="gap over the bound", yticks=range(len(names)))
    axes.set_yticklabels(labels)
    axes.invert_yaxis()
    shares = [float(np.mean(arrays[f"within/{name}"])) for name in names]
    kept = sum(share > 1 - delta for share in shares)
    plots.add_finding(
        figure,
        f"{kept} of {len(names)} bounds hold in more than {100 * (1 - delta):g} % of the trials",
        "A point is a trial: a first gradient or a step on its own samples.",
    )
    return figure


BOUNDS = Figure(measure=measure_bounds, draw=draw_bounds)
