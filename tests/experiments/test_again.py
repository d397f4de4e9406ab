"""Cells that are run again and compared with their records. Most runs and records are made up."""

import csv
import signal

import pytest

from experiments import reproduce
from experiments.cli import flags
from experiments.ledger import compare_records, write
from experiments.ledger.record import SCHEMA, Record
from experiments.schedule import launch, running
from experiments.schedule.jobs import Outcome
from jaxformer import build
from jaxformer.io.atomic_files import json_value, write_json
from jaxformer.io.run_folder import Workdir, config_hash
from jaxformer.training.metrics import over_seeds
from tests.experiments import pretended
from tests.experiments.schedule.test_planning import PAPERS, A, B, C, record

RECORDED = {"standard": (0.9, 0.92, 0.91), "frozen_qk": (0.8, 0.7, 0.6), "mixit": (0.1, 0.1, 0.1)}
MINE = {"standard": (0.9, 0.92, 0.91), "frozen_qk": (0.81, 0.69, 0.6), "mixit": (0.2, 0.21, 0.19)}
MACHINE = {"versions": {"jax": "0.10.2"}, "device": "abacus", "clean": True, "commit": "1" * 40}


def make_result(cell, accuracies, scale="small", **changed):
    """Returns the content of result.json of a run of a cell."""
    content = vars(record(cell, scale, len(accuracies))) | {"schema": SCHEMA}
    content["metrics"] = {"accuracy": json_value(over_seeds(accuracies))}
    scores = [{"accuracy": {"mean": a, "sem": 0.01, "n": 100}} for a in accuracies]
    rest = {"learning_rate": 0.01, "chosen": True}
    content["members"] = [{"seed": s, "metrics": m, **rest} for s, m in enumerate(scores)]
    return content | {"environment": MACHINE | changed}


