"""Every number with an error in the pages and manuals of three papers is one of a record."""

import re

import pytest

from experiments.ledger import read
from experiments.ledger.statistics import of_record
from experiments.shared.flags import ROOT

# "+.413 +- .008", also over the end of a line; a percentage counts as it is written.
NUMBER = re.compile(r"([+-]?\d*\.?\d+) \+-\s+(\d*\.\d+|\d+)( points| %)?")
ELSEWHERE = {
    # Networks that were built with what `--solve` said, which is no run of a config.
    "docs/signal.md": {
        *(".506 +- .010", ".296 +- .010", ".501 +- .011", ".152 +- .007", ".292 +- .011"),
    },
}
PAGES = {
    "associations": [ROOT / "docs/associations.md"],
    "attention_paths": [ROOT / "docs/attention_paths.md"],
}
FILES = [
    pytest.param(paper, file, id=str(file.relative_to(ROOT)))
    for paper, pages in PAGES.items()
    for file in (*pages, *sorted((ROOT / "configs" / paper).glob("*.py")))
]
FILES += [pytest.param("two_failure_modes", ROOT / "docs/signal.md", id="docs/signal.md")]


@pytest.fixture(scope="module")
def records():
    return read.load(ROOT / "results")[0]


def numbers_of(records):
    """The metrics of records, with the error of the seeds and with that of the test set in it."""
    values = [(r, name, v) for r in records for name, v in r.metrics.items()]
    known = [(r, name, v) for r, name, v in values if v["mean"] is not None]
    whole = [of_record(v, r.members, name) for r, name, v in known]
    return [v for *_, v in known] + [{"mean": n.mean, "sem": n.error} for n in whole]


def decimals(text: str) -> int:
    return len(text.partition(".")[2])


def is_one_of(metrics, mean: str, error: str, scale: float) -> bool:
    """Is there a metric that rounds to this mean, whatever its sign, with this error?"""
    return any(
        round(abs(v["mean"]) * scale, decimals(mean)) == abs(float(mean))
        and round(v["sem"] * scale, decimals(error)) == float(error)
        for v in metrics
        if v["mean"] is not None and v["sem"] is not None
    )


@pytest.fixture(scope="module")
def metrics(records):
    """{paper: the numbers of its records}"""
    papers = (*PAGES, "two_failure_modes")
    own = {p: [r for r in records if r.config["name"].startswith(f"{p}/")] for p in papers}
    return {paper: numbers_of(held) for paper, held in own.items()}


@pytest.mark.parametrize("paper, file", FILES)
def test_a_number_with_an_error_is_that_of_a_record(paper, file, metrics):
    name = str(file.relative_to(ROOT))
    lost = [
        f"{mean} +- {error}"
        for mean, error, percent in NUMBER.findall(file.read_text())
        if f"{mean} +- {error}" not in ELSEWHERE.get(name, ())
        and not is_one_of(metrics[paper], mean, error, 100.0 if percent else 1.0)
    ]
    assert not lost, f"{name}: no record of {paper} has {', '.join(lost)}"


def test_a_number_of_an_older_run_is_found_out(metrics):
    for mean, error in (("-.02", ".13"), (".85", ".04")):  # once in the page
        assert not is_one_of(metrics["associations"], mean, error, 1.0)
