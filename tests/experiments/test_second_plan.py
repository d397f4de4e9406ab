"""Plans of schema 2: the claim in the digest, a random value in the seeds, and reversals."""

import shutil
from pathlib import Path

import pytest

from experiments import confirm
from experiments.confirmation import judgement, plan, planning, published, runs
from experiments.ledger.confirmed import CONFIRMED, NOT_CONFIRMED, REVERSED
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, above, computed, of
from jaxformer.core.errors import UserError
from tests.experiments.made_up import population
from tests.experiments.test_confirm import write_record_of

A = Cell("configs/mixit/retrieval.py:variant=standard", scales=("small",))
RULES = {"A is right": above(of("A"), 0.9)}
CONSTANT = Cell("configs/mixit/retrieval.py:variant=frozen_qk", scales=("small",))
PAPER = Paper(
    "p",
    "title",
    "source",
    (
        Item("Table 1", "A is right.", {"A": A}, RULES),
        Item("Lemma 1", "It is 2.", {"B": CONSTANT}, {"it": above(computed("B", "it"), 1.0)}),
    ),
)
PAPERS = {"p": PAPER}


@pytest.fixture(scope="module")
def rows():
    explored = Record.from_json(population(f"{A.config},scale=small", {}, (0.95, 0.96, 0.97)))
    constant = Record.from_json(population(f"{CONSTANT.config},scale=small", {}, (0.5, 0.5)))
    constant.metrics["it"] = {"mean": 2.0, "sem": None, "n": 1}
    return ledger(PAPERS, [explored, constant])


@pytest.fixture(scope="module")
def file(rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("second") / "PLAN.json"
    plan.write(planning.make("test-2", rows, schema=plan.SECOND), file)
    return file


@pytest.fixture
def drawn(file, tmp_path):
    """Returns a plan whose random value is drawn, and its folder."""
    copy = Path(shutil.copy(file, tmp_path))
    plan.draw_value(copy)
    return plan.read(copy), tmp_path


def test_a_plan_or_a_value_that_cannot_be_read_is_a_one_line_error(drawn):
    _, folder = drawn
    (folder / "VALUE").write_bytes(b"\xff\xfe")
    deep = folder / "deep.json"
    deep.write_text("[" * 100_000)
    cases = {"VALUE is damaged: it is no text": "PLAN.json", "not a plan of confirm": deep.name}
    for words, name in cases.items():
        with pytest.raises(UserError, match=words) as error:
            plan.read(folder / name)
        assert "\n" not in str(error.value)


def test_a_constant_is_not_planned(rows, file):
    assert [row.verdict for row in rows] == [HELD, HELD]
    assert [row.item for row in plan.read(file).rows] == ["Table 1"]


def test_a_claim_that_is_reworded_makes_the_plan_invalid(file):
    made = plan.read(file)
    plan.check(made, PAPERS)
    softer = PAPER.items[0]._replace(claim="A is nearly right.")
    with pytest.raises(UserError, match=r"the claim, rules or cells of p: Table 1 have changed"):
        plan.check(made, {"p": PAPER._replace(items=(softer,))})


def test_nobody_knows_the_seeds_before_the_plan_is_committed(file, tmp_path, capsys):
    copies = [shutil.copy(file, tmp_path / f"{i}.json") for i in "ab"]
    made = plan.read(copies[0])
    with pytest.raises(UserError, match="has no random value for its seeds: commit the plan"):
        runs.jobs(made, tmp_path)
    drawn_seeds = []
    for copy in copies:
        (tmp_path / "VALUE").unlink(missing_ok=True)
        assert confirm.main(["draw", f"--plan={copy}"]) == 0
        found = plan.read(copy)
        (run,) = found.runs.values()
        drawn_seeds.append(runs.overrides_with_seeds(runs.seed_source(found), run)["seed"])
    assert drawn_seeds[0] != drawn_seeds[1]
    capsys.readouterr()
    assert confirm.main(["draw", f"--plan={copies[1]}"]) == 2
    error = capsys.readouterr().err
    assert "must not be drawn again" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "scores, outcome",
    [
        ((0.95, 0.96, 0.97, 0.96, 0.95), CONFIRMED),
        ((0.91, 0.95, 0.85, 0.93, 0.92), NOT_CONFIRMED),
        # Undecided, and on the other side of the border.
        ((0.89, 0.92, 0.85, 0.88, 0.90), REVERSED),
    ],
)
def test_a_row_is_reversed_by_numbers_on_the_other_side(drawn, scores, outcome):
    made, folder = drawn
    (run,) = made.runs.values()
    write_record_of(made, folder / "records", (scores * 5)[: run.seeds])
    (judged,) = judgement.judge(made, PAPERS, folder / "records")
    assert judged.outcome == outcome and judged.fresh == f"{run.seeds} new seeds"
    judgement.write(made, [judged], folder / "VERDICTS.json")
    (row,) = published.with_confirmations(
        [row for row in ledger(PAPERS, []) if row.item.name == "Table 1"], folder
    )
    assert row.confirmed and row.confirmed.outcome == outcome


def test_the_plan_of_a_subfolder_is_shown_too(drawn):
    _, folder = drawn
    (folder / "second").mkdir()
    for name in ("PLAN.json", "VALUE"):
        shutil.move(folder / name, folder / "second" / name)
    rows = published.with_confirmations(ledger(PAPERS, []), folder)
    assert [row.confirmed is not None for row in rows] == [True, False]
