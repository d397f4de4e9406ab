"""The verdicts on the statements of the associations paper."""

import jax
import pytest

from experiments.papers.associations import theorems


def test_a_statement_holds_holds_with_another_constant_or_fails():
    verdicts = {
        (1.0, 2.0, 1.01): theorems.HOLDS,
        (1.0, 2.0, 2.01): theorems.CORRECTED,
        (1.0, 2.0, 3.0): theorems.FAILS,
        (1.0, -2.0, -2.01): theorems.FAILS,
    }
    for values, verdict in verdicts.items():
        assert theorems._judge("statement", values, 0.02).verdict == verdict, values


def test_a_mean_of_table_3_that_has_another_sign_fails():
    with jax.enable_x64(True):
        rows = theorems._table_3(0.3, 300, 1500, 0.05)
    (row,) = (row for row in rows if row.statement == "Table 3 (j,j): mu N^2")
    assert row.paper > 0 > row.measured and row.measured == pytest.approx(row.corrected, rel=0.05)
    assert [row.statement for row in rows if row.verdict == theorems.FAILS] == [row.statement]
