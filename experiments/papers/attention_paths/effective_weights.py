"""The order parameter U and the posterior mean of V V' (arXiv 2405.15926).

V has a row of n effective weights for each path, where n is the size of a token. The paper's text
says that U is the posterior mean of V V' / n. U and V are computed from the same sampled networks.
N is the axis of widths, S that of data sets.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets
from experiments.papers.outcome import Figure, Outcome
from theory import attention_paths

CHAINS = 2


def measure_effective(widths: Sequence[int], draws: int, warmup: int, sets: Datasets) -> Outcome:
    """Measures the distance of V V' / n from U, as a share of the norm of U, against the width N.

    Args:
      widths: Increasing widths N.
      draws: Sampled networks of each width.
      warmup: Steps of each chain before its first draw.
      sets: The data sets.
    """
    examples, chains = sets.examples(), {}
    gap_NxS = np.zeros((len(widths), len(examples)))
    for s, data in enumerate(examples):
        for i, width in enumerate(widths):
            posterior = attention_paths.sample(
                jax.random.key(sets.seed + s),
                data.attentioned,
                data.labels,
                width,
                sets.temperature,
                data.heads,
                draws,
                warmup,
                CHAINS,
            )
            U = posterior.gram_hidden()
            gap_NxS[i, s] = np.linalg.norm(posterior.gram_effective() - U) / np.linalg.norm(U)
            chains[f"N={width}, dataset {s}"] = posterior.diagnostics
    n = examples[0].attentioned.shape[2]
    arrays: dict[str, Any] = {"widths": widths, "gap": gap_NxS.T, "n": n}
    outcome = Outcome(arrays, chains=chains)
    outcome.grid("gap/N={}", gap_NxS, widths)
    return outcome


def draw_effective(arrays):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.2))
    widths, gap_SxN, n = arrays["widths"], arrays["gap"], int(arrays["n"])
    plots.means(axis, widths, gap_SxN, fmt="o-", color=plots.COLOURS[0])
    axis.axvline(n, color="0.5", ls=":", lw=1)
    axis.text(n, 0, f" n = {n}", fontsize=plots.figure_style.SMALLEST)
    axis.set(xscale="log", xlabel="width N", ylabel="distance over the norm of U", ylim=(0, None))
    plots.add_finding(
        figure,
        f"The mean of V V'/n differs from U by {100 * gap_SxN[:, 0].mean():.1f} % at N = "
        f"{widths[0]} and by {100 * gap_SxN[:, -1].mean():.0f} % at N = {widths[-1]}",
        problem.data_sets_phrase(len(gap_SxN)).capitalize(),
    )
    return figure


EFFECTIVE = Figure(measure=measure_effective, draw=draw_effective)
