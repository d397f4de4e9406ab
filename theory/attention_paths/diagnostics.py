"""Diagnostics of the Markov chains, and the limits beyond which they are not trusted.

    r_hat        split r-hat: 1 if the halves of all chains have the same mean
    r_hat_rank   1 if the halves of all chains have the same distribution: the larger of r-hat on
                 ranks and r-hat on ranks of the distance to the median
    ess          effective number of draws for the mean
    ess_bulk     effective number of draws for the ranks
    ess_tail     effective number of draws for the 5 % or the 95 % quantile, the smaller one
    bfmi         mean of (e_(t+1) - e_t)^2 over the variance of e, where e_t is the energy at step
                 t; low if the momenta do not reach the tails
    at_max_depth share of draws whose trajectory stopped at the maximal tree depth
    divergences  number of draws whose trajectory left the energy surface

The first five are computed for each entry of U, and `bfmi` for each chain. The worst value counts.

The limits are the usual ones (arXiv 1903.08008, 1604.00695), except the limit of r-hat. With the
fewest draws that the limit of `ess` admits, r-hat exceeds the usual 1.01 by chance.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import check_choice

MIN_DRAWS = 4  # of a chain; with fewer no diagnostic is defined
ENTRY_DIAGNOSTICS = ("r_hat_rank", "ess_bulk", "ess_tail")


class Limit(NamedTuple):
    """The largest trusted value of a diagnostic, or the smallest (`is_minimum`), and its label."""

    bound: float
    label: str
    is_minimum: bool = False


LIMITS = {
    "r_hat": Limit(1.02, "r-hat"),
    "r_hat_rank": Limit(1.02, "r-hat of ranks"),
    "ess": Limit(100, "effective draws a chain", is_minimum=True),
    "ess_bulk": Limit(100, "effective draws a chain in the bulk", is_minimum=True),
    "ess_tail": Limit(100, "effective draws a chain in the tails", is_minimum=True),
    "divergences": Limit(0.001, "share of divergent draws"),
    "at_max_depth": Limit(0.01, "share of trajectories cut at the largest tree"),
    "bfmi": Limit(0.3, "energy (BFMI)", is_minimum=True),
}


def diagnose(
    U_CxSxDxD: np.ndarray, statistics: Mapping[str, np.ndarray], max_tree_depth: int = 10
) -> dict[str, Any]:
    """Returns the diagnostics of a run as numbers for its record.

    Args:
        U_CxSxDxD: draws of U by chain.
        statistics: arrays of NUTS, (chains, draws): num_steps, diverging, accept_prob, step_size
            and energy.
        max_tree_depth: maximal tree depth of NUTS.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    steps = statistics["num_steps"]
    record = {
        "chains": int(steps.shape[0]),
        "draws": int(steps.size),
        "divergences": int(statistics["diverging"].sum()),
        "num_steps": float(steps.mean()),
        "num_steps_max": int(steps.max()),
        "tree_depth_max": int(np.log2(steps.max())) + 1,
        "at_max_depth": float(np.mean(steps >= 2**max_tree_depth - 1)),
        "accept_prob": float(statistics["accept_prob"].mean()),
        "step_size": [float(size) for size in statistics["step_size"][:, -1]],
        "bfmi": bfmi(statistics["energy"]),
    } | dict.fromkeys(("r_hat", "ess", *ENTRY_DIAGNOSTICS), float("nan"))
    if U_CxSxDxD.shape[1] >= MIN_DRAWS:
        entries_CxSxE = U_CxSxDxD[:, :, *np.triu_indices(U_CxSxDxD.shape[-1])]
        with np.errstate(invalid="ignore", divide="ignore"):  # nan for a chain that does not move
            record["r_hat"] = float(np.max(split_gelman_rubin(entries_CxSxE)))
            record["ess"] = float(np.min(effective_sample_size(entries_CxSxE)))
        record |= {name: worst_entry(name, entries_CxSxE) for name in ENTRY_DIAGNOSTICS}
    return record


