"""The rules of a row as Markdown tables: the fresh runs first, the first runs beside them."""

from collections.abc import Sequence

from experiments.ledger import headline, requirement
from experiments.ledger.ledger import Row
from experiments.ledger.multiplicity import PRIMARY
from experiments.ledger.rules import Finding
from experiments.site.markdown import table, table_cell

HEADS = ("rule", "numbers", "required", "verdict")


def rule_lines(row: Row) -> list[str]:
    """Returns the tables of the rules, and of the checks, which do not decide the verdict."""
    required = requirement.by_sentence(row)
    fresh = headline.fresh_rules(row)
    if not fresh:
        return [*_first_runs(row.findings, required), *_checks(row, required)]
    first = {finding.text: finding for finding in row.findings}
    body = [
        [text, numbers or "-", required[text], verdict, *_beside(first.get(text))]
        for text, verdict, numbers in fresh
    ]
    lines = _table((*HEADS, "first runs", "their p, corrected"), body)
    frozen = {text for text, *_ in fresh}
    mended = [finding for finding in row.findings if finding.text not in frozen]
    if mended:
        lines += ["Rules that were mended after the plan judge the first runs:", ""]
        lines += _first_runs(mended, required)
    return [*lines, *_checks(row, required)]


def _first_runs(findings: Sequence[Finding], required: dict[str, str]) -> list[str]:
    body = [[f.text, f.numbers or "-", required[f.text], f.verdict, q_text(f)] for f in findings]
    return _table((*HEADS, "p, corrected"), body)


def _checks(row: Row, required: dict[str, str]) -> list[str]:
    body = [[f.text, f.numbers or "-", required[f.text], f.verdict] for f in row.checks]
    return _table(("additional check", *HEADS[1:]), body)


def _beside(finding: Finding | None) -> list[str]:
    """The cells of the first runs beside those of the fresh ones."""
    if finding is None:
        return ["-", "-"]
    numbers = f"{finding.numbers}, {finding.verdict}" if finding.numbers else finding.verdict
    return [numbers, q_text(finding)]


def _table(heads: Sequence[str], body: list[list[str]]) -> list[str]:
    if not body:
        return []
    return [*table(heads, [[table_cell(cell) for cell in cells] for cells in body]), ""]


def q_text(finding: Finding) -> str:
    """Returns the corrected p value of a rule, such as "<.001, primary"."""
    if finding.p == 0:
        return "exact"
    if not finding.family:
        return "-"
    q = "<.001" if finding.q < 0.001 else f"{finding.q:.3f}".removeprefix("0")
    return f"{q}, primary" if finding.family == PRIMARY else q
