"""Confirmation: a frozen plan, seeds that its hash draws, and verdicts on the new records."""

import json
import shutil
import sys

import pytest

from experiments import confirm
from experiments.confirmation import judgement, plan, planning, published, runs
from experiments.ledger import validate_record
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, above, of, over
from experiments.site import paper_pages, results_pages
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import json_value
from jaxformer.training.metrics import over_seeds
from tests.experiments.made_up import population

RETRIEVAL = "configs/mixit/retrieval.py:variant="
A, B = (Cell(RETRIEVAL + name, scales=("small",)) for name in ("standard", "frozen_qk"))
SPLITS = {f"split {k}": A._replace(overrides={"data.seed": str(k)}) for k in (1, 2)}
PAPER = Paper(
    "p",
    "title",
    "source",
    (
        Item("Table 1", "A wins.", {"A": A, "B": B}, {"A wins": above(of("A"), of("B"), 0.1)}),
        Item("Table 2", "B is right.", {"B": B}, {"B is right": above(of("B"), 0.9)}),
        Item("Table 3", "On splits.", SPLITS, {"splits": above(over([*SPLITS], "accuracy"), 0.5)}),
    ),
)
PAPERS = {"p": PAPER}
EXPLORED = {"standard": (0.98, 0.97, 0.99), "frozen_qk": (0.51, 0.50, 0.49)}


