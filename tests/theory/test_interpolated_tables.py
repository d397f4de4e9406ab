"""The precomputed tables agree with the integrals."""

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import rem
from theory.quadrature import chebyshev_nodes
from theory.rem import integrals, make_tables
from theory.rem.coordinates import MAX_TABULATED_LENGTH, spread_at
from theory.rem.interpolated_tables import basis_on_last_axis, load_tables, rows_of_length
from theory.signal.recursion import check_length


def test_rows_of_any_length_agree_with_the_integrals():
    for T, beta in ((2, 0.5), (3.5, 2.0), (17, 0.05), (100, 3.9), (700, 1.2), (1e5, 0.5), (5e6, 2)):
        s = beta * np.sqrt(np.log(T))
        exact = integrals.row_statistics(s, T)
        rows = rows_of_length(np.array([T]))
        overlap, moment, cube, entropy = rows.statistics(np.array([s**2]))
        assert overlap[0] == pytest.approx(exact.self_overlap, rel=1e-6)
        assert cube[0] == pytest.approx(exact.cube, rel=1e-5)
        assert moment[0] == pytest.approx(exact.second_moment, rel=1e-3 if T > 1e5 else 1e-6)
        assert entropy[0] == pytest.approx(exact.entropy, abs=1e-7)
        if T < 1000:
            for rho in (0.0, 0.6, 0.98):
                pair = rows.cross_overlap(np.array([s**2]), np.array([[rho]]))
                exact_pair = integrals.pair_overlap(s, s, rho, T)
                assert pair[0, 0] == pytest.approx(exact_pair, rel=1e-6)


def test_the_file_has_the_numbers_of_make_tables():
    """The whole file takes minutes: this checks the series at one length, and one pair table."""
    lengths = make_tables.length_nodes()
    rows = rows_of_length(lengths)
    computed = make_tables.row_table(lengths[9])
    *logs, entropy = (
        table[9] for table in (rows.overlap_KxM, rows.moment_KxM, rows.cube_KxM, rows.entropy_KxM)
    )
    np.testing.assert_allclose(logs, computed[:3], atol=1e-9)
    # The integral of the entropy cancels terms of size s^2, so beyond s = 100 its rounding error
    # depends on the processor. These nodes are left out. At a node the series has the value there.
    x = chebyshev_nodes(make_tables.N_SPREAD)
    is_accurate = spread_at(x) * np.sqrt(np.log(lengths[9])) < 100
    at_nodes = basis_on_last_axis(x[is_accurate], len(x)) @ np.stack([entropy, computed[3]], -1)
    np.testing.assert_allclose(*at_nodes.T, atol=1e-9)
    assert is_accurate.sum() > 40
    assert set(load_tables()) == {"overlap", "moment", "cube", "entropy", "pair"} | {
        f"pair_{length}" for length in make_tables.TABULATED_T
    }
    for s in (0.5, 2.0):
        beta = s / np.sqrt(np.log(32) * 0.7)
        exact = integrals.pair_overlap(s, s, 0.3, 32)
        assert float(rem.cross_overlap(beta, 0.3, 32)) == pytest.approx(exact, rel=1e-6)


def test_one_token_sees_itself():
    rows = rows_of_length(np.array([1.0, 2.0]))
    overlap, moment, cube, entropy = rows.statistics(np.array([3.0, 3.0]))
    assert overlap[0] == moment[0] == cube[0] == 1 and entropy[0] == 0
    pair = rows.cross_overlap(np.array([3.0, 3.0]), np.full((2, 2), 0.5))
    # Token 1 looks at itself alone, so its overlap with token 2 is token 2's mean weight on it.
    assert pair[0, 0] == 1 and pair[0, 1] == pair[1, 0] == 0.5


@pytest.mark.parametrize("length", [1, 10**26, 2.5, True, "64", int(MAX_TABULATED_LENGTH) + 1])
def test_lengths_beyond_the_tables(length):
    with pytest.raises(UserError, match="length must be a whole number from 2 to 16777216"):
        check_length(length)
