"""Diagnostics reject chains that are wrong in a known way, and accept good ones."""

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory.attention_paths import doubts
from theory.attention_paths.diagnostics import LIMITS, bfmi, diagnose, entry_diagnostic

CHAINS, DRAWS = 4, 500


def chains(seed=0, rho=0.0):
    """Returns autoregressive draws of variance 1, (chains, draws, 2, 2)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((CHAINS, DRAWS, 2, 2))
    for t in range(1, DRAWS):
        values[:, t] = rho * values[:, t - 1] + (1 - rho**2) ** 0.5 * values[:, t]
    return values


def statistics(**changed):
    rng = np.random.default_rng(1)
    good = {
        "num_steps": np.full((CHAINS, DRAWS), 7),
        "diverging": np.zeros((CHAINS, DRAWS), bool),
        "accept_prob": np.full((CHAINS, DRAWS), 0.8),
        "step_size": np.full((CHAINS, DRAWS), 0.5),
        "energy": rng.standard_normal((CHAINS, DRAWS)),
    }
    return good | changed


def phrases(U, **changed):
    return doubts(diagnose(U, statistics(**changed)))


def stuck():
    U = chains()
    U[2] = U[2, :1]
    return U


def drifting():
    return chains() + np.linspace(-1, 1, DRAWS)[None, :, None, None]


def wider():
    """Returns chains with equal means, one of which has a larger spread."""
    U = chains()
    U[0] *= 5
    return U - U.mean((0, 1)) - (U.mean(1, keepdims=True) - U.mean((0, 1)))


def test_good_chains_are_trusted():
    assert phrases(chains()) == []


def test_chains_with_several_distributions_are_not_trusted():
    cases = [
        (stuck(), "r-hat"),
        (np.broadcast_to(chains()[:1, :1], (CHAINS, DRAWS, 2, 2)), "r-hat nan"),
        (drifting(), "r-hat"),
        (wider(), "r-hat of ranks"),
        (chains(rho=0.95), "effective draws a chain in the bulk"),
    ]
    missing = [label for U, label in cases if not any(label in line for line in phrases(U))]
    assert not missing


def test_only_ranks_detect_the_spread_of_a_chain():
    assert diagnose(wider(), statistics())["r_hat"] < LIMITS["r_hat"].bound


def first_draws(count, value, otherwise):
    flat = np.full(CHAINS * DRAWS, otherwise)
    flat[:count] = value
    return flat.reshape(CHAINS, DRAWS)


def test_statistics_of_the_sampler_are_judged():
    cases = [
        (
            {"diverging": first_draws(3, True, False)},
            "share of divergent draws 0.0015 (at most 0.001)",
        ),
        ({"num_steps": first_draws(30, 1023, 7)}, "cut at the largest tree 0.015"),
        ({"energy": np.cumsum(statistics()["energy"], 1)}, "energy (BFMI)"),
    ]
    results = [(phrases(chains(), **changed), expected) for changed, expected in cases]
    wrong = [(lines, label) for lines, label in results if len(lines) != 1 or label not in lines[0]]
    assert not wrong
    assert phrases(chains(), diverging=first_draws(2, True, False)) == []


def test_effective_draws_of_an_autoregression():
    values = chains(rho=0.5).reshape(CHAINS, DRAWS, 4)
    expected = CHAINS * DRAWS * (1 - 0.5) / (1 + 0.5)
    assert entry_diagnostic("ess_bulk", values).mean() == pytest.approx(expected, rel=0.1)
    assert (
        entry_diagnostic("ess_tail", values) > expected
    ).all()  # a quantile's indicator forgets sooner


def test_the_energy_of_independent_draws_has_a_bfmi_of_two():
    assert bfmi(np.random.default_rng(0).standard_normal((1, 20_000))) == pytest.approx(2, rel=0.03)


def test_an_older_record_is_judged_by_the_diagnostics_it_has():
    record = {"divergences": 0, "r_hat": 1.0005, "ess": 9641.5, "step_size": [0.4] * 10}
    assert doubts(record) == []
    assert "effective draws a chain 60" in doubts(record | {"ess": 600.0})[0]
    assert doubts(record | {"divergences": 14}) and doubts(record | {"r_hat": None})


def test_an_unknown_diagnostic_is_a_one_line_error():
    with pytest.raises(UserError, match=r"'ess_bulc'\. Did you mean 'ess_bulk'"):
        entry_diagnostic("ess_bulc", chains().reshape(CHAINS, DRAWS, 4))
