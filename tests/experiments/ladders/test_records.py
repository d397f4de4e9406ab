"""Verdicts from records, and records that do not count."""

import json
import math

import pytest

from experiments.confirmation.runs import overrides_with_seeds, record_file
from experiments.ladders import runs, table
from experiments.ledger import validate_record
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN, OPEN
from tests.experiments.ladders.small import LADDER, scores
from tests.experiments.made_up import population


def write_records(made, folder, turn=1, change=lambda content, size, cell: content, skip=()):
    folder.mkdir(exist_ok=True)
    for rung, cells in zip(LADDER.rungs, made.rungs["pairs"], strict=True):
        for cell, (name,) in cells.items():
            if (rung.size, cell) in skip:
                continue
            run = made.runs[name]
            overrides = overrides_with_seeds(made.hash, run)
            content = population(run.config, overrides, scores(cell, rung.size, turn))
            content = change(content, rung.size, cell)
            content.pop("sum")
            content["sum"] = validate_record.sum_of(content)
            record_file(folder, name).write_text(json.dumps(content))


def judged(made, folder):
    (one,) = runs.judge_all(made, {"pairs": LADDER}, folder, folder / "runs")
    return one


def test_records_with_the_claimed_trend_hold_and_those_with_the_opposite_one_do_not(
    planned, tmp_path
):
    made, _ = planned
    write_records(made, tmp_path / "as claimed")
    grows = judged(made, tmp_path / "as claimed")
    assert grows.verdict == HELD and grows.is_complete
    assert grows.slope.mean == pytest.approx(0.1) and grows.slope.low > 0.09
    assert grows.predicted.mean == pytest.approx(0.28 + 0.1 * math.log2(30 / 8))
    text = table.sentence(grows)
    assert "at the paper's size, 30, the trend predicts 0.471" in text
    assert "an extrapolation by a factor of 1.88; published 0.888" in text
    write_records(made, tmp_path / "opposite", turn=-1)
    assert judged(made, tmp_path / "opposite").verdict == NOT_HELD


def test_a_diverged_seed_leaves_its_size_out_and_says_so(planned, tmp_path):
    made, _ = planned

    def diverge(content, size, cell):
        if (size, cell) == (8, "mixit"):
            content["members"][2]["diverged_at"] = 70
        return content

    write_records(made, tmp_path / "records", change=diverge)
    one = judged(made, tmp_path / "records")
    assert one.verdict == OPEN and one.slope is None and one.is_complete
    seed = one.measured[1].problem
    assert seed.startswith("mixit: seed ") and seed.endswith("diverged")
    assert any("M, pairs = 8 does not count: mixit: seed" in line for line in table.details(one))


def test_a_size_at_which_the_task_is_not_solved_is_left_out(planned, tmp_path):
    """Two variants that both fail have no gap, which would look like a gap that closes."""
    made, _ = planned

    def fail(content, size, cell):
        if size < 16 or cell == "mixit":
            return content
        overrides = content["overrides"]
        return population(content["config_file"], overrides, [0.3, 0.31, 0.32, 0.33, 0.34])

    write_records(made, tmp_path / "records", change=fail)
    one = judged(made, tmp_path / "records")
    assert one.measured[2].problem == "standard reaches 0.32, so the task is not solved"
    assert one.verdict == OPEN


def test_a_record_of_other_packages_is_not_used(planned, tmp_path):
    made, _ = planned

    def older(content, size, cell):
        content["environment"]["versions"] = {"jax": "0.9" if size == 16 else "0.10"}
        return content

    write_records(made, tmp_path / "records", change=older)
    one = judged(made, tmp_path / "records")
    assert "ran with other versions of jax: run it again" in one.measured[2].problem


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content | {"seeds": content["seeds"][:4]}, "4 seeds, the plan"),
        (lambda content: content | {"config_hash": "0" * 12}, "another config or other seeds"),
        (lambda content: content | {"schema": 1}, "schema 1, this version reads"),
    ],
)
def test_a_foreign_record_says_what_to_do_and_does_not_stop_the_others(
    planned, tmp_path, change, words
):
    made, _ = planned
    write_records(
        made,
        tmp_path / "records",
        change=lambda content, size, cell: change(content) if size == 8 else content,
    )
    one = judged(made, tmp_path / "records")
    assert words in one.measured[1].problem and "jaxformer ladder run" in one.measured[1].problem
    assert one.measured[0].counts and one.measured[2].counts and one.verdict == NOT_RUN


def test_an_interrupted_size_says_that_run_resumes_it(planned, tmp_path):
    made, _ = planned
    write_records(made, tmp_path / "records", skip={(16, "mixit")})
    half = judged(made, tmp_path / "records")
    assert table.details(half)[-1] == "M, pairs = 16 does not count: 1 of 2 runs are recorded"
    folder = tmp_path / "records/runs"
    (job,) = (
        job
        for name, job in runs.jobs_by_cost(made, folder, ["pairs"], on_card=False).items()
        if name == made.rungs["pairs"][2]["mixit"][0]
    )
    job.workdir.mkdir(parents=True)
    (job.workdir / "config.json").write_text("{}")
    assert "interrupted" in judged(made, tmp_path / "records").measured[2].problem
