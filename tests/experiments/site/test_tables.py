"""The numbers of the ledger as CSV and LaTeX."""

import csv
import shutil
import subprocess

import numpy as np
import pytest

from experiments import report
from experiments.ledger import tables
from experiments.ledger.item import Item, Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import NOT_RUN, above, gap, over
from experiments.papers import PAPERS
from tests.experiments import made_up


def test_tables_as_csv_and_latex(rows, tmp_path):
    report.write_tables(tmp_path, rows)
    names = {file.name for file in tmp_path.iterdir()}
    assert {"made-up-table-1.csv", "made-up-table-1.tex", "made-up-table-1-figure-1.csv"} <= names
    with (tmp_path / "made-up-table-1.csv").open(newline="") as file:
        (result,) = csv.DictReader(file)
    assert result["measured"] == "0.97" and result["published"] == "0.5"
    assert result["verdict"] == "held" and result["commit"] == made_up.COMMIT[:7]
    latex = (tmp_path / "made-up-figure-2-the-paths.tex").read_text()
    assert r"ks\_50\%/tau=1 & - & 0.0333 $\pm$ 0.0010 & 2" in latex
    body = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {7}
    assert tables.latex("a\\b{c}~^#$ρ") == (
        r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\#\$$\rho$"
    )


def test_one_csv_has_the_numbers_of_all_rows(rows):
    head, *lines = tables.ledger_as_csv(rows).splitlines()
    assert head.startswith("paper,row,verdict of row,runs and kind,first runs,cell,metric,")
    assert len(lines) == sum(len(tables.lines(row)) for row in rows)
    assert lines[0].startswith("made_up,Table 1,held,explored only,held,")


@pytest.mark.parametrize("side", [gap("A", "B"), over(("A", "B"), "accuracy")])
def test_a_rule_looks_at_every_cell_of_its_numbers(side):
    cells = {"A": made_up.A, "B": made_up.B}
    item = Item("Table 1", "claim.", cells, {"": above(side, -1.0)})
    records = [Record.from_json(made_up.RECORDS[name]) for name in "ab"]
    (row,) = ledger({"p": Paper("p", "title", "source", (item,))}, records)
    assert row.verdict != NOT_RUN and not row.problems
    assert [line.columns()["verdict"] for line in tables.lines(row)] == [row.verdict] * 2


def test_a_csv_has_the_digits_of_a_float32_and_no_more():
    item = Item("Table 1", "claim.", {"A": made_up.A}, {"": above("A", 0.1)})
    (row,) = ledger(
        {"p": Paper("p", "title", "source", (item,))},
        [Record.from_json(made_up.record(made_up.A, 0.9994999999999999))],
    )
    sem = row.records["A"].metrics["accuracy"]["sem"]
    held = tables.as_csv(row).splitlines()[1].split(",")
    assert held[3] == "0.9995" and float(held[4]) == pytest.approx(sem, rel=5e-9)
    assert np.float32(held[3]) == np.float32(0.9994999999999999)


def test_pdflatex_prints_the_tables(rows, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("there is no pdflatex on this machine")
    report.write_tables(tmp_path, [*rows, *ledger(PAPERS, [])])
    names = sorted(file.name for file in tmp_path.glob("*.tex"))
    body = "".join(f"\\input{{{name}}}\n\n" for name in names)
    text = f"\\documentclass{{article}}\\begin{{document}}\n{body}\\end{{document}}\n"
    (tmp_path / "all.tex").write_text(text)
    arguments = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "all.tex"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout[-800:]
