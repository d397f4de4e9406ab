"""Ranks, top-1 and probabilities of next tokens: ties and logits that are not finite."""

import numpy as np
import pytest

from experiments.papers.associations import next_token
from experiments.papers.associations.row_file import RowFile
from jaxformer.core.errors import UserError

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


def test_rows_are_strict_json_and_resume_after_a_cut_line(tmp_path):
    rows = RowFile(tmp_path, {})
    with pytest.raises(ValueError, match="JSON"):
        rows.append({"matrix": "", "p_target": float("nan")})
    rows.append({"matrix": "", "p_target": None})
    rows.append({"matrix": "a", "p_target": 0.5})
    with pytest.raises(UserError, match="another process writes rows to"):
        RowFile(tmp_path, {})
    written = [{"matrix": "", "p_target": None}, {"matrix": "a", "p_target": 0.5}]
    assert rows.read() == written
    content = rows.file.read_bytes()
    del rows
    (tmp_path / "rows.jsonl").write_bytes(content[:-9])  # the line that a kill has cut
    rows = RowFile(tmp_path, {})
    assert rows.read() == written[:1]
    rows.append(written[1])
    assert rows.read() == written and rows.file.read_bytes() == content


def test_damaged_rows_are_refused_with_their_line(tmp_path):
    rows = RowFile(tmp_path, {})
    for value in (0.25, 0.5):
        rows.append({"matrix": "a", "p_target": value})
    first, second = rows.file.read_text().splitlines()
    for old, new in {
        "0.5": "0.6",
        '"matrix": "a", "p_target": 0.5': '"matrixx": "a", "p_target": 0.5',
        "0.5,": "NaN,",
        '"sha256"': '"sha257"',
        '{"matrix": "a", "p_target": 0.5': "\xff{" + "[" * 5000,
    }.items():
        assert old in second
        rows.file.write_text(f"{first}\n{second.replace(old, new)}\n")
        with pytest.raises(UserError, match="line 2 is damaged: ") as error:
            rows.read()
        assert "\n" not in str(error.value)
