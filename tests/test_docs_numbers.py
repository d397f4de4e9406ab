"""Every number with an error in the pages and manuals of the papers occurs in a record."""

import re

import pytest

from experiments.cli.flags import ROOT
from experiments.ledger.record_numbers import read_side
from experiments.ledger.rules import Rule
from jaxformer.stats.differences import minus
from jaxformer.stats.members import record_number

# "+.413 +- .008", also over the end of a line; a percentage counts as it is written.
NUMBER = re.compile(
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+))\s+(?:\+-|±)\s+(\d*\.\d+|\d+)( points| %)?"
)
ELSEWHERE = {
    # Networks that were built with what `--solve` printed, which is no run of a config.
    "docs/signal.md": {
        *(".506 +- .010", ".296 +- .010", ".501 +- .011", ".152 +- .007", ".292 +- .011"),
    },
    # benchmarks/sde_order.py prints them.
    "docs/sde.md": {"0.91 +- 0.01", "1.10 +- 0.04"},
}
# What the name of a record begins with -> the pages that speak of such records alone.
PAGES = {
    "associations/": ["associations.md"],
    "attention_paths/": ["attention_paths.md"],
    "two_failure_modes/": ["signal.md"],
    "mixit/ text/": ["mixit.md", "sde.md", "laboratory.md"],
}
FILES = [
    (names, file)
    for names, pages in PAGES.items()
    for file in (
        *(ROOT / "docs" / page for page in pages),
        *(f for name in names.split() for f in sorted((ROOT / "configs" / name).glob("*.py"))),
    )
    if file.parent.name != "two_failure_modes"
]


def numbers_of(records):
    """Returns the metrics of records, with errors of the seeds and of the test set."""
    values = [(r, name, v) for r in records for name, v in r.metrics.items()]
    known = [(r, name, v) for r, name, v in values if v["mean"] is not None]
    whole = [record_number(v, r.members, name) for r, name, v in known]
    return [v for *_, v in known] + [{"mean": n.mean, "sem": n.error} for n in whole]


def differences_of(rows):
    """Returns the numbers that rules compare and their differences, with errors of paired seeds."""
    result = []
    for row in rows:
        rules: list[Rule] = [*row.item.rules.values(), *row.item.checks.values()]
        for rule in rules:
            try:
                left, right = (read_side(row.records, side) for side in rule.sides)
            except KeyError:
                continue
            apart = minus(left, right) if left and right else None
            result += [{"mean": n.mean, "sem": n.error} for n in (left, right, apart) if n]
    return result


def decimals(text: str) -> int:
    return len(text.partition(".")[2])


def between(text: str, scale: float) -> tuple[float, float]:
    """Returns the interval that rounds to a printed number, without its sign."""
    printed, half = abs(float(text.replace(",", ""))), 0.5 * 10.0 ** -decimals(text) + 1e-9
    return (printed - half) / scale, (printed + half) / scale


def is_one_of(metrics, mean: str, error: str, scale: float) -> bool:
    """Returns whether a metric rounds to this mean, up to its sign, with this error."""
    low, high = between(mean, scale)
    least, most = between(error, scale)
    return any(
        low <= abs(v["mean"]) <= high and least <= v["sem"] <= most
        for v in metrics
        if v["mean"] is not None and v["sem"] is not None
    )


@pytest.fixture(scope="module")
def metrics(real_records, real_rows):
    """Returns numbers of records and differences of rules, by the first part of their names."""
    numbers = {}
    for names in PAGES:
        records = [r for r in real_records if r.config["name"].startswith((*names.split(),))]
        places = {r.where for r in records}
        rows = [row for row in real_rows if {r.where for r in row.records.values()} & places]
        numbers[names] = numbers_of(records) + differences_of(rows)
    return numbers


def lost(text, metrics, known=()):
    return [
        f"{mean} +- {error}"
        for mean, error, percent in NUMBER.findall(text)
        if f"{mean} +- {error}" not in known
        and not is_one_of(metrics, mean, error, 100.0 if percent else 1.0)
    ]


def test_a_number_with_an_error_is_that_of_a_record(metrics):
    missing = {}
    for names, file in FILES:
        name = str(file.relative_to(ROOT))
        missing[name] = lost(file.read_text(), metrics[names], ELSEWHERE.get(name, ()))
    assert not {name: numbers for name, numbers in missing.items() if numbers}


def test_a_number_of_an_older_run_is_rejected(metrics):
    for mean, error in (("-.02", ".13"), (".85", ".04")):
        assert not is_one_of(metrics["associations/"], mean, error, 1.0)
    for mean, error in ((".589", ".053"), (".94", ".03")):  # MixiT before its scale was the code's
        assert not is_one_of(metrics["mixit/ text/"], mean, error, 1.0)
