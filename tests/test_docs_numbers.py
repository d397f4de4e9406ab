"""Every number with an error in the pages and manuals of two papers is one of a record."""

import re

import pytest

from experiments.ledger import read
from experiments.shared.flags import ROOT

# "+.413 +- .008", also over the end of a line; a percentage counts as it is written.
NUMBER = re.compile(r"([+-]?\d*\.?\d+) \+-\s+(\d*\.\d+|\d+)( points| %)?")
# Trials that were not recorded, and deviations between data sets instead of errors.
ELSEWHERE = {
    "configs/associations/architectures.py": {"-.03 +- .04"},
    "configs/attention_paths/accuracy.py": {".844 +- .013", ".953 +- .007"},
    "configs/attention_paths/robustness.py": {".564 +- .019"},
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


@pytest.fixture(scope="module")
def records():
    return read.load(ROOT / "results")[0]


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


@pytest.mark.parametrize("paper, file", FILES)
def test_a_number_with_an_error_is_that_of_a_record(paper, file, records):
    name = str(file.relative_to(ROOT))
    own = [r for r in records if r.config["name"].startswith(f"{paper}/")]
    metrics = [value for record in own for value in record.metrics.values()]
    lost = [
        f"{mean} +- {error}"
        for mean, error, percent in NUMBER.findall(file.read_text())
        if f"{mean} +- {error}" not in ELSEWHERE.get(name, ())
        and not is_one_of(metrics, mean, error, 100.0 if percent else 1.0)
    ]
    assert not lost, f"{name}: no record of {paper} has {', '.join(lost)}"


def test_a_number_of_an_older_run_is_found_out(records):
    held = [r for r in records if r.config["name"].startswith("associations/")]
    metrics = [value for record in held for value in record.metrics.values()]
    for mean, error in (("-.02", ".13"), (".85", ".04")):  # once in the page
        assert not is_one_of(metrics, mean, error, 1.0)
