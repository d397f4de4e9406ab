"""The pages agree with the records, and unusable records are named."""

import json
import re
import shutil

import pytest

from experiments import report
from experiments.cli import flags
from experiments.ledger import read, validate_record
from experiments.ledger.places import place
from experiments.ledger.rules import DIVERGED
from experiments.papers import PAPERS
from experiments.run import main
from experiments.site import paper_summaries, results_pages
from jaxformer.stats.members import record_number
from tests.experiments import made_up
from tests.experiments.conftest import TINY


def test_the_pages_are_up_to_date(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().out
    assert report.main(["--chek"]) == 2


@pytest.mark.parametrize("flag", ["--csv=new/x.csv", "--tables=new"])
def test_tables_without_records_are_refused_before_a_folder_is_made(
    flag, tmp_path, monkeypatch, capsys
):
    """An installed wheel has no records: 175 rows without a number are no table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "WORKSPACE", tmp_path)
    assert report.main([flag]) == 2
    error = capsys.readouterr().err
    assert "results has no usable record" in error and error.count("\n") == 1
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "runs").mkdir()
    assert report.main([flag, "--runs=runs", "--only-runs"]) == 2
    assert ": runs has no usable record" in capsys.readouterr().err


def test_an_installation_without_records_knows_the_verdicts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "IS_CLONE", False)
    monkeypatch.setattr(report, "WORKSPACE", tmp_path)
    assert report.main(["--only=Equation 15"]) == 0
    printed, note = capsys.readouterr()
    assert printed.startswith("Equation 15 (two_failure_modes): did not hold (")
    assert "required within" in printed and "to run: jaxformer run" in printed
    assert "whose records are in its repository" in note


def test_a_new_paper_has_a_results_page_before_it_has_an_introduction(tmp_path, monkeypatch):
    (tmp_path / "docs/papers").mkdir(parents=True)
    for name in ("README.md", "docs/findings.md"):
        shutil.copy(flags.ROOT / name, tmp_path / name)
    monkeypatch.setattr(report, "WORKSPACE", tmp_path)
    monkeypatch.setattr(report, "PAPERS", {"made_up": made_up.PAPER})
    assert "docs/results/made_up.md" in report.render([], [])
    introduction = tmp_path / "docs/papers/made_up.md"
    introduction.write_text("\n".join(["Made up.", *paper_summaries.MARKS]))
    assert "To the authors" not in report.render([], [])["docs/papers/made_up.md"]


def test_the_results_stay_small():
    """Everyone clones the results and reads their diffs, so long arrays are stored as CSV."""
    files = [file for file in (flags.ROOT / "results").rglob("*") if file.is_file()]
    large = [f.name for f in files if f.suffix == ".json" and f.stat().st_size >= 50_000]
    assert not large
    assert sum(file.stat().st_size for file in files) < 14_000_000


def test_every_record_counts_and_lies_in_its_place(real_records):
    assert [record.where for record in real_records if record.stale] == []
    for record in real_records:
        assert record.where == f"results/{place(vars(record))}.json"


def of_side(row, side):
    """Returns the number of a side, from its records alone."""

    def mean(cell):
        record = row.records[cell]
        if side.metric == DIVERGED:
            return sum(m["diverged_at"] is not None for m in record.members) / len(record.members)
        held = record.baselines if side.is_baseline else record.metrics
        return held[side.metric] if side.is_baseline else held[side.metric]["mean"]

    if side.among:
        return sum(map(mean, side.among)) / len(side.among)
    return side.times * (mean(side.cell) - (mean(side.minus) if side.minus else 0))


def has_number(row, side):
    """Whether the records have a side's metric; one record of the confirmation lacks one."""
    records = [row.records[cell] for cell in side.cells]
    return side.metric == DIVERGED or all(
        side.metric in (record.baselines if side.is_baseline else record.metrics)
        for record in records
    )


def test_every_number_of_the_pages_has_a_record_with_a_commit(
    real_records, real_rows, fresh_records
):
    records = real_records
    fresh = [record for by_cell in fresh_records.values() for record in by_cell.values()]
    items = [item for paper in PAPERS.values() for item in paper.items]
    rules = [rule for i in items for rule in (*i.rules.values(), *i.checks.values())]
    sides = [side for rule in rules for side in rule.sides]
    known = [side.value for side in sides if not side.cell]
    known += [v for record in (*records, *fresh) for v in record.baselines.values()]
    metrics = [m for record in (*records, *fresh) for m in record.metrics.values()]
    known += [m["mean"] for m in metrics if m["mean"] is not None]
    with_fresh = [
        row._replace(records=fresh_records[row.paper.key, row.item.name])
        for row in real_rows
        if (row.paper.key, row.item.name) in fresh_records
    ]
    for row in (*real_rows, *with_fresh):  # means over cells, shares and gaps
        rules_and_checks = (*row.item.rules.values(), *row.item.checks.values())
        known += [
            of_side(row, side)
            for rule in rules_and_checks
            for side in rule.sides
            if side.cell and {*side.cells} <= row.records.keys() and has_number(row, side)
        ]
    spelled = {f"{value:.4g}" for value in known}
    spelled |= {f"{value:.{places}f}" for value in known for places in range(7)}
    pages = {key: (flags.ROOT / f"docs/results/{key}.md").read_text() for key in PAPERS}
    for key, paper in PAPERS.items():
        assert len(
            re.findall(r"^\*\*[a-z ]+\*\*(?: \([^()]*\))?\. Claim", pages[key], re.M)
        ) == len(paper.items)
    compared, text = r"([\d.e±+ -]+ against [\d.e±+ -]+)", "\n".join(pages.values())
    numbers = re.findall(rf"^\| (?!\[)[^|]+ \| {compared} \|", text, re.M)  # tables of rules
    ours = rf"^\| \[[^|]+ \|(?: [^|]+ \|)?? {compared}, required"  # after the paper's, if any
    assert re.findall(ours, text, re.M) or not records
    numbers += re.findall(ours, text, re.M)
    assert len(numbers) > 10 or not records
    for text in numbers:
        assert {number.split(" ± ")[0] for number in text.split(" against ")} <= spelled, text
    assert all(len(record.environment["commit"]) == 40 for record in records)
    lines = (flags.ROOT / "RESULTS.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| [") and "](docs/results/" in line]
    assert len(rows) == sum(len(paper.items) for paper in PAPERS.values())
    assert max(map(len, rows)) <= results_pages.MAX_LINE_LENGTH
    for row in real_rows:
        assert f"\n## {row.item.name}\n" in pages[row.paper.key]
        assert f"{row.paper.key}.md#{results_pages.anchor(row)})" in "\n".join(rows)
    findings = (flags.ROOT / "docs/findings.md").read_text()
    block = findings[findings.index("<!-- numbers -->") : findings.index("<!-- /numbers -->")]
    tasks = ("decimal addition", "Dyck-1", "modular addition", "memorisation", "k-hop", "retrieval")
    assert f"| variant | {' | '.join(tasks)} |" in block
    shown = re.findall(r"\| \*?([\d.]+(?: ± [\d.e-]+)?)\*?(?= \|)", block)
    trained = [r for r in records if "accuracy" in r.metrics]
    shares = {
        record_number(r.metrics["accuracy"], r.members, "accuracy").percent() for r in trained
    }
    chance = {f"{100 * v:.1f}" for r in trained for v in r.baselines.values()}
    assert (shown or not records) and {*shown} <= shares | chance


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """Returns a results folder with one record of the finished run, written by the command."""
    monkeypatch.setattr("experiments.ledger.write.RESULTS", tmp_path / "results")
    workdir = shutil.copytree(finished, tmp_path / "run")  # a command locks the folder of its run
    assert main([*TINY, f"--workdir={workdir}", "--record"]) == 0
    return tmp_path / "results"


