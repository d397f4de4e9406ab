"""Chains that are wrong in a known way are doubted, and good ones are not."""

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory.attention_paths import doubts
from theory.attention_paths.diagnostics import LIMITS, bfmi, diagnose, per_entry

CHAINS, DRAWS = 4, 500


def chains(seed=0, rho=0.0):
    """(chains, draws, 2, 2): autoregressive draws of variance 1."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((CHAINS, DRAWS, 2, 2))
    for t in range(1, DRAWS):
        values[:, t] = rho * values[:, t - 1] + (1 - rho**2) ** 0.5 * values[:, t]
    return values


def statistics(**changed):
    rng = np.random.default_rng(1)
    held = {
        "num_steps": np.full((CHAINS, DRAWS), 7),
        "diverging": np.zeros((CHAINS, DRAWS), bool),
        "accept_prob": np.full((CHAINS, DRAWS), 0.8),
        "step_size": np.full((CHAINS, DRAWS), 0.5),
        "energy": rng.standard_normal((CHAINS, DRAWS)),
    }
    return held | changed


def against(U, **changed):
    return doubts(diagnose(U, statistics(**changed)))


def stuck():
    U = chains()
    U[2] = U[2, :1]
    return U


def drifting():
    return chains() + np.linspace(-1, 1, DRAWS)[None, :, None, None]


def wider():
    """One chain has a larger spread and the same mean: no mean shows it."""
    U = chains()
    U[0] *= 5
    return U - U.mean((0, 1)) - (U.mean(1, keepdims=True) - U.mean((0, 1)))


def test_good_chains_are_trusted():
    assert against(chains()) == []


@pytest.mark.parametrize(
    ("U", "words"),
    [
        (stuck(), "r-hat"),
        (np.broadcast_to(chains()[:1, :1], (CHAINS, DRAWS, 2, 2)), "r-hat nan"),
        (drifting(), "r-hat"),
        (wider(), "r-hat of ranks"),
        (chains(rho=0.95), "effective draws a chain in the bulk"),
    ],
)
def test_chains_of_several_laws_are_doubted(U, words):
    found = against(U)
    assert any(words in line for line in found), found


def test_the_spread_of_a_chain_is_seen_by_ranks_alone():
    assert diagnose(wider(), statistics())["r_hat"] < LIMITS["r_hat"].bound


def one_of(count, value, otherwise):
    flat = np.full(CHAINS * DRAWS, otherwise)
    flat[:count] = value
    return flat.reshape(CHAINS, DRAWS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"diverging": one_of(3, True, False)}, "share of divergent draws 0.0015 (at most 0.001)"),
        ({"num_steps": one_of(30, 1023, 7)}, "cut at the largest tree 0.015"),
        ({"energy": np.cumsum(statistics()["energy"], 1)}, "energy (BFMI)"),
    ],
)
def test_what_the_sampler_says_of_itself_is_heard(changed, words):
    (line,) = against(chains(), **changed)
    assert words in line
    assert against(chains(), diverging=one_of(2, True, False)) == []


def test_effective_draws_are_those_of_an_autoregression():
    values = chains(rho=0.5).reshape(CHAINS, DRAWS, 4)
    expected = CHAINS * DRAWS * (1 - 0.5) / (1 + 0.5)
    assert per_entry("ess_bulk", values).mean() == pytest.approx(expected, rel=0.1)
    assert (per_entry("ess_tail", values) > expected).all()  # a quantile's indicator forgets sooner


def test_the_energy_of_independent_draws_has_a_bfmi_of_two():
    assert bfmi(np.random.default_rng(0).standard_normal((1, 20_000))) == pytest.approx(2, rel=0.03)


def test_an_older_record_is_judged_by_what_it_holds():
    held = {"divergences": 0, "r_hat": 1.0005, "ess": 9641.5, "step_size": [0.4] * 10}
    assert doubts(held) == []
    assert "effective draws a chain 60" in doubts(held | {"ess": 600.0})[0]
    assert doubts(held | {"divergences": 14}) and doubts(held | {"r_hat": None})


def test_an_unknown_diagnostic_is_one_line():
    with pytest.raises(UserError, match=r"'ess_bulc'\. Did you mean 'ess_bulk'"):
        per_entry("ess_bulc", chains().reshape(CHAINS, DRAWS, 4))
