"""The number of samples with which one gradient step predicts the noise (arXiv 2406.03068).

The paper observes that the feed-forward layer needs a number of samples m of order 1. Attention
needs m of order N, the size of the vocabulary. Here a layer has enough samples if the margin of the
noise token reaches half of its value in Theorem 1.

The axes are L layers, N vocabularies, M numbers of samples, S seeds.
"""

from collections.abc import Sequence

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome
from theory import one_step

LAYERS = ("feed_forward", "attention")
TOKENS_PER_SYMBOL = 4  # T / N
INPUTS = "current"  # as in the proof of Theorem 1: an input embeds the current token only


def measure_samples(
    vocabularies: Sequence[int],
    samples: Sequence[int],
    alpha: float,
    trials: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures the smallest sufficient m for each layer and vocabulary.

    Args:
      vocabularies: Increasing values of N. Sequences have 4 N tokens.
      samples: Increasing values of m.
      alpha: The probability of the noise.
      trials: Gradient steps over which a seed averages.
      seed: The seed of the first sample.
      n_seeds: The number of independent thresholds.
    """
    # The measured margin divided by the printed one.
    share_LxNxMxS = np.empty((len(LAYERS), len(vocabularies), len(samples), n_seeds))
    for i, N in enumerate(vocabularies):
        for j, m in enumerate(samples):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), N), m)
            steps = n_seeds * trials
            margins = one_step.measure(
                key, N, TOKENS_PER_SYMBOL * N, m, alpha, INPUTS, trials=steps, tests=32
            )
            printed = (alpha, alpha / N)
            for layer, (margin, limit) in enumerate(zip(margins, printed, strict=True)):
                by_seed = np.asarray(margin).reshape(n_seeds, trials).mean(1)
                share_LxNxMxS[layer, i, j] = by_seed / limit
    outcome = Outcome({"vocabularies": vocabularies, "samples": samples})
    for layer, share_NxMxS in zip(LAYERS, share_LxNxMxS, strict=True):
        threshold_NxS = np.array(
            [[first_crossing(samples, s_M) for s_M in share_MxS.T] for share_MxS in share_NxMxS]
        )
        outcome.arrays |= {f"share/{layer}": share_NxMxS, f"needed/{layer}": threshold_NxS.T}
        outcome.grid(f"needed/{layer}/N={{}}", threshold_NxS, vocabularies)
        slope_S = np.polyfit(np.log(vocabularies), np.log(threshold_NxS), 1)[0]
        outcome.scalar(f"exponent/{layer}", slope_S)
    return outcome


def first_crossing(samples: Sequence[int], share_M: np.ndarray) -> float:
    """Returns m at which a share first reaches one half, interpolated linearly in log m.

    Returns the first m if its share already reaches it, and the last m if no share does.
    """
    reached = np.flatnonzero(share_M >= 0.5)
    if not len(reached):
        return float(samples[-1])
    j = reached[0]
    if j == 0:
        return float(samples[0])
    weight = (0.5 - share_M[j - 1]) / (share_M[j] - share_M[j - 1])
    return float(samples[j - 1] * (samples[j] / samples[j - 1]) ** weight)


def draw_samples(arrays, alpha: float):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.2))
    vocabularies, samples = arrays["vocabularies"], arrays["samples"]
    labels = ("feed-forward", "attention")
    for colour, layer, label in zip(plots.COLOURS, LAYERS, labels):
        share_SxM = arrays[f"share/{layer}"][-1].T
        plots.means(left, samples, share_SxM, fmt="o-", color=colour, label=label)
        needed_SxN = arrays[f"needed/{layer}"]
        plots.means(right, vocabularies, needed_SxN, fmt="o-", color=colour, label=label)
    left.axhline(0.5, color="0.5", lw=0.8)
    left.set(xscale="log", xlabel="samples m", ylabel="margin over the printed one", ylim=(-1, 1.3))
    plots.label_panel(left, f"N = {vocabularies[-1]}")
    start = arrays["needed/attention"].mean(0)[0]
    line = start * vocabularies / vocabularies[0]
    right.plot(vocabularies, line, "--", color="0.5", label="in proportion to N")
    right.set(xscale="log", yscale="log", xlabel="vocabulary N", ylabel="samples needed")
    plots.value_ticks(right, vocabularies)
    exponents = [arrays[f"exponent/{layer}"].mean() for layer in LAYERS]
    plots.add_finding(
        figure,
        f"The samples that a step needs grow as $N^{{{exponents[0]:.2f}}}$ (feed-forward) and "
        f"$N^{{{exponents[1]:.2f}}}$ (attention)",
        rf"Noise $\alpha$ = {alpha:g}; needed: half of the printed margin.",
        right,
    )
    return figure


SAMPLES = Figure(measure=measure_samples, draw=draw_samples)
