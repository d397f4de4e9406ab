"""Attention at initialisation against the number of tokens T (arXiv 2505.24333).

Rows of attention are softmax rows of independent normal scores, the distribution of a wide network
with orthogonal tokens. sigma_a is the standard deviation of the scores, and equation 11 sets
sigma_a = beta sqrt(ln T). Axes: S samples, T tokens, R rows.
"""

from collections.abc import Sequence

import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome
from experiments.papers.two_failure_modes.attention import BULK, EDGE
from theory import rem

HALF = 0.5  # the entropy over ln T at which a row is between uniform and condensed
BISECTIONS = 24
LARGEST_STD = 20.0  # the upper end of the bisection for sigma_a


def measure_lengths(
    lengths: Sequence[int],
    matrix_lengths: Sequence[int],
    betas: Sequence[float],
    fixed_std: float,
    rows: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures entropies, overlaps and eigenvalues of attention at several lengths.

    Args:
      lengths: Increasing values of T of the rows.
      matrix_lengths: Increasing values of T of square attention matrices.
      betas: Values of beta above the transition.
      fixed_std: A value of sigma_a that does not depend on T.
      rows: Rows of each seed.
      seed: The seed of the first sample.
      n_seeds: The number of samples.
    """
    samples = [_sample_rows(seed + s, lengths, betas, fixed_std, rows) for s in range(n_seeds)]
    outcome = Outcome({"lengths": lengths, "matrix_lengths": matrix_lengths})
    for name in samples[0]:
        values_SxT = np.array([sample[name] for sample in samples])
        outcome.arrays[name] = values_SxT
        outcome.grid(f"{name}/T={{}}", values_SxT.T, lengths)
    log_log = np.log(np.log(lengths))
    slope_S = np.polyfit(log_log, np.log(outcome.arrays["crossing_std"]).T, 1)[0]
    outcome.scalar("crossing_exponent", slope_S)
    for beta in betas:
        outcome.baselines[f"limit_overlap/beta={beta:g}"] = float(rem.self_overlap(beta, 0.0))
    for name, beta in (("fixed", None), ("scaled", 1.0)):
        radius_SxT = np.array(
            [_radii(seed + s, matrix_lengths, beta, fixed_std) for s in range(n_seeds)]
        )
        outcome.arrays[f"radius/{name}"] = radius_SxT
        slope_S = np.polyfit(np.log(matrix_lengths), np.log(radius_SxT).T, 1)[0]
        outcome.scalar(f"radius_exponent/{name}", slope_S)
    return outcome


def _sample_rows(seed, lengths, betas, fixed_std, rows) -> dict[str, list[float]]:
    """Returns statistics of random rows by name, with one value for each length."""
    rng = np.random.default_rng(seed)
    names = ("crossing_std", "entropy/fixed", "entropy/scaled")
    values = {name: [] for name in (*names, *(f"overlap/beta={beta:g}" for beta in betas))}
    for T in lengths:
        scores_RxT, sqrt_log_T = rng.standard_normal((rows, T)), np.log(T) ** 0.5
        values["crossing_std"].append(crossing_std(scores_RxT))
        values["entropy/fixed"].append(entropy_fraction(fixed_std * scores_RxT))
        values["entropy/scaled"].append(entropy_fraction(sqrt_log_T * scores_RxT))
        for beta in betas:
            overlap_R = np.sum(_softmax(beta * sqrt_log_T * scores_RxT) ** 2, 1)
            values[f"overlap/beta={beta:g}"].append(overlap_R.mean())
    return values


def crossing_std(scores_RxT: np.ndarray) -> float:
    """Returns sigma_a at which the entropy is HALF of ln T. The entropy falls with sigma_a."""
    low, high = 0.0, LARGEST_STD
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if entropy_fraction(middle * scores_RxT) > HALF:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def entropy_fraction(scores_RxT: np.ndarray) -> float:
    """Returns the mean entropy of softmax rows, divided by ln T."""
    shifted_RxT = scores_RxT - scores_RxT.max(1, keepdims=True)
    weights_RxT = np.exp(shifted_RxT)
    total_R = weights_RxT.sum(1)
    entropy_R = np.log(total_R) - np.sum(weights_RxT * shifted_RxT, 1) / total_R
    return float(entropy_R.mean() / np.log(scores_RxT.shape[1]))


def _softmax(scores_RxT: np.ndarray) -> np.ndarray:
    weights_RxT = np.exp(scores_RxT - scores_RxT.max(1, keepdims=True))
    return weights_RxT / weights_RxT.sum(1, keepdims=True)


def _radii(seed, lengths, beta: float | None, fixed_std: float) -> list[float]:
    """Returns the radius of the bulk of eigenvalues of an attention matrix of each length.

    sigma_a is beta sqrt(ln T), or `fixed_std` if beta is None.
    """
    rng, radii = np.random.default_rng(seed), []
    for T in lengths:
        std = fixed_std if beta is None else beta * np.log(T) ** 0.5
        values_T = np.linalg.eigvals(_softmax(std * rng.standard_normal((T, T))))
        bulk = np.sort(np.abs(values_T))[:-1]  # the largest eigenvalue is 1
        radii.append(float(np.quantile(bulk, BULK) / EDGE))
    return radii


def draw_lengths(arrays, betas: Sequence[float], fixed_std: float):
    figure, (left, middle, right) = plots.row(3, (plots.PAGE, 2.1))
    lengths, matrix_lengths = arrays["lengths"], arrays["matrix_lengths"]
    blue, orange = plots.COLOURS[:2]
    sqrt_log_lengths = np.log(lengths) ** 0.5
    plots.means(left, sqrt_log_lengths, arrays["crossing_std"], fmt="o-", color=blue)
    left.set(xlabel=r"$\sqrt{\ln T}$", ylabel=r"$\sigma_a$", xlim=(0, None), ylim=(0, None))
    plots.label_panel(left, r"entropy is half of $\ln T$")
    series = {rf"$\beta={beta:g}$": arrays[f"overlap/beta={beta:g}"] for beta in betas}
    plots.curves(middle, lengths, series, fmt="o-")
    for colour, beta in zip(plots.COLOURS, betas):
        middle.axhline(1 - 2**0.5 / beta, color=colour, ls="--", lw=0.8)
    middle.set(xscale="log", xlabel="tokens T", ylabel=r"overlap $Y_q$", ylim=(0, 1))
    plots.label_panel(middle, r"dashed: $1-\beta_c/\beta$")
    for colour, name, label in (
        (blue, "fixed", rf"$\sigma_a={fixed_std:g}$"),
        (orange, "scaled", r"$\sigma_a=\sqrt{\ln T}$"),
    ):
        style = {"fmt": "o-", "color": colour, "label": label}
        plots.means(right, matrix_lengths, arrays[f"radius/{name}"], **style)
    right.set(xscale="log", yscale="log", xlabel="tokens T", ylabel="radius")
    plots.label_panel(right, "bulk of eigenvalues")
    exponent = arrays["crossing_exponent"].mean()
    plots.add_finding(
        figure,
        "The score deviation that condenses attention to half its entropy grows as "
        rf"$(\ln T)^{{{exponent:.2f}}}$; equation 11 has the power 0.5",
        "Rows of independent scores. Bars: standard errors over samples.",
        right,
    )
    return figure


LENGTHS = Figure(measure=measure_lengths, draw=draw_lengths)
