"""Which updates are enough: known truths of made scores, and the plan of the trainings."""

import math

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import run as run_study
from jaxformer.studies.finetuning import judge
from jaxformer.studies.finetuning.judge import Cell
from jaxformer.studies.finetuning.report import FinetuningReport
from jaxformer.studies.finetuning.study import Study
from jaxformer.studies.finetuning.training import Tuned, of_json
from jaxformer.studies.finetuning.updates import FULL, Update

TEXTS, SEEDS = 40, 3
ATTENTION = Update("attention", ".*/attn/.*", 4)
MLP = Update("MLP", ".*/mlp/.*")
NORMS = Update("norms", r".*norm/.*")
HARDNESS = 1.2 + 0.5 * np.random.default_rng(0).standard_normal(TEXTS)  # far more than any gain


def scores(share, seed, gain=0.1, noise=0.002):
    """Bits per byte after an update that keeps this share of a gain."""
    draw = np.random.default_rng([seed, round(1000 * (1 + share))])
    return HARDNESS - share * gain + noise * draw.standard_normal(TEXTS)


def cell(update, share, seeds=SEEDS, **more):
    return Cell(update, {seed: scores(share, seed, **more) for seed in range(seeds)}, 1e-3)


def table_of(*cells, **more):
    return judge.judged(HARDNESS, cell(FULL, 1.0, **more), cells, margin=0.05)


def test_shares_come_with_intervals_that_contain_the_truth():
    rows = table_of(cell(ATTENTION, 0.6), cell(MLP, 1.0), cell(NORMS, 0.2)).rows
    for row, truth in zip(rows, (0.6, 1.0, 0.2), strict=True):
        assert abs(row.share - truth) <= row.half_width < 0.04
    assert [row.outcome for row in rows] == ["worse", "no worse", "worse"]


def test_texts_of_different_difficulty_are_compared_one_by_one():
    (row,) = table_of(cell(MLP, 0.8)).rows
    assert row.outcome == "worse"
    # As independent means, the same scores could not tell 0.8 from 1.
    spread = HARDNESS.std() / math.sqrt(TEXTS) / 0.1
    assert spread > 0.5 > 10 * row.half_width


def test_a_share_at_the_margin_and_a_single_seed_stay_open():
    assert [row.outcome for row in table_of(cell(MLP, 0.95)).rows] == ["open"]
    (row,) = table_of(cell(MLP, 0.2, seeds=1)).rows
    assert row.outcome == "open" and math.isnan(row.half_width)
    assert row.share == pytest.approx(0.2, abs=0.02)


def test_the_error_between_texts_counts_even_if_all_seeds_agree():
    half = HARDNESS - 0.1 * (np.arange(TEXTS) < TEXTS / 4)  # a quarter of the texts gains all
    same = Cell(MLP, dict.fromkeys(range(SEEDS), half), 1e-3)
    (row,) = table_of(same).rows
    assert row.share == pytest.approx(0.25, abs=0.02) and 0.08 < row.half_width < 0.25


class Trainer:
    """Knows what each update gains at each rate; trains nothing."""

    class settings:
        steps = 10

    def __init__(self):
        self.gains = {FULL: 1.0, MLP: 1.0, ATTENTION: 0.95, NORMS: 0.2}  # of the best rate
        self.trained = []

    def untrained(self):
        return Tuned(list(HARDNESS), float(HARDNESS.mean()), [], None, 0.0)

    def train(self, update, seed, rate):
        self.trained.append((update.name, seed, rate))
        share = self.gains[update] * (1 if rate == 1e-3 else 0.3)
        test = list(scores(share, seed))
        return Tuned(test, float(np.mean(test)), [2.0, 1.0], None, 1.0)


def study_of(store, trainer=None):
    rates = lambda update: (1e-3,) if update == FULL else (1e-3, 1e-2)  # noqa: E731
    updates = [FULL, MLP, ATTENTION, NORMS]
    return Study(trainer or Trainer(), updates, rates, store, 8, 0.05)


def test_seeds_go_to_open_comparisons_only():
    study = study_of(Store(None))
    assert run_study(study, math.inf)
    seeds = {name: 0 for name, _, _ in study.trainer.trained}
    for name, seed, _ in study.trainer.trained:
        seeds[name] = max(seeds[name], seed + 1)
    assert seeds == {
        "everything, full": 8,
        "attention, rank 4": 8,  # at the margin
        "MLP, full": 3,
        "norms, full": 3,
    }
    assert {row.cell.rate for row in study.table().rows} == {1e-3}
    assert study.minimum() == 3 + 3 * 4


def test_a_stopped_study_continues_where_it_was(tmp_path):
    first = study_of(Store(tmp_path, of_json))
    assert not run_study(first, 0.0)
    assert len(first.trainer.trained) == 1
    again = study_of(Store(tmp_path, of_json))
    run_study(again, math.inf)
    assert first.trainer.trained[0] not in again.trainer.trained
    third = study_of(Store(tmp_path, of_json))
    run_study(third, math.inf)
    assert not third.trainer.trained
    assert [row.share for row in third.table().rows] == [row.share for row in again.table().rows]


def test_a_model_that_learns_nothing_is_a_one_line_error():
    trainer = Trainer()
    trainer.gains[FULL] = -0.1
    with pytest.raises(UserError, match="nothing to explain: after 10 steps of everything"):
        run_study(study_of(Store(None), trainer), math.inf)


def test_a_seed_that_diverged_decides_nothing():
    store = Store(None)
    study = study_of(store)
    run_study(study, math.inf)
    broken = store.get(MLP, 1, 1e-3)._replace(diverged_at=3)
    store.put(MLP, 1, 1e-3, broken)
    (row,) = [row for row in study.table().rows if row.cell.update == MLP]
    assert row.outcome == "open" and row.cell.score.n == 1


def test_the_opening_says_where_training_everything_gains_nothing_on_the_test_texts():
    """Validation texts gained, or the study would not have begun; these are others."""
    report = FinetuningReport("tiny", table_of(cell(MLP, 0.9), gain=-0.1), {"mlp": np.zeros(2)})
    assert report.opening.startswith("Training everything does not lower ")
    assert report.opening.endswith(" (3 seeds, learning rate 0.001).")
    one = judge.judged(HARDNESS, cell(FULL, 1.0, seeds=1), [], 0.05)
    opening = FinetuningReport("tiny", one, {}).opening
    assert opening.startswith("Training everything lowers ") and "(1 seed, " in opening


def test_a_report_states_decided_updates_by_size():
    shapes = {
        f"block_{i}": {
            "attn": {"query": {"kernel": np.zeros((8, 8))}},
            "mlp": {"in": {"kernel": np.zeros((8, 32))}},
            "mlp_norm": {"scale": np.zeros(8)},
        }
        for i in range(2)
    }
    table = table_of(cell(ATTENTION, 0.6), cell(MLP, 1.0), cell(NORMS, 0.95))
    report = FinetuningReport("model on text", table, shapes)
    assert [s.split(":")[0] for s in report.sentences] == [
        "A full update of the MLPs is enough",
        "A rank-4 update of attention is not enough",
    ]
    assert "of the gain, with 78 % of the parameters." in report.sentences[0]
    assert "cannot tell yet" in str(report) and str(report).startswith("Training everything lowers")
    assert repr(report) == str(report)  # what an interpreter shows
    page = report.to_html()
    assert "is not enough" in page and page.count("<svg") == 3
    assert report.to_csv().splitlines()[0].startswith("part,update,trained,memory,share,half_width")
