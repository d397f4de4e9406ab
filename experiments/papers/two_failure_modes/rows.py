"""Rows of scores as random energies (arXiv 2505.24333): eqs. 10 and 15, and figure B.1."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Outcome, exact
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes import one_head
from experiments.papers.two_failure_modes.one_head import GROWN
from jaxformer.training.metrics import over_seeds
from theory import rem

BETA_C = 2**0.5  # of rho = 0


def measure_overlap(lengths: tuple, beta_max: float, points: int, rows: int, seed: int) -> Outcome:
    """Figure B.1: Y_q against beta at several T, with Monte Carlo rows."""
    beta, some = np.linspace(0, beta_max, 121), np.linspace(0.15, beta_max, points)
    arrays: dict[str, Any] = {"beta": beta, "measured_beta": some}
    worst, gaps, below = 0.0, {"exact": [], "limit": []}, beta[beta < BETA_C]
    rng = np.random.default_rng(seed)
    for T in lengths:
        mean, error = np.array([one_head.overlap_of_rows(rng, b, T, rows) for b in some]).T
        predicted = np.asarray(rem.self_overlap(some, 0.0, T))
        worst = max(worst, float(np.abs((mean - predicted) / error).max()))
        gaps["exact"].append(mean - predicted)
        gaps["limit"].append(mean - np.asarray(rem.self_overlap(some, 0.0)))
        arrays |= {f"exact_{T}": rem.self_overlap(beta, 0.0, T), f"measured_{T}": mean}
        arrays[f"measured_sem_{T}"] = error
        arrays[f"paper_{T}"] = rem.self_overlap_heuristic(below, 0.0, T)
    arrays |= {"limit": rem.self_overlap(beta, 0.0)}
    arrays["corrected"] = max(lengths) ** corrected_exponent(below / BETA_C)
    rms, of_limit = (_rms(np.concatenate(g)) for g in gaps.values())
    grown = _rms(np.asarray(rem.self_overlap(some, 0.0, GROWN) - rem.self_overlap(some, 0.0)))
    arrays |= {"exact_rms_error": rms, "limit_rms_error": of_limit}
    metrics = {"exact_rms_error": exact(rms), "exact_worst_z": exact(worst)}
    baselines = {"limit_rms_error": of_limit, "limit_rms_error_of_theory_at_1e8": grown}
    for T, gap in zip(lengths, gaps["limit"], strict=True):
        baselines[f"limit_rms_error_{T}"] = _rms(gap)
    return Outcome(arrays, metrics, baselines)


def draw_overlap(arrays, lengths: tuple):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.3))
    beta, some, below = arrays["beta"], arrays["measured_beta"], arrays["beta"] < BETA_C
    for axis in (left, right):
        for colour, T in zip(COLOURS, lengths):
            axis.plot(beta, arrays[f"exact_{T}"], color=colour, lw=1.4, label=f"$T={T:,}$")
            axis.plot(beta[below], arrays[f"paper_{T}"], color=colour, lw=0.9, ls=":")
            mean, error = arrays[f"measured_{T}"], arrays[f"measured_sem_{T}"]
            axis.errorbar(some, mean, error, color=colour, fmt="o", ms=3, capsize=2)
        axis.plot(beta, arrays["limit"], color="black", lw=1.2, ls="--", label="limit")
        axis.plot([], [], color="0.4", lw=0.9, ls=":", label=r"paper: $T^{-1+(\beta/\beta_c)^2}$")
        axis.axvline(BETA_C, color="0.6", lw=0.8)
        axis.set(xlabel=r"score scale $\beta$")
    T = max(lengths)
    look = {"color": "0.4", "lw": 1.1, "ls": "-.", "label": f"corrected exponent, $T={T:,}$"}
    right.plot(beta[below], arrays["corrected"], **look)
    left.set(ylim=(-0.02, 0.8), ylabel=r"overlap $Y_q = E\,\Sigma_s A_{ts}^2$")
    right.set(yscale="log", ylim=(0.5 / T, 1), xlim=(0, 1.6), title="the same, where eq. 15 fails")
    plots.headed(
        figure,
        f"The transition at $\\beta_c=$√2 is smooth even at $T={T:,}$: error of the exact "
        f"theory {arrays['exact_rms_error']:.4f} (noise), of the limit "
        f"{arrays['limit_rms_error']:.3f}",
        "Dots: simulated rows with standard errors; lines: exact theory.",
        right,
    )
    return figure


def corrected_exponent(b: np.ndarray) -> np.ndarray:
    """ln Y_q / ln T for T -> infinity below the transition, b = beta / beta_c."""
    safe = np.maximum(b, 1e-3)
    return np.where(b < 3**-0.5, -1 + 2 * b**2, -((1 - b**2) ** 2) / (4 * safe**2))


def measure_exponents(betas: tuple, lengths: tuple, rows: int, batches: int, seed: int) -> Outcome:
    """Eq. 15: d ln Y_q / d ln T of rows between two lengths, against the paper's -1 + b^2."""
    rng, (short, long) = np.random.default_rng(seed), lengths
    metrics, baselines, exponent_BxS = {}, {}, []
    apart = np.log(long / short)
    for beta in betas:
        pairs_Sx2 = np.array(
            [[one_head.overlap_of_rows(rng, beta, T, rows)[0] for T in lengths]
             for _ in range(batches)]
        )  # fmt: skip
        exponent_S = np.log(pairs_Sx2[:, 1] / pairs_Sx2[:, 0]) / apart
        ends = [float(rem.self_overlap(beta, 0.0, T)) for T in lengths]
        name = f"exponent_beta_{beta:g}"
        metrics[name] = over_seeds(exponent_S)
        baselines[f"exact_{name}"] = float(np.log(ends[1] / ends[0]) / apart)
        baselines[f"paper_{name}"] = -1 + (beta / BETA_C) ** 2
        baselines[f"asymptotic_{name}"] = float(corrected_exponent(np.array(beta / BETA_C)))
        exponent_BxS.append(exponent_S)
    line = np.linspace(0.02, 0.995, 200)
    ends = [np.asarray(rem.self_overlap(line * BETA_C, 0.0, T)) for T in lengths]
    arrays = {"beta": betas, "measured": exponent_BxS, "line": line * BETA_C}
    arrays |= {"exact": np.log(ends[1] / ends[0]) / apart, "paper": -1 + line**2}
    return Outcome(arrays | {"asymptotic": corrected_exponent(line)}, metrics, baselines)


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
    found = "Below the transition the overlap vanishes more slowly than eq. 15 says"
    plots.headed(figure, found, "Bars: standard errors over batches of rows.", axis, columns=2)
    return figure


