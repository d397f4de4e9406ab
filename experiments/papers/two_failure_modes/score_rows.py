"""Rows of attention scores as random energies (arXiv 2505.24333): Equations 10, 15, Figure B.1.

Axes: S heads or batches of rows, B beta, R rho.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact, root_mean_square
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes import one_head
from experiments.papers.two_failure_modes.one_head import LARGE_T
from jaxformer.training.metrics import Mean, over_seeds
from theory import rem

BETA_C = 2**0.5  # the transition at rho = 0


def measure_overlap(lengths: tuple, beta_max: float, points: int, rows: int, seed: int) -> Outcome:
    """Measures Figure B.1: Y_q against beta at several T, in simulated rows.

    Args:
      lengths: Values of T.
      beta_max: The largest beta.
      points: Values of beta at which rows are simulated.
      rows: Rows for each beta and T, at least 16.
      seed: The seed of the rows.
    """
    beta, beta_B = np.linspace(0, beta_max, 121), np.linspace(0.15, beta_max, points)
    arrays: dict[str, Any] = {"beta": beta, "measured_beta": beta_B}
    below = beta[beta < BETA_C]
    rng = np.random.default_rng(seed)
    largest_z, gaps, errors = 0.0, {"exact": [], "limit": []}, []
    limit_B = np.asarray(rem.self_overlap(beta_B, 0.0))
    for T in lengths:
        mean_B, error_B = np.array([one_head.overlap_of_rows(rng, b, T, rows) for b in beta_B]).T
        exact_gap_B = mean_B - np.asarray(rem.self_overlap(beta_B, 0.0, T))
        largest_z = max(largest_z, float(np.abs(exact_gap_B / error_B).max()))
        gaps["exact"].append(exact_gap_B)
        gaps["limit"].append(mean_B - limit_B)
        errors.append(error_B)
        arrays |= {
            f"exact_{T}": rem.self_overlap(beta, 0.0, T),
            f"measured_{T}": mean_B,
            f"measured_sem_{T}": error_B,
            f"paper_{T}": rem.self_overlap_heuristic(below, 0.0, T),
        }
    metrics = {
        f"{name}_rms_error": _rms_with_error(np.concatenate(gap), np.concatenate(errors), rows)
        for name, gap in gaps.items()
    }
    arrays |= {
        "limit": rem.self_overlap(beta, 0.0),
        # Y_q with the corrected exponent at the largest T.
        "corrected": max(lengths) ** corrected_exponent(below / BETA_C),
        **{name: error.mean for name, error in metrics.items()},
    }
    metrics["exact_worst_z"] = exact(largest_z)
    for T, gap, error_B in zip(lengths, gaps["limit"], errors, strict=True):
        metrics[f"limit_rms_error_{T}"] = _rms_with_error(gap, error_B, rows)
    gap_at_large_T_B = np.asarray(rem.self_overlap(beta_B, 0.0, LARGE_T)) - limit_B
    baselines = {"limit_rms_error_of_theory_at_1e8": root_mean_square(gap_at_large_T_B)}
    return Outcome(arrays, metrics, baselines)


def _rms_with_error(gap_K: np.ndarray, error_K: np.ndarray, rows: int) -> Mean:
    """Returns the root mean square of K independent gaps with their standard errors propagated."""
    rms = root_mean_square(gap_K)
    error = float(np.linalg.norm(gap_K * error_K)) / (len(gap_K) * rms)
    return Mean(rms, error, max(rows, one_head.MIN_ROWS))  # rows that were simulated


def draw_overlap(arrays, lengths: tuple):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.3))
    beta, beta_B, below = arrays["beta"], arrays["measured_beta"], arrays["beta"] < BETA_C
    for axis in (left, right):
        for colour, T in zip(COLOURS, lengths):
            axis.plot(beta, arrays[f"exact_{T}"], color=colour, lw=1.4, label=f"$T={T:,}$")
            axis.plot(beta[below], arrays[f"paper_{T}"], color=colour, lw=0.9, ls=":")
            mean, error = arrays[f"measured_{T}"], arrays[f"measured_sem_{T}"]
            axis.errorbar(beta_B, mean, error, color=colour, fmt="o", ms=3, capsize=2)
        axis.plot(beta, arrays["limit"], color="black", lw=1.2, ls="--", label="limit")
        axis.plot([], [], color="0.4", lw=0.9, ls=":", label=r"paper: $T^{-1+(\beta/\beta_c)^2}$")
        axis.axvline(BETA_C, color="0.6", lw=0.8)
        axis.set(xlabel=r"score scale $\beta$")
    T = max(lengths)
    look = {"color": "0.4", "lw": 1.1, "ls": "-.", "label": f"corrected exponent, $T={T:,}$"}
    right.plot(beta[below], arrays["corrected"], **look)
    left.set(ylim=(-0.02, 0.8), ylabel=r"overlap $Y_q = E\,\Sigma_s A_{ts}^2$")
    right.set(
        yscale="log", ylim=(0.5 / T, 1), xlim=(0, 1.6), title="eq. 15 fails below the transition"
    )
    plots.add_finding(
        figure,
        f"The transition at $\\beta_c=$√2 is smooth even at $T={T:,}$: error of the exact "
        f"theory {arrays['exact_rms_error']:.4f} (noise), of the limit "
        f"{arrays['limit_rms_error']:.3f}",
        "Dots: simulated rows with standard errors; lines: exact theory.",
        right,
    )
    return figure


def corrected_exponent(b: np.ndarray) -> np.ndarray:
    """Returns ln Y_q / ln T for T -> infinity below the transition, where b = beta / beta_c < 1."""
    safe = np.maximum(b, 1e-3)
    return np.where(b < 3**-0.5, -1 + 2 * b**2, -((1 - b**2) ** 2) / (4 * safe**2))


def measure_exponents(betas: tuple, lengths: tuple, rows: int, batches: int, seed: int) -> Outcome:
    """Measures Equation 15: d ln Y_q / d ln T of rows between two lengths.

    Args:
      betas: Values of beta below the transition.
      lengths: Two values of T.
      rows: Rows in a batch.
      batches: Batches, whose exponents give the standard error.
      seed: The seed of the rows.
    """
    rng, (short, long) = np.random.default_rng(seed), lengths
    log_ratio = np.log(long / short)
    outcome, exponent_BxS = Outcome(), []
    for beta in betas:
        overlap_Sx2 = np.array(
            [
                [one_head.overlap_of_rows(rng, beta, T, rows)[0] for T in lengths]
                for _ in range(batches)
            ]
        )
        exponent_S = np.log(overlap_Sx2[:, 1] / overlap_Sx2[:, 0]) / log_ratio
        at_short, at_long = (float(rem.self_overlap(beta, 0.0, T)) for T in lengths)
        name, b = f"exponent_beta_{beta:g}", beta / BETA_C
        outcome.metrics[name] = over_seeds(exponent_S)
        outcome.baselines |= {
            f"exact_{name}": float(np.log(at_long / at_short) / log_ratio),
            f"paper_{name}": -1 + b**2,
            f"asymptotic_{name}": float(corrected_exponent(np.array(b))),
        }
        exponent_BxS.append(exponent_S)
    line = np.linspace(0.02, 0.995, 200)
    at_short, at_long = (np.asarray(rem.self_overlap(line * BETA_C, 0.0, T)) for T in lengths)
    outcome.arrays |= {
        "beta": betas,
        "measured": exponent_BxS,
        "line": line * BETA_C,
        "exact": np.log(at_long / at_short) / log_ratio,
        "paper": -1 + line**2,
        "asymptotic": corrected_exponent(line),
    }
    return outcome


def draw_exponents(arrays, lengths: tuple):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.2))
    line, (short, long) = arrays["line"], lengths
    axis.plot(line, arrays["paper"], ":", color="black", lw=1.6, label="eq. 15 of the paper")
    axis.plot(line, arrays["asymptotic"], "-.", color="0.5", label=r"corrected, $T\to\infty$")
    label = f"exact theory, $T={short:,}$ to ${long:,}$"
    axis.plot(line, arrays["exact"], color=COLOURS[0], label=label)
    look = {"fmt": "o", "color": COLOURS[1], "label": "simulated rows"}
    plots.means(axis, arrays["beta"], arrays["measured"].T, **look)
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"exponent $d\ln Y_q\,/\,d\ln T$")
    plots.add_finding(
        figure,
        "Below the transition the overlap vanishes more slowly than in eq. 15",
        "Bars: standard errors over batches of rows.",
        axis,
        columns=2,
    )
    return figure


def measure_scores(
    rhos: tuple, length: int, width: int, heads: int, chunk: int, seed: int
) -> Outcome:
    """Measures Equation 10: the covariance of two scores that share both tokens, one, or none.

    Args:
      rhos: Cosines of tokens.
      length: The number of tokens T.
      width: The width N.
      heads: The number of random heads.
      chunk: Heads in memory at a time.
      seed: The seed of the heads.
    """
    keys = jax.random.split(jax.random.key(seed), heads)
    measured_RxCxS = []  # C: two, one or no shared token
    for rho in rhos:
        chunks = [
            np.asarray(_covariances(keys[i : i + chunk], rho, length, width), float)
            for i in range(0, heads, chunk)
        ]
        measured_RxCxS.append(np.concatenate(chunks).T)
    outcome = Outcome({"rho": rhos, "measured": measured_RxCxS})
    outcome.grid("{1}_rho_{0:g}", np.array(measured_RxCxS), rhos, ("two", "one", "none"))
    return outcome


@partial(jax.jit, static_argnames=("length", "width"))
def _covariances(keys_S, rho, length: int, width: int) -> jax.Array:
    """Returns mean products of two scores that share two, one or no token, (S, 3).

    The scores of the random head have standard deviation 1.
    """
    basis_TxN = jnp.eye(length + 1, width)
    x_TxN = jnp.sqrt(width) * (jnp.sqrt(rho) * basis_TxN[:1] + jnp.sqrt(1 - rho) * basis_TxN[1:])

    def of_head(key):
        q_key, k_key = jax.random.split(key)
        W_q, W_k = (jax.random.normal(half, (width, width)) for half in (q_key, k_key))
        q, k = x_TxN @ W_q / width, x_TxN @ W_k / width
        a_TxT = q @ k.T * width**0.5
        n, square = length, jnp.sum(a_TxT**2)
        # Sums of products over all pairs of scores that share the key, and the query.
        same_key, same_query = (jnp.sum(a_TxT.sum(axis) ** 2) for axis in (0, 1))
        # Pairs of scores that share one token, and pairs that share none.
        one = (same_key + same_query - 2 * square) / (2 * n**2 * (n - 1))
        none = (jnp.sum(a_TxT) ** 2 - same_key - same_query + square) / (n * (n - 1)) ** 2
        return jnp.stack([square / n**2, one, none])

    return jax.vmap(of_head)(keys_S)


def draw_scores(arrays):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.0))
    rho = np.linspace(0, 1, 100)
    powers = (("both tokens", 0), ("one token", 1), ("no token", 2))
    for i, (colour, (tokens, power)) in enumerate(zip(COLOURS, powers)):
        axis.plot(rho, rho**power, color=colour)
        values_SxR = arrays["measured"][:, i].T
        plots.means(axis, arrays["rho"], values_SxR, fmt="o", color=colour, label=f"share {tokens}")
    axis.set(xlabel=r"cosine of two tokens $\rho$", ylabel="covariance of two scores")
    plots.add_finding(
        figure,
        r"Scores of random heads (dots) have the covariances $1$, $\rho$ and $\rho^2$ of eq. 10 "
        "(lines)",
        f"Bars: standard errors over {len(values_SxR)} heads.",
        axis,
    )
    return figure


OVERLAP = Figure(measure=measure_overlap, draw=draw_overlap)
EXPONENTS = Figure(measure=measure_exponents, draw=draw_exponents)
SCORES = Figure(measure=measure_scores, draw=draw_scores)
