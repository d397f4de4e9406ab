"""`jaxformer anatomy MODEL --tokens TEXT`: one command, one page, resumed after a stop."""

import csv
import json

import pytest

import jaxformer
from experiments import anatomy
from jaxformer.data import datasets, preparation
from jaxformer.models.pretrained import tiny

NOUNS = ("cat", "dog", "owl")
TEXT = "\n".join(f"the {noun} of the {other}" for noun in NOUNS for other in "abcde")
SIZES = ["--window=16", "--steps=3", "--batch-size=2", "--ranks=1", "--rates=3e-2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a random Llama and a text in bytes."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(TEXT * 30)
    corpus = datasets.corpus(f"text:{folder / 'text.txt'}", documents="line")
    preparation.prepare(corpus, folder / "plays", kind="bytes", shares=(0.1, 0.1))
    tiny.save(tiny.CONFIGS["llama"], folder / "llama", vocab=300)  # more than the text has
    return folder


def run(home, *more):
    return anatomy.main([str(home / "llama"), f"--tokens={home / 'plays'}", *SIZES, *more])


@pytest.fixture(scope="module")
def reported(home):
    """The command, stopped by its budget after the first training, then repeated."""
    workdir = home / "report"
    assert run(home, f"--workdir={workdir}", "--seeds=2", "--budget=0.01s") == 0
    (members,) = workdir.glob("members-*")
    first = {file.name: file.stat().st_mtime_ns for file in members.iterdir()}
    assert run(home, f"--workdir={workdir}", "--seeds=2", "--budget=1h") == 0
    return workdir, members, first


@pytest.mark.slow
def test_the_report_has_every_update_with_size_share_and_score(reported):
    workdir, _, _ = reported
    rows = list(csv.DictReader((workdir / "anatomy.csv").read_text().splitlines()))
    assert {(row["part"], row["update"]) for row in rows} == {
        ("everything", "rank 1"),
        ("norms", "full"),
        *((part, how) for part in ("attention", "MLP", "values") for how in ("full", "rank 1")),
        *(("queries and keys", how) for how in ("full", "rank 1")),
    }
    by_name = {(row["part"], row["update"]): row for row in rows}
    assert int(by_name["values", "rank 1"]["trained"]) == 2 * (16 + 16)
    assert int(by_name["norms", "full"]["trained"]) == 5 * 16
    record = json.loads((workdir / "anatomy.json").read_text())
    assert record["opening"].startswith("Training everything lowers ")
    page = (workdir / "anatomy.html").read_text()
    assert "Which parts need an update?" in page and "--tokens=" in page


@pytest.mark.slow
def test_the_same_command_continues(reported, home, capsys):
    workdir, members, first = reported
    assert len(first) == 2  # the model as loaded, and one training
    now = {file.name: file.stat().st_mtime_ns for file in members.iterdir()}
    assert len(now) == 1 + 2 * 11 and now.items() >= first.items()
    capsys.readouterr()
    assert run(home, f"--workdir={workdir}", "--seeds=2") == 0
    assert "learning rate" not in capsys.readouterr().out.split("Training everything")[0]


@pytest.mark.slow
def test_python_has_the_same_report(home):
    report = jaxformer.anatomy(
        home / "llama",
        tokens=home / "plays",
        window=16,
        steps=3,
        batch_size=2,
        rates=(3e-2,),
        only=["norms, full"],
        seeds=2,
        progress=False,
    )
    (row,) = report.table
    assert row["part"] == "norms" and row["seeds"] == 2 and row["trained"] == 80


WRONG = {
    "a flag of other sources": (["--width=8"], "--width is not for --tokens"),
    "a cluster": (["--executor=slurm", "--slurm=x.toml"], "leave --executor out"),
    "a rank of 0": (["--ranks=0"], "different whole numbers such as 1,4,16, got '0'"),
    "a rank twice": (["--ranks=1,1"], "different whole numbers"),
    "a long window": (["--window=70"], "70"),
    "a margin of 2": (["--margin=2"], "margin must lie between 0 and 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_flag_is_a_one_line_error(home, name, capsys, tmp_path):
    flags, message = WRONG[name]
    argv = [str(home / "llama"), f"--tokens={home / 'plays'}", f"--workdir={tmp_path}", *flags]
    assert anatomy.main(argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_wrong_source_is_a_one_line_error(home, capsys, tmp_path):
    tiny.save(tiny.CONFIGS["llama"], tmp_path / "small", vocab=20)
    text = f"--tokens={home / 'plays'}"
    for argv, message in (
        ([text], "--tokens is for one published model"),
        ([str(tmp_path / "small"), text], "prepare it with the model's tokenizer"),
        ([str(home / "llama"), "--tokens=/nowhere"], "there is no prepared text in /nowhere"),
        ([str(home / "llama"), "--window=4"], "--window and --ranks are for a published model"),
    ):
        assert anatomy.main([*argv, f"--workdir={tmp_path / 'out'}"]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