class FakeExecutor(pretended.FakeExecutor):
    """Runs nothing and writes the results that runs would have."""

    stopping: tuple[str, ...] = ()

    def run(self, jobs):
        for job in jobs:
            assert not job.record
            config = launch.config_dict(job.config, job.overrides)
            arguments, folder = config["arguments"], Workdir(job.workdir)
            folder.path.mkdir(parents=True)
            identity = {"config": config, "config_hash": config_hash(build.config_identity(config))}
            write_json(folder / "config.json", identity | {"config_file": job.config})
            if arguments["variant"] in self.stopping:
                self.signal = signal.SIGINT
                yield Outcome(job, 128 + signal.SIGTERM, 1.0, "stopped")
                return
            cell = {"standard": A, "frozen_qk": B, "mixit": C}[arguments["variant"]]
            result = MINE[arguments["variant"]][: config["n_seeds"]]
            result = (
                make_result(cell, result, arguments["scale"])
                | identity
                | {"overrides": job.overrides}
            )
            write_json(folder / "result.json", result)
            yield Outcome(job, 0, 1.0, "")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Returns command(arguments) -> (exit code, output); results/ has three of four runs."""
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(write, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    for cell, (name, found) in zip((A, B, C), RECORDED.items(), strict=True):
        changed = {"versions": {"jax": "0.9.0"}} if name == "mixit" else {}
        write_json(tmp_path / f"results/{name}.json", make_result(cell, found, "small", **changed))

    def command(*arguments, out=tmp_path / "mine"):
        code = reproduce.main(["--again", *arguments, f"--out={out}"], PAPERS)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return command


def table(tmp_path):
    with open(tmp_path / "mine/again.csv") as file:
        return {(row["item"], row["cell"]): row for row in csv.DictReader(file)}


def test_each_number_is_compared_with_its_record_seed_by_seed(command, tmp_path):
    before = {file: file.read_bytes() for file in (tmp_path / "results").iterdir()}
    code, text = command("--paper=one")
    assert code == 0 and "runs to repeat: 3" in text and "ran 3 of 3" in text
    rows = table(tmp_path)
    assert {
        name: row["verdict"] for (item, name), row in rows.items() if item == "one Table 1"
    } == {
        "a": "same bits",
        "b": "within error",
        "c": "differs",
    }
    b = rows["one Table 1", "b"]
    assert b["recorded"].startswith("0.700 ± 0.058") and b["rerun"].startswith("0.700 ± 0.061")
    # Paired: .01, -.01 and 0 are much nearer than the spread of the seeds.
    assert float(b["difference"].split(" ± ")[1].split()[0]) == pytest.approx(0.0058, abs=1e-4)
    assert "4 numbers: 1 same bits, 1 within error, 2 differs" in text
    assert "differences in the settings: jax 0.10.2 here, 0.9.0 there" in text
    assert "differences in the settings: nothing that is recorded" in text
    assert before == {file: file.read_bytes() for file in (tmp_path / "results").iterdir()}


def test_stopped_reruns_resume_and_finished_ones_are_not_repeated(command, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeExecutor, "stopping", ("mixit",))
    code, text = command("--paper=one", "--only=Table 1")
    assert code == 130 and "1 left" in text and "2 numbers" in text
    monkeypatch.setattr(FakeExecutor, "stopping", ())
    for job in (tmp_path / "mine").glob("*-retrieval-mixit-*"):
        (job / "config.json").unlink()
        job.rmdir()
    code, text = command("--paper=one", "--only=Table 1")
    assert code == 0 and "runs to repeat: 1" in text and "3 numbers" in text
    code, text = command("--paper=one", "--only=Table 1")
    assert code == 0 and "runs to repeat" not in text and "3 numbers" in text


def test_fewer_seeds_and_another_scale(command, tmp_path):
    _, text = command("--paper=one", "--only=Table 1", "--seeds=2")
    rows = table(tmp_path)
    assert rows["one Table 1", "a"]["difference"] == "0"
    assert "(2 seeds)" in rows["one Table 1", "b"]["difference"]
    assert "differences in the settings: 2 seeds here, 3 there" in text
    _, text = command("--paper=one", "--only=Table 10", "--scale=tiny", out=tmp_path / "tiny")
    assert "differences in the settings: scale tiny here, small there" in text


def test_a_dry_run_prints_the_time_and_makes_no_folder(command, tmp_path):
    code, text = command("--paper=one", "--dry-run")
    assert code == 0 and "would run 3 in about" in text
    assert "jaxformer run mixit/retrieval:variant=mixit" in text
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("arguments", "out", "message"),
    [
        (["--only=Tabel 1"], "mine", "unknown table or figure 'Tabel 1'. Did you mean 'Table 1"),
        (["--paper=two"], "mine", "no record to compare with of two Figure 1, two Table 3"),
        ([], "results", "--out is results/, which holds the records"),
        ([], "results/mine", "--out is results/, which holds the records"),
        ([], "results/standard.json", "--out is results/"),
        ([], "a_file/mine", "a_file is a file; expected a folder"),
        ([], "/proc/mine", "cannot make it|cannot write to /proc"),
        (["--budget=1s"], "mine", "a budget of 1 s is too small: the cheapest of 3 runs"),
        (["--list"], "mine", "--again --dry-run shows the runs to repeat"),
    ],
)
def test_impossible_reruns_are_one_line_errors(arguments, out, message, command, tmp_path):
    (tmp_path / "a_file").touch()
    paper = [] if "--paper=two" in arguments else ["--paper=one"]
    code, text = command(*paper, *arguments, out=tmp_path / out)
    assert code == 2 and text.startswith("error: ") and text.count("\n") == 1
    assert any(part in text for part in message.split("|"))
    assert not (tmp_path / "mine").exists() or not [*(tmp_path / "mine").iterdir()]


def test_a_folder_without_again_is_refused(capsys):
    assert reproduce.main(["--paper=one", "--out=x"], PAPERS) == 2
    assert "--out is the folder of --again" in capsys.readouterr().err


def pair(rerun, recorded):
    """Returns the verdict on two runs of a metric, given as values of members or as a mean."""

    def as_record(values):
        held = make_result(A, values)
        if len(values) == 1 and values[0] > 1:  # a theory's number: no members, no error
            held |= {
                "members": [],
                "metrics": {"accuracy": {"mean": values[0], "sem": None, "n": 1}},
            }
        return Record.from_json({**held, "config": record(A).config})

    result = compare_records.compare_metric(
        "a", "accuracy", as_record(rerun), as_record(recorded), None
    )
    return result.verdict


def test_numbers_without_an_error_are_the_same_or_unknown():
    assert pair([2.0], [2.0]) == compare_records.SAME
    assert pair([2.0], [2.0 + 1e-7]) == compare_records.ROUNDING
    assert pair([2.0], [2.1]) == compare_records.UNKNOWN
    assert pair([0.5], [0.52]) == compare_records.UNKNOWN  # one seed has no error between seeds
    assert pair([0.5], [0.5]) == compare_records.SAME


@pytest.mark.slow  # a process of its own
def test_a_recorded_figure_is_made_again(tmp_path, capsys):
    arguments = ["--paper=associations", "--only=Figure 18", "--again"]
    assert reproduce.main([*arguments, f"--out={tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert "differs" not in text and compare_records.UNKNOWN not in text
    assert [*tmp_path.glob("*.csv")] and not (flags.ROOT / "results/again.csv").exists()
