"""Are the chains to be trusted? What they say of themselves, and what speaks against them.

    r_hat        1 if every half of every chain has one mean; the worst entry of U
    r_hat_rank   1 if they have one law: the worse of two, on ranks and on ranks of the distance to
                 the median, the worst entry of U
    ess          effective draws of the mean, the smallest over the entries of U
    ess_bulk     the same on ranks
    ess_tail     the same of the 5 % and the 95 % quantile
    bfmi         E (E_(t+1) - E_t)^2 / Var E of the energy, the smallest chain: low if the momenta
                 do not reach the tails
    at_max_depth the share of draws whose trajectory was cut at the largest tree
    divergences  draws whose trajectory left the energy surface

The limits are the usual ones (arXiv 1903.08008, 1604.00695), but r-hat's: 1.01 is passed by chance
at the fewest draws that `ess` admits. Chains beyond a limit are not trusted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import check_choice

LEAST_DRAWS = 4  # of a chain, else nothing can be said
PER_ENTRY = ("r_hat_rank", "ess_bulk", "ess_tail")


class Limit(NamedTuple):
    """What a diagnostic may be at most (or at least, `least`), and what it is called."""

    bound: float
    words: str
    least: bool = False


LIMITS = {
    "r_hat": Limit(1.02, "r-hat"),
    "r_hat_rank": Limit(1.02, "r-hat of ranks"),
    "ess": Limit(100, "effective draws a chain", least=True),
    "ess_bulk": Limit(100, "effective draws a chain in the bulk", least=True),
    "ess_tail": Limit(100, "effective draws a chain in the tails", least=True),
    "divergences": Limit(0.001, "share of divergent draws"),
    "at_max_depth": Limit(0.01, "share of trajectories cut at the largest tree"),
    "bfmi": Limit(0.3, "energy (BFMI)", least=True),
}


def diagnose(
    U_CxSxDxD: np.ndarray, statistics: Mapping[str, np.ndarray], max_tree_depth: int = 10
) -> dict[str, Any]:
    """The record of a run from draws by chain and NUTS's own numbers (chains, draws)."""
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
    } | dict.fromkeys(("r_hat", "ess", *PER_ENTRY), float("nan"))
    if U_CxSxDxD.shape[1] >= LEAST_DRAWS:
        entries_CxSxE = U_CxSxDxD[:, :, *np.triu_indices(U_CxSxDxD.shape[-1])]
        with np.errstate(invalid="ignore", divide="ignore"):  # a chain that stands still: nan
            record["r_hat"] = float(np.max(split_gelman_rubin(entries_CxSxE)))
            record["ess"] = float(np.min(effective_sample_size(entries_CxSxE)))
        record |= {name: worst(name, entries_CxSxE) for name in PER_ENTRY}
    return record


def worst(name: str, values_CxSxE: np.ndarray) -> float:
    """The worst entry of a diagnostic; nan if one of them is."""
    by_entry = per_entry(name, values_CxSxE)
    return float(np.max(by_entry) if name == "r_hat_rank" else np.min(by_entry))


def per_entry(name: str, values_CxSxE: np.ndarray) -> np.ndarray:
    """One of PER_ENTRY for every entry of the last axis, from (chains, draws, entries)."""
    from numpyro.diagnostics import effective_sample_size, gelman_rubin

    check_choice("diagnostic of an entry of U", name, PER_ENTRY)
    halves = _halves(np.asarray(values_CxSxE, np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        if name == "ess_bulk":
            return effective_sample_size(_normal_scores(halves))
        if name == "ess_tail":
            low, high = np.quantile(halves, (0.05, 0.95), axis=(0, 1))
            beyond = [(halves <= edge) * 1.0 for edge in (low, high)]
            return np.minimum(*(effective_sample_size(values) for values in beyond))
        folded = np.abs(halves - np.median(halves, axis=(0, 1)))
        return np.maximum(*(gelman_rubin(_normal_scores(x)) for x in (halves, folded)))


def bfmi(energy_CxS: np.ndarray) -> float:
    """The smallest over the chains of the mean squared step of the energy over its variance."""
    energy_CxS = np.asarray(energy_CxS, np.float64)
    if energy_CxS.shape[1] < LEAST_DRAWS:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        steps_C = np.mean(np.diff(energy_CxS, axis=1) ** 2, 1)
        return float(np.min(steps_C / np.var(energy_CxS, 1)))


def doubts(found: Mapping[str, Any]) -> list[str]:
    """What speaks against chains with these diagnostics, a few words each; trusted if nothing.

    Older records lack some of them: these are not asked for. A number that is not finite, as those
    of a chain that stands still are, speaks against its chain.
    """
    chains = _number(found.get("chains")) or len(found.get("step_size", ())) or 1
    share: dict[str, float] = dict.fromkeys(("ess", "ess_bulk", "ess_tail"), chains)
    share["divergences"] = _number(found.get("draws")) or 1
    against = []
    for name, limit in LIMITS.items():
        if name not in found:
            continue
        value = _number(found[name])
        value = np.nan if value is None else value / share.get(name, 1)
        if not (value >= limit.bound if limit.least else value <= limit.bound):
            asked = "at least" if limit.least else "at most"
            against.append(f"{limit.words} {value:.3g} ({asked} {limit.bound:g})")
    return against


def monte_carlo_error(values_CxSx: np.ndarray) -> np.ndarray:
    """The standard error of the mean over chains and draws: sd / sqrt(ESS)."""
    from numpyro.diagnostics import effective_sample_size

    with np.errstate(invalid="ignore", divide="ignore"):
        return np.std(values_CxSx, (0, 1)) / np.sqrt(effective_sample_size(values_CxSx))


def _halves(values_CxSxE: np.ndarray) -> np.ndarray:
    """Every chain as two: a drift along a chain looks like a difference between chains."""
    half = values_CxSxE.shape[1] // 2
    return np.concatenate([values_CxSxE[:, :half], values_CxSxE[:, -half:]])


def _normal_scores(values_CxSxE: np.ndarray) -> np.ndarray:
    """The quantiles of a normal at the ranks over all chains, so that no tail is too heavy."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat_NxE = values_CxSxE.reshape(-1, values_CxSxE.shape[-1])
    ranks_NxE = rankdata(flat_NxE, axis=0)
    return ndtri((ranks_NxE - 0.375) / (len(flat_NxE) + 0.25)).reshape(values_CxSxE.shape)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
