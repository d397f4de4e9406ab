"""Every row of every output reads true: numbers, what is required of them, and the verdict."""

import csv
import html
import io
import re
from decimal import Decimal

import pytest

from experiments import report
from experiments.cli import flags
from experiments.ledger import tables
from experiments.papers import PAPERS
from experiments.site.overview import overview
from experiments.site.section import section

AGAINST = r"(?P<a>[\d.e+-]+)(?: ± \S+?)? against (?P<b>[\d.e+-]+)(?: ± [\d.e-]+)?"
NEEDED = r", required (?P<required>(?:above|below|within|at most)[^,;|<\n]*)"
DECIDED = r"(?P<verdict>held|did not hold)"


def reads_true(measured, other, required):
    """Whether "0.047 against 0.1 | below" is true of the printed digits."""
    amounts = [Decimal(word) for word in required.split() if word[0].isdigit()]
    amount, gap = sum(amounts), measured - other
    if required.startswith("within"):
        return abs(gap) <= amount
    if required.startswith("at most"):
        return gap < amount if required.endswith("above") else gap > -amount
    return gap > amount if required.startswith("above") else gap < -amount


def wrong(matches):
    """Returns the (measured, other, required, verdict) that read false."""
    return [
        match
        for match in matches
        if reads_true(Decimal(match[0]), Decimal(match[1]), match[2]) != (match[3] == "held")
    ]


def test_no_row_of_a_results_page_reads_false():
    """A rule about a constant on the left prints its measured number first, and says "below"."""
    row = re.compile(
        r"^\| ([^|]+) \| ([\d.e+-]+)(?: ± \S+)? against ([\d.e+-]+)(?: ± \S+)? \| ([^|]+) "
        r"\| (held|did not hold) \|",
        re.MULTILINE,
    )
    false, n_rows = [], 0
    for key in PAPERS:
        for match in row.finditer((flags.ROOT / f"docs/results/{key}.md").read_text()):
            _, measured, other, required, verdict = match.groups()
            n_rows += 1
            if reads_true(Decimal(measured), Decimal(other), required) != (verdict == "held"):
                false.append(f"{key}: {match[0]}")
    assert n_rows > 500
    assert false == []


def in_text(pattern, text):
    """Returns (measured, other, required, verdict) of the rows that a pattern finds."""
    rows = [match.groupdict() for match in re.finditer(pattern, text, re.MULTILINE)]
    return [(row["a"], row["b"], row["required"].strip(), row["verdict"]) for row in rows]


def test_no_line_of_results_reads_false():
    text = (flags.ROOT / "RESULTS.md").read_text()
    rows = in_text(rf"\| {AGAINST}{NEEDED}\| \*\*{DECIDED}\*\*", text)
    assert len(rows) > 100
    assert wrong(rows) == []


def test_no_line_of_the_command_report_reads_false(published_rows):
    text = "\n".join(map(report.row_as_text, published_rows))
    rows = in_text(rf": {DECIDED}, {AGAINST}{NEEDED}$", text)
    assert len(rows) > 600
    assert wrong(rows) == []


def test_no_rule_of_the_csv_reads_false(published_rows):
    table = csv.DictReader(io.StringIO(tables.ledger_as_csv(published_rows)))
    text = "\n".join("\n".join(row["rules"].split("; ")) for row in table)
    rows = in_text(rf": {DECIDED}, {AGAINST}{NEEDED}$", text)
    assert len(rows) > 600
    assert wrong(rows) == []


def test_no_line_of_the_site_reads_false(published_rows):
    text = html.unescape(
        re.sub(r"<span class=\"numbers\"[^>]*>|</?code>", "", sections(published_rows))
    )
    rows = in_text(rf">{DECIDED}</span> (?:(?!</li>).)*?: {AGAINST}(?:</span>)?{NEEDED}<", text)
    assert len(rows) > 600
    assert wrong(rows) == []


def sections(rows):
    return "\n".join(section(row, {}) for row in rows)


def test_the_table_of_the_site_reads_true(published_rows):
    text = html.unescape("".join(overview(published_rows, PAPERS)))
    rows = in_text(rf": {AGAINST}{NEEDED}</td><td><span class=\"verdict [\w-]+\">{DECIDED}<", text)
    assert len(rows) > 50
    assert wrong(rows) == []


@pytest.mark.parametrize("required", ["above", "above by more than 0.2", "at most 0.3 below"])
def test_a_row_that_reads_false_is_found(required):
    assert wrong([("0.9", "0.5", required, "held")]) == []
    assert wrong([("0.9", "0.5", required, "did not hold")])
    assert wrong([("0.1", "0.5", required, "held")])
