"""A sampled number counts only if its chains pass their diagnostics."""

import json
import shutil

import numpy as np
import pytest

from experiments.cli.flags import ROOT
from experiments.ledger import read, validate_record
from experiments.ledger.ledger import ledger
from experiments.ledger.rules import OPEN
from experiments.papers import PAPERS
from experiments.recipes import finish_run
from experiments.run import main
from jaxformer.io.atomic_files import write_json
from tests.experiments.conftest import POSTERIOR, instead

KEPT = "attention_paths/posterior/collapsed-paper-*.json"
GOOD, *_ = sorted((ROOT / "results").glob(KEPT))
PAPER = {"attention_paths": PAPERS["attention_paths"]}
# No warm-up and a cold likelihood: steps far too long, which diverge or are refused.
BAD = instead(
    POSTERIOR,
    "--config.posterior.draws=20",
    "--config.posterior.warmup=0",
    "--config.posterior.temperature=1e-6",
)


def judged(folder):
    records, problems = read.load(folder)
    return ledger(PAPER, records), problems


def rewrite(file, **changed):
    """Changes the numbers of a record and updates its checksum."""
    content = json.loads(file.read_text()) | changed
    content.pop("sum")
    write_json(file, content | {"sum": validate_record.sum_of(content)})


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "results/attention_paths", tmp_path / "attention_paths")
    return tmp_path


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("bad") / "run"
    assert main([*BAD, f"--workdir={workdir}"]) == finish_run.UNTRUSTED
    return workdir


@pytest.mark.slow  # test_posterior.py has the exit code of a short chain
def test_a_job_with_bad_chains_says_so_and_ends_with_its_own_code(bad, capsys):
    result = json.loads((bad / "result.json").read_text())
    assert result["trusted"] is False and result["diagnostics"]["divergences"] >= 14
    assert any("divergent" in line for line in result["doubts"])
    with np.load(bad / "arrays.npz") as held:
        assert held["doubts"].tolist() == result["doubts"]  # the title of its figure
    # The same command again says it again.
    assert main([*BAD, f"--workdir={bad}"]) == finish_run.UNTRUSTED
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not trusted: ") and "divergent" in last


@pytest.mark.slow  # edited records below have the same verdicts
def test_bad_chains_change_no_verdict(bad, folder):
    file = folder / GOOD.relative_to(ROOT / "results")
    file.unlink()
    without, _ = judged(folder)
    shutil.copy(GOOD, file)
    content = json.loads((bad / "result.json").read_text())
    rewrite(
        file, **{name: content[name] for name in ("metrics", "diagnostics", "trusted", "doubts")}
    )
    rows, problems = judged(folder)
    assert not problems
    assert [row.findings for row in rows] == [row.findings for row in without]
    (row,) = (row for row in rows if row.stale)
    assert row.stale["sampled"].standing == "not trusted"
    assert "its chains are not to be trusted: " in row.stale["sampled"].stale


@pytest.mark.parametrize(
    "changed",
    [
        {"diagnostics": {"r_hat": 3.2, "ess": 5.0, "divergences": 0}},  # a chain that stands still
        {"diagnostics": {"r_hat": 1.0, "ess": 9e3, "divergences": 14}},
        {"diagnostics": {"r_hat": None, "ess": None, "divergences": 0}},
        {"diagnostics": {"r_hat": "fine", "ess": 9e3, "divergences": 0}},
        {"diagnostics": None},
        {"trusted": False},
    ],
)
def test_a_record_whose_diagnostics_fail_decides_nothing(changed, folder):
    rewrite(folder / GOOD.relative_to(ROOT / "results"), **changed)
    rows, problems = judged(folder)
    assert not problems and [row.item.name for row in rows if row.stale] == ["Figure 2c, bottom"]


def test_the_record_in_results_is_trusted_by_what_it_holds(folder):
    rows, problems = judged(folder)
    assert not problems and not any(row.stale for row in rows)


def test_sampled_points_without_diagnostics_have_no_known_error(folder):
    (file,) = (folder / "attention_paths/accuracy").glob("*.json")
    rule = "samples agree with the theory at N = 10, data set by data set, within .005"
    metric = "accuracy_sampled_minus_theory/N=10"

    def finding():
        rows, _ = judged(folder)
        return next(f for row in rows for f in row.findings if f.text == rule)

    record = json.loads(file.read_text())
    rewrite(file, diagnostics={})
    assert finding().verdict == OPEN
    close = dict(record["metrics"][metric], sem=1e-4)
    rewrite(file, metrics=record["metrics"] | {metric: close})
    assert finding().verdict == OPEN
    rewrite(file, diagnostics={"N=10, dataset 0": {"r_hat": 1.0}})
    assert finding().verdict != OPEN