def worst_entry(name: str, values_CxSxE: np.ndarray) -> float:
    """Returns the worst entry of a diagnostic, and nan if any entry is nan."""
    by_entry = entry_diagnostic(name, values_CxSxE)
    return float(np.max(by_entry) if name == "r_hat_rank" else np.min(by_entry))


def entry_diagnostic(name: str, values_CxSxE: np.ndarray) -> np.ndarray:
    """Returns one of `ENTRY_DIAGNOSTICS` for each entry, (E,), of (chains, draws, entries)."""
    from numpyro.diagnostics import effective_sample_size, gelman_rubin

    check_choice("diagnostic of an entry of U", name, ENTRY_DIAGNOSTICS)
    halves = _halves(np.asarray(values_CxSxE, np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        if name == "ess_bulk":
            return effective_sample_size(_normal_scores(halves))
        if name == "ess_tail":
            low, high = np.quantile(halves, (0.05, 0.95), axis=(0, 1))
            indicators = [(halves <= quantile) * 1.0 for quantile in (low, high)]
            return np.minimum(*(effective_sample_size(values) for values in indicators))
        folded = np.abs(halves - np.median(halves, axis=(0, 1)))
        return np.maximum(*(gelman_rubin(_normal_scores(x)) for x in (halves, folded)))


def bfmi(energy_CxS: np.ndarray) -> float:
    """Returns the mean squared step of the energy over its variance, for the worst chain."""
    energy_CxS = np.asarray(energy_CxS, np.float64)
    if energy_CxS.shape[1] < MIN_DRAWS:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        squared_steps_C = np.mean(np.diff(energy_CxS, axis=1) ** 2, 1)
        return float(np.min(squared_steps_C / np.var(energy_CxS, 1)))


def doubts(diagnostics: Mapping[str, Any]) -> list[str]:
    """Returns a phrase for each diagnostic beyond its limit. An empty list means trusted chains.

    Diagnostics that an older record lacks are skipped. NaN, as from a chain that does not move,
    counts as beyond its limit.

    Args:
        diagnostics: what `diagnose` returned, or the same part of a record.
    """
    step_sizes = diagnostics.get("step_size", ())
    chains = _as_float(diagnostics.get("chains")) or len(step_sizes) or 1
    # Limits of effective draws are for one chain, the limit of divergences is for one draw.
    divisor: dict[str, float] = dict.fromkeys(("ess", "ess_bulk", "ess_tail"), chains)
    divisor["divergences"] = _as_float(diagnostics.get("draws")) or 1
    phrases = []
    for name, limit in LIMITS.items():
        if name not in diagnostics:
            continue
        value = _as_float(diagnostics[name])
        value = np.nan if value is None else value / divisor.get(name, 1)
        is_within = value >= limit.bound if limit.is_minimum else value <= limit.bound
        if not is_within:
            bound = f"{'at least' if limit.is_minimum else 'at most'} {limit.bound:g}"
            phrases.append(f"{limit.label} {value:.3g} ({bound})")
    return phrases


def monte_carlo_error(values_CxSx: np.ndarray) -> np.ndarray:
    """Returns the standard error of the mean over chains and draws, sd / sqrt(ESS)."""
    from numpyro.diagnostics import effective_sample_size

    with np.errstate(invalid="ignore", divide="ignore"):
        return np.std(values_CxSx, (0, 1)) / np.sqrt(effective_sample_size(values_CxSx))


def _halves(values_CxSxE: np.ndarray) -> np.ndarray:
    """Splits each chain in two, so that a drift appears as a difference between chains."""
    half = values_CxSxE.shape[1] // 2
    return np.concatenate([values_CxSxE[:, :half], values_CxSxE[:, -half:]])


def _normal_scores(values_CxSxE: np.ndarray) -> np.ndarray:
    """Returns the normal quantiles of the ranks over all chains, by Blom's formula.

    Unlike the values they have no heavy tails.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat_NxE = values_CxSxE.reshape(-1, values_CxSxE.shape[-1])
    ranks_NxE = rankdata(flat_NxE, axis=0)
    return ndtri((ranks_NxE - 0.375) / (len(flat_NxE) + 0.25)).reshape(values_CxSxE.shape)


def _as_float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