def measure_scores(
    rhos: tuple, length: int, width: int, heads: int, chunk: int, seed: int
) -> Outcome:
    """Eq. 10: the covariance of two scores that share both indices, one, or none."""
    metrics, measured = {}, []
    keys = jax.random.split(jax.random.key(seed), heads)
    for rho in rhos:
        some = [_covariances(keys[i : i + chunk], rho, length, width) for i in
                range(0, heads, chunk)]  # fmt: skip
        shared_Sx3 = np.concatenate([np.asarray(part, float) for part in some])
        measured.append(shared_Sx3.T)
        for name, values_S in zip(("two", "one", "none"), shared_Sx3.T, strict=True):
            metrics[f"{name}_rho_{rho:g}"] = over_seeds(values_S)
    return Outcome({"rho": rhos, "measured": measured}, metrics)


@partial(jax.jit, static_argnames=("length", "width"))
def _covariances(keys_S, rho, length: int, width: int) -> jax.Array:
    """(heads, 3) mean products of the scores of one random head whose deviation is 1."""
    basis_TxN = jnp.eye(length + 1, width)
    x_TxN = jnp.sqrt(width) * (jnp.sqrt(rho) * basis_TxN[:1] + jnp.sqrt(1 - rho) * basis_TxN[1:])

    def one(key):
        q_key, k_key = jax.random.split(key)
        q, k = (x_TxN @ jax.random.normal(k, (width, width)) / width for k in (q_key, k_key))
        a_TxT = q @ k.T * width**0.5
        n, square = length, jnp.sum(a_TxT**2)
        rows, columns = (jnp.sum(a_TxT.sum(axis) ** 2) for axis in (0, 1))
        one_index = (rows + columns - 2 * square) / (2 * n**2 * (n - 1))
        none = (jnp.sum(a_TxT) ** 2 - rows - columns + square) / (n * (n - 1)) ** 2
        return jnp.stack([square / n**2, one_index, none])

    return jax.vmap(one)(keys_S)


def draw_scores(arrays):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.0))
    rho = np.linspace(0, 1, 100)
    powers = (("both tokens", 0), ("one token", 1), ("no token", 2))
    for i, (colour, (who, power)) in enumerate(zip(COLOURS, powers)):
        axis.plot(rho, rho**power, color=colour)
        values_SxR = arrays["measured"][:, i].T
        plots.means(axis, arrays["rho"], values_SxR, fmt="o", color=colour, label=f"share {who}")
    axis.set(xlabel=r"cosine of two tokens $\rho$", ylabel="covariance of two scores")
    plots.headed(
        figure,
        r"Scores of random heads (dots) have the covariances $1$, $\rho$ and $\rho^2$ of eq. 10 "
        "(lines)",
        f"Bars: standard errors over {len(values_SxR)} heads.",
        axis,
    )
    return figure


def _rms(gaps: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(gaps))))
