"""Ranks, top-1 and probabilities of next tokens: ties and logits that are not finite."""

import json

import numpy as np
import pytest

from experiments.papers.associations import laser_search, next_token

LOGS_3xV = np.log([[0.1, 0.6, 0.3], [0.2, 0.3, 0.5], [0.5, 0.2, 0.3]])


def test_a_rank_counts_the_likelier_tokens():
    targets_B = np.array([1, 1, 1])
    np.testing.assert_array_equal(next_token.ranks(LOGS_3xV, targets_B), [1, 2, 3])
    scores = next_token.scores(LOGS_3xV, targets_B)
    assert scores["rank_target"] == 2 and scores["top_1"] == pytest.approx(1 / 3)
    assert "reason" not in scores


def test_tied_tokens_share_the_mean_rank_and_the_top_1():
    for V in (2, 50):
        equal_1xV = np.full((1, V), -np.log(V))
        assert next_token.ranks(equal_1xV, np.array([1])) == (V + 1) / 2
        assert next_token.top_1(equal_1xV, np.array([1])) == 1 / V


def test_a_tie_below_the_maximum_scores_no_top_1():
    logs_1xV = np.log([[0.4, 0.2, 0.2, 0.2]])
    assert next_token.ranks(logs_1xV, np.array([3])) == 3
    assert next_token.top_1(logs_1xV, np.array([3])) == 0
    assert next_token.top_1(logs_1xV, np.array([0])) == 1


def test_logits_that_are_not_finite_have_no_scores():
    targets_B = np.array([1, 1, 1])
    for value in (np.nan, np.inf, -np.inf):
        logs_BxV = LOGS_3xV.copy()
        logs_BxV[1, 0] = value
        assert np.isnan(next_token.ranks(logs_BxV, targets_B)).tolist() == [False, True, False]
        assert np.isnan(next_token.top_1(logs_BxV, targets_B)).tolist() == [False, True, False]
        scores = next_token.scores(logs_BxV, targets_B, against=2)
        assert scores.pop("reason") == "the logits after 1 of 3 prompts are not finite"
        assert set(scores) == set(next_token.scores(LOGS_3xV, targets_B, against=2))
        assert set(scores.values()) == {None}


def test_rows_are_strict_json(tmp_path):
    rows = laser_search.RowFile(tmp_path, {})
    with pytest.raises(ValueError, match="JSON"):
        rows.append({"matrix": "", "p_target": float("nan")})
    rows.append({"matrix": "", "p_target": None})
    assert rows.read() == [{"matrix": "", "p_target": None}]


def test_a_row_with_nan_counts_as_not_measured(tmp_path):
    rows = laser_search.RowFile(tmp_path, {})
    rows.file.write_text('{"matrix": "", "p_target": NaN, "top_1": 1.0}\n')
    assert rows.read() == []
    rows.append({"matrix": "", "p_target": 0.5})
    assert [json.loads(line)["p_target"] for line in rows.file.read_text().splitlines()][1] == 0.5
