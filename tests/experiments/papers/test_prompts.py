"""Ranks, top-1 and probabilities of next tokens: ties and networks that are not finite."""

import json

import numpy as np
import pytest

from experiments.papers.associations import cutting, prompts

LOGS_3xV = np.log([[0.1, 0.6, 0.3], [0.2, 0.3, 0.5], [0.5, 0.2, 0.3]])


def test_a_rank_counts_the_likelier_tokens():
    targets_B = np.array([1, 1, 1])
    np.testing.assert_array_equal(prompts.ranks(LOGS_3xV, targets_B), [1, 2, 3])
    found = prompts.scores(LOGS_3xV, targets_B)
    assert found["rank_target"] == 2 and found["top_1"] == pytest.approx(1 / 3)
    assert "reason" not in found


@pytest.mark.parametrize("V", [2, 50])
def test_tied_tokens_share_the_mean_rank_and_the_top_1(V):
    equal_1xV = np.full((1, V), -np.log(V))
    assert prompts.ranks(equal_1xV, np.array([1])) == (V + 1) / 2
    assert prompts.top_1(equal_1xV, np.array([1])) == 1 / V


def test_a_tie_below_the_maximum_is_no_top_1():
    logs_1xV = np.log([[0.4, 0.2, 0.2, 0.2]])
    assert prompts.ranks(logs_1xV, np.array([3])) == 3
    assert prompts.top_1(logs_1xV, np.array([3])) == 0
    assert prompts.top_1(logs_1xV, np.array([0])) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_network_that_is_not_finite_has_no_scores(value):
    logs_BxV, targets_B = LOGS_3xV.copy(), np.array([1, 1, 1])
    logs_BxV[1, 0] = value
    assert np.isnan(prompts.ranks(logs_BxV, targets_B)).tolist() == [False, True, False]
    assert np.isnan(prompts.top_1(logs_BxV, targets_B)).tolist() == [False, True, False]
    found = prompts.scores(logs_BxV, targets_B, against=2)
    assert found.pop("reason") == "the logits after 1 of 3 prompts are not finite"
    assert set(found) == set(prompts.scores(LOGS_3xV, targets_B, against=2))
    assert set(found.values()) == {None}


def test_rows_are_strict_json(tmp_path):
    rows = cutting.Rows(tmp_path, {})
    with pytest.raises(ValueError, match="JSON"):
        rows.append({"matrix": "", "p_target": float("nan")})
    rows.append({"matrix": "", "p_target": None})
    assert rows.read() == [{"matrix": "", "p_target": None}]


def test_a_row_with_nan_of_an_older_version_is_measured_again(tmp_path):
    rows = cutting.Rows(tmp_path, {})
    rows.file.write_text('{"matrix": "", "p_target": NaN, "top_1": 1.0}\n')
    assert rows.read() == []
    rows.append({"matrix": "", "p_target": 0.5})
    assert [json.loads(line)["p_target"] for line in rows.file.read_text().splitlines()][1] == 0.5