def scores_of(config: str, n: int, reversed_too: bool = False):
    variant = "standard" if ("standard" in config) != reversed_too else "frozen_qk"
    middle = EXPLORED[variant][0]
    return [middle + 0.004 * (i % 3 - 1) for i in range(n)]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan and the file that holds it."""
    records = []
    for cell in (A, B, *SPLITS.values()):
        variant = cell.config.partition("=")[2]
        made = population(f"{cell.config},scale=small", cell.overrides, EXPLORED[variant])
        records.append(Record.from_json(made))
    rows = ledger(PAPERS, records)
    assert [row.verdict for row in rows] == [HELD, NOT_HELD, HELD]
    file = tmp_path_factory.mktemp("confirmation") / "PLAN.json"
    made = planning.make("test-1", rows)
    plan.write(made, file)
    return made, file


def write_results(planned, folder, *, reversed_too=False, seeds=0, skip=()):
    for name, run in planned.runs.items():
        if name not in skip:
            overrides = runs.overrides_with_seeds(planned.hash, run)
            scores = scores_of(run.config, seeds or run.seeds, reversed_too)
            file = runs.record_file(folder, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(population(run.config, overrides, scores)))


def test_a_plan_freezes_rate_seeds_and_a_larger_test_set(planned):
    made, file = planned
    assert plan.read(file) == made
    plan.check(made, PAPERS)
    row = next(row for row in made.rows if row.item == "Table 1")
    (run,) = (made.runs[name] for name in row.cells["A"])
    assert run.overrides == {"optim.learning_rate": "(0.01,)", "data.test_size": "40000"}
    assert run.seeds >= row.seeds >= planning.LEAST_SEEDS
    splits = next(row for row in made.rows if row.item == "Table 3")
    assert len(splits.runs) >= 5, "the splits are the sample"


def test_seeds_are_drawn_from_the_hash_and_shared_as_before(planned):
    made, _ = planned
    seeds = [runs.overrides_with_seeds(made.hash, run) for run in made.runs.values()]
    of_table_1 = {s["seed"] for s in seeds if s["data.seed"] == seeds[0]["data.seed"]}
    assert len({s["data.seed"] for s in seeds}) > 3 and of_table_1
    other = runs.overrides_with_seeds("another hash", next(iter(made.runs.values())))
    assert other["seed"] != seeds[0]["seed"]
    assert runs.drawn(made.hash, "seed", 0, 0) == runs.drawn(made.hash, "seed", 0, 0) < 1_000_000


def test_new_records_confirm_or_reverse_a_row(planned, tmp_path):
    made, _ = planned
    outcomes = {}
    for name, options in {"same": {}, "other": {"reversed_too": True}}.items():
        write_results(made, tmp_path / name, **options)
        judged = judgement.judge(made, PAPERS, tmp_path / name)
        outcomes[name] = {row.item: row.outcome for row in judged}
    assert set(outcomes["same"].values()) == {judgement.CONFIRMED}
    assert outcomes["other"]["Table 1"] == outcomes["other"]["Table 2"] == judgement.REVERSED
    file = tmp_path / "VERDICTS.json"
    judgement.write(made, judged, file)
    assert judgement.read(file)[0] == made.hash and judged[0].outcome == judgement.REVERSED
    file.write_text(file.read_text().replace("reversed", "confirmed"))
    with pytest.raises(UserError, match="was edited"):
        judgement.read(file)


def test_the_pages_show_confirmations_with_reversed_rows_first(planned, tmp_path):
    made, file = planned
    rows = ledger(PAPERS, [])
    assert published.read(tmp_path) == {}
    shutil.copy(file, tmp_path)
    waiting = published.read(tmp_path)
    assert {row.outcome for row in waiting.values()} == {judgement.NOT_YET_RUN}
    text = results_pages.results(published.with_confirmations(rows, tmp_path), [], [])
    assert "made afterwards for 3 rows: 3 not yet run." in text and "## Confirmations" not in text

    write_results(made, tmp_path / "records", reversed_too=True)
    judged = judgement.judge(made, PAPERS, tmp_path / "records")
    judgement.write(made, judged, tmp_path / "VERDICTS.json")
    shown = published.read(tmp_path)
    assert [row.item for row in shown.values()] == [row.item for row in judged]
    confirmed = published.with_confirmations(rows, tmp_path)
    text = results_pages.results(confirmed, [], [])
    listed = [line for line in text.splitlines() if line.startswith("- **")]
    assert len(listed) == 3 and "(reversed; 5 new seeds; first runs: held" in listed[0]
    assert listed[0].startswith("- **did not hold**: [Table 1]"), "the fresh verdict comes first"
    assert "5 new seeds: reversed. The first runs: held." in paper_pages.paper_page(
        PAPER, confirmed, [], {}
    )

    verdicts = (tmp_path / "VERDICTS.json").read_text()
    other = made._replace(name="test-2")
    judgement.write(plan.with_hash(other), judged, tmp_path / "VERDICTS.json")
    for text, words in (
        (None, "belongs to another plan"),
        (verdicts.replace("held", "hold"), "was"),
    ):
        if text:
            (tmp_path / "VERDICTS.json").write_text(text)
        with pytest.raises(UserError, match=words) as error:
            published.read(tmp_path)
        assert "\n" not in str(error.value)


def test_a_row_without_all_its_runs_is_not_yet_judged(planned, tmp_path):
    made, _ = planned
    missing = next(iter(next(row for row in made.rows if row.item == "Table 1").cells["A"]))
    write_results(made, tmp_path / "records", skip=(missing,))
    judged = {row.item: row for row in judgement.judge(made, PAPERS, tmp_path / "records")}
    assert judged["Table 1"].outcome == judgement.NOT_YET_RUN
    assert judged["Table 2"].outcome == judgement.CONFIRMED


def test_a_changed_plan_rule_config_code_or_result_is_a_one_line_error(
    planned, tmp_path, monkeypatch
):
    made, file = planned
    name, run = next(iter(made.runs.items()))
    edited = tmp_path / "PLAN.json"
    edited.write_text(file.read_text().replace('"seeds": 5', '"seeds": 6', 1))
    softer = PAPER.items[0]._replace(rules={"A wins": above(of("A"), of("B"), 0.01)})
    changed = {"p": PAPER._replace(items=(softer, *PAPER.items[1:]))}
    overrides = runs.overrides_with_seeds(made.hash, run)
    wrong = {
        "seeds": population(
            run.config, overrides | {"seed": "0"}, scores_of(run.config, run.seeds)
        ),
        "extended": population(run.config, overrides, scores_of(run.config, run.seeds + 3)),
        "edited": population(run.config, overrides, scores_of(run.config, run.seeds))
        | {"sum": "0"},
        "a list": [],
    }
    wrong["without a checksum"] = {n: v for n, v in wrong["edited"].items() if n != "sum"}
    cases = [
        ("its hash does not fit", lambda: plan.read(edited)),
        ("holds another plan", lambda: plan.write(made._replace(hash="0"), file)),
        ("rules or cells of p: Table 1 have changed", lambda: plan.check(made, changed)),
    ]
    for reason, problem in (
        ("seeds", "another config or other seeds"),
        ("extended", f"the plan test-1 fixes {run.seeds}"),
        ("edited", "it was edited"),
        ("without a checksum", "it was edited: it has no checksum"),
        ("a list", "not a record"),
    ):
        folder = tmp_path / reason
        folder.mkdir()
        (folder / f"{name}.json").write_text(json.dumps(wrong[reason]))
        cases.append((problem, lambda folder=folder: runs.read_records(made, folder, [name])))
    for words, action in cases:
        with pytest.raises(UserError) as error:
            action()
        assert words in str(error.value) and "\n" not in str(error.value), words
    monkeypatch.setattr(plan, "digest_without_seeds", lambda *_: "other")
    with pytest.raises(UserError, match=r"the config configs/mixit/retrieval.py.* has changed"):
        plan.check(made, PAPERS)
    monkeypatch.setattr(plan, "JUDGING_MODULES", plan.JUDGING_MODULES[:-1])
    with pytest.raises(UserError, match=r"was made with another version of differences\.py"):
        plan.check(made, PAPERS)


def remove_a_member(record):
    record["members"].pop()


def double_a_member(record):
    record["members"][1] = record["members"][0]


def replace_the_seeds(record):
    record["seeds"] = [seed + 1 for seed in record["seeds"]]


def improve_the_mean(record):
    record["metrics"]["accuracy"]["mean"] += 0.01


def shrink_the_error(record):
    record["metrics"]["accuracy"]["sem"] /= 2


def make_a_score_a_number(record):
    record["members"][0]["metrics"]["accuracy"] = 0.9


@pytest.mark.parametrize(
    "edit, words",
    [
        (make_a_score_a_number, "a member has an odd form"),
        (remove_a_member, "its members have the seeds"),
        (double_a_member, "its members have the seeds"),
        (replace_the_seeds, "its seeds are"),
        (improve_the_mean, "its accuracy is not the mean of its members"),
        (shrink_the_error, "its accuracy is not the mean of its members"),
    ],
)
def test_an_edited_record_with_a_new_checksum_is_refused(planned, tmp_path, edit, words):
    made, _ = planned
    write_results(made, tmp_path)
    name = next(iter(made.runs))
    file = runs.record_file(tmp_path, name)
    assert runs.read_records(made, tmp_path, [name])
    record = json.loads(file.read_text())
    edit(record)
    record["sum"] = validate_record.sum_of(record)
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"was edited: {words}"):
        runs.read_records(made, tmp_path, [name])


def test_a_member_that_diverged_may_be_missing_from_the_means(planned, tmp_path):
    """Recall runs leave it out, and others count its last good state."""
    made, _ = planned
    write_results(made, tmp_path)
    name = next(iter(made.runs))
    file = runs.record_file(tmp_path, name)
    record = json.loads(file.read_text())
    record["members"][0]["diverged_at"] = 7
    values = [member["metrics"]["accuracy"]["mean"] for member in record["members"][1:]]
    record["metrics"]["accuracy"] = json_value(over_seeds(values))
    record["sum"] = validate_record.sum_of(record)
    file.write_text(json.dumps(record))
    assert runs.read_records(made, tmp_path, [name])


def test_a_row_is_judged_by_the_seeds_of_its_plan():
    made = population(f"{A.config},scale=small", {}, (0.9, 0.8, 0.7, 0.1))
    first = runs.of_first_seeds(Record.from_json(made), 3)
    assert first.metrics["accuracy"]["mean"] == pytest.approx(0.8) and len(first.seeds) == 3
    whole = Record.from_json(made)
    again = runs.of_first_seeds(whole, 4)
    assert again.metrics == whole.metrics


def test_claims_are_imported_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "claims_here.py").write_text(
        "from experiments.ledger.item import Item, Paper\n"
        "CLAIMS = Paper('p', 't', 's', (Item('Table 1', 'c.', defines='d'),))\n"
        "NUMBER = 3\n"
    )
    (tmp_path / "broken_claims.py").write_text("CLAIMS = 1 / 0\n")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.chdir(tmp_path)
    assert [*confirm.load_claims("claims_here")] == ["p"]
    for text, words in (
        ("claims_here:NUMBER", "must be a Paper"),
        ("broken_claims", "ZeroDivisionError"),
    ):
        with pytest.raises(UserError, match=words) as error:
            confirm.load_claims(text)
        assert "\n" not in str(error.value)


def test_a_rule_that_cannot_fail_is_refused(tmp_path, monkeypatch):
    (tmp_path / "my_claims.py").write_text(
        "from experiments.ledger.item import Cell, Item, Paper\n"
        "from experiments.ledger.rules import above, of\n"
        "CELLS = {'a': Cell('configs/mixit/retrieval.py:variant=standard')}\n"
        "def paper(rule):\n"
        "    return Paper('p', 't', 's', (Item('Table 1', 'c.', CELLS, {'easy': rule}),))\n"
        "CLAIMS = paper(above(of('a'), 0.5))\n"
        "EASY = paper(above(of('a'), -0.5))\n"
        "SAME = paper(above(of('a'), of('a'), -0.1))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [*confirm.load_claims("my_claims:CLAIMS")] == ["p"]
    for name in ("EASY", "SAME"):
        with pytest.raises(UserError, match="a rule of p Table 1 cannot fail: 'easy'"):
            confirm.load_claims(f"my_claims:{name}")
    with pytest.raises(UserError, match="--claims=my_claims:NONE"):
        confirm.load_claims("my_claims:NONE")
    with pytest.raises(UserError, match="--claims=no_such_module"):
        confirm.load_claims("no_such_module")


def test_a_budget_that_is_too_small_is_a_one_line_error(planned, tmp_path, capsys, monkeypatch):
    _, file = planned
    monkeypatch.setattr(confirm, "PAPERS", PAPERS)
    code = confirm.main(["run", f"--plan={file}", "--budget=1s", f"--workdir={tmp_path}"])
    error = capsys.readouterr().err
    assert code == 2 and "a budget of 1 s is too small" in error and error.count("\n") == 1


def test_only_some_rows_of_a_plan_are_run(planned, tmp_path, capsys, monkeypatch):
    made, file = planned
    started = []
    monkeypatch.setattr(confirm, "PAPERS", PAPERS)
    monkeypatch.setattr(confirm, "run_all", lambda left, *_: started.extend(left) or 0)
    row = made.rows[-1]
    flags = [f"--plan={file}", f"--workdir={tmp_path}"]
    assert confirm.main(["run", f"--only={row.item}", *flags]) == 0
    assert len(started) == len(row.runs) < len(made.runs)
    assert confirm.main(["run", "--only=Tabel 1", *flags]) == 2
    assert "unknown row of the plan 'Tabel 1'" in capsys.readouterr().err


def test_runs_of_some_rows_that_are_done_are_counted(planned, tmp_path, capsys, monkeypatch):
    made, file = planned
    monkeypatch.setattr(confirm, "PAPERS", PAPERS)
    row = made.rows[-1]
    copy = shutil.copy(file, tmp_path)
    write_results(made, tmp_path / "records", skip=made.runs.keys() - row.runs)
    flags = [f"--only={row.item}", f"--plan={copy}", f"--workdir={tmp_path / 'runs'}"]
    assert confirm.main(["run", *flags]) == 0
    expected = f"all {len(row.runs)} runs of the rows '{row.item}' of test-1 are done"
    assert expected in capsys.readouterr().out