def test_a_record_shows_its_numbers_and_its_command(folder):
    (file,) = folder.rglob("*.json")
    assert json.loads(file.read_text())["schema"] == 2
    records, problems = read.load(folder)
    assert not problems and not records[0].stale
    assert [step for step, _ in records[0].curves["training"]["loss"]] == [10, 20, 30, 40, 50, 60]
    assert [step for step, _ in records[0].curves["validation"]["accuracy"]] == [20, 40, 60]
    text = "".join(report.render(records, problems).values())
    assert "| frozen_qk |" in text and "in context guess" in text
    config = TINY[0].removeprefix("--config=configs/").replace(".py", "")
    assert f"jaxformer run {config} --config.data.test_size=40" in text


def test_a_changed_config_makes_a_record_stale(folder):
    (file,) = folder.rglob("*.json")
    record = json.loads(file.read_text()) | {"config_hash": "0" * 12}
    file.write_text(json.dumps(record | {"sum": validate_record.sum_of(record)}))
    records, _ = read.load(folder)
    assert records[0].stale and "**stale**" in "".join(report.render(records, []).values())


@pytest.mark.parametrize(
    "content, message",
    [("{", "Expecting"), ('{"schema": 1}', "schema 1, this version reads 2"), ("{}", "schema")],
)
def test_records_that_cannot_be_used_are_named_and_the_rest_is_shown(folder, content, message):
    (folder / "damaged.json").write_text(content)
    records, problems = read.load(folder)
    assert len(records) == 1 and message in problems[0]
    assert "damaged.json" in report.render(records, problems)["RESULTS.md"]
