"""The numbers of a ledger row as text, CSV and LaTeX: one line for each cell and metric."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.ledger import headline, power, requirement
from experiments.ledger.item import config_string
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_RUN, OPEN, Finding, Side, overall
from jaxformer.core.text_format import number, with_error
from jaxformer.report.tables import csv_text
from jaxformer.stats.power import POWER

COLUMNS = ("cell", "metric", "published", "measured", "sem", "n", "baseline", "scale", "verdict")
MORE_COLUMNS = ("baseline_name", "commit", "record", "rules")  # further columns of the CSV
MAX_METRICS = 6  # how many metrics of a record are shown if no rule selects them
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"–": "--", "²": r"$^2$"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
SYMBOLS = {"±": "pm", "≤": "leq", "≥": "geq", "×": "times", "·": "cdot", "∞": "infty"}
SYMBOLS |= {"α": "alpha", "β": "beta", "η": "eta", "θ": "theta", "λ": "lambda"}
SYMBOLS |= {"ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "Φ": "Phi"}
LATEX |= {sign: f"$\\{name}$" for sign, name in SYMBOLS.items()}


class Line(NamedTuple):
    """One number of a cell; without a record its value is None."""

    cell: str
    metric: str
    published: float | None
    value: dict[str, Any] | None  # {"mean", "sem", "n"} of the record
    baseline: float | None
    baseline_name: str
    verdict: str  # of the rules about this number; "" without a rule
    rules: str  # these rules with their numbers and what they require
    record: Record | None
    stale: bool = False

    @property
    def standing(self) -> str:
        """Returns "stale: " or "not trusted: " for a number that decides nothing, else ""."""
        return f"{self.record.standing}: " if self.stale and self.record else ""

    def columns(self) -> dict[str, str]:
        """Returns the cells of a table by column, with a dash for a missing value."""
        return {
            "cell": self.cell,
            "metric": self.metric,
            "published": number(self.published),
            "measured": measured(self.value),
            "n": str(self.value["n"]) if self.value else "-",
            "baseline": number(self.baseline),
            "scale": self.record.scale if self.record else "-",
            "verdict": self.standing + (self.verdict or "no rule"),
        }


def lines(row: Row) -> list[Line]:
    """Returns the numbers of a row: the item's metric first, then the metrics of its rules."""
    shown = []
    for name, cell in row.item.cells.items():
        record = row.records.get(name) or row.stale.get(name)
        stale = name not in row.records and record is not None
        rules = (*row.item.rules.values(), *row.item.checks.values())
        sides = [s for rule in rules for s in rule.sides if name in s.cells]
        rule_metrics = dict.fromkeys(side.metric for side in sides if not side.is_baseline)
        baseline_names = [row.item.baseline, *(side.metric for side in sides if side.is_baseline)]
        for metric in _metrics(row, record, rule_metrics):
            # Only the item's metric has a published number and a baseline.
            is_of_item = metric == row.item.metric
            baselines = record.baselines if is_of_item and record else {}
            baseline_name = next((b for b in baseline_names if b in baselines), "")
            findings = findings_about(row, name, metric)
            line = Line(
                cell=name,
                metric=metric,
                published=cell.published if is_of_item else None,
                value=record.metrics.get(metric) if record else None,
                baseline=baselines.get(baseline_name),
                baseline_name=baseline_name,
                verdict=overall(findings) if findings else "",
                rules="; ".join(_rule_text(row, finding) for finding in findings),
                record=record,
                stale=stale,
            )
            shown.append(line)
    return shown


def findings_with_sides(row: Row, checks: bool = False) -> list[tuple[Finding, list[Side]]]:
    """Returns each finding (or additional check) with the measured sides of its rule."""
    rules, findings = row.item.rules, row.findings
    if checks:
        rules, findings = row.item.checks, row.checks
    return [
        (finding, [side for side in rule.sides if side.cell])
        for rule, finding in zip(rules.values(), findings, strict=True)
    ]


def findings_about(row: Row, cell: str, metric: str) -> list[Finding]:
    """Returns the findings of the rules about a number."""
    return [
        finding
        for finding, sides in findings_with_sides(row)
        if any(cell in s.cells and s.metric == metric for s in sides if not s.is_baseline)
    ]


def _rule_text(row: Row, finding: Finding) -> str:
    required = requirement.by_sentence(row)[finding.text]
    shown = requirement.with_requirement(finding.numbers, required)
    return f"{finding.text}: {finding.verdict}" + (f", {shown}" if shown else "")


def stale_lines(row: Row) -> list[str]:
    """Returns a line for each reason why records are stale."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, record in row.stale.items():
        reasons.setdefault((record.standing, record.stale), []).append(name)
    return [
        f"{standing.capitalize()}, so it decides nothing: {', '.join(names)}: {reason}"
        for (standing, reason), names in reasons.items()
    ]


def missing_commands(row: Row) -> dict[str, str]:
    """Returns for each missing cell the command at the last (cheapest) of its scales."""
    return {
        name: f"{flags.run_command(config_string(cell, cell.scales[-1]), cell.overrides)} --record"
        for name, cell in row.item.cells.items()
        if name not in row.records
    }


def how_to_decide(row: Row) -> str:
    """Returns how many seeds would decide an open row, or why none will; "" for other rows."""
    seeds, reason = seeds_needed(row)
    if reason:
        return f"New seeds alone will not decide it: {reason}."
    if not seeds:
        return ""
    return (
        f"{seeds} new seeds would decide it with a probability of {100 * POWER:.0f} %, if "
        "the true differences are those that were observed."
    )


def seeds_needed(row: Row) -> tuple[int, str]:
    """Returns the number of seeds that decides all open rules with a power of 90 %.

    Returns:
      (seeds, "")      the number of seeds
      (0, the reason)  if no number of seeds decides them
      (0, "")          if the row is decided, a run is missing, a rule is about a mean over splits,
                       or a figure draws its own samples
    """
    has_members = any(len(record.members) > 1 for record in row.records.values())
    if row.verdict != OPEN or not has_members:
        return 0, ""
    needed = 0
    for rule, finding in zip(row.item.rules.values(), row.findings, strict=True):
        if finding.verdict == HELD:
            continue
        if finding.compared is None or any(side.among for side in rule.sides):
            return 0, ""
        seeds, reason = power.seeds_for_rule(rule, finding.compared)
        if reason == power.TEST_SET:
            return 0, f"{reason} (--config.data.test_size=20000 enlarges it)"
        if reason:
            return 0, reason
        needed = max(needed, seeds)
    return needed, ""


def rules_with_runs(row: Row) -> str:
    """Returns a text such as "runs for 3 of 4 rules" if some rules lack a run, else ""."""
    n_lacking = sum(finding.verdict == NOT_RUN for finding in row.findings)
    if row.verdict == NOT_RUN or not n_lacking:
        return ""
    return f"runs for {len(row.findings) - n_lacking} of {len(row.findings)} rules"


def measured(value: dict[str, Any] | None) -> str:
    """Returns a text such as "0.9987 ± 0.0013"."""
    if value is None:
        return "-"
    mean, sem = value["mean"], value["sem"]
    # If all seeds have the same number, its standard error is only a rounding error.
    hidden = mean is None or sem is None or 0 < sem < 1e-12 * abs(mean)
    return with_error(mean, None if hidden else sem)


def commit(record: Record) -> str:
    """Returns the short commit, marked if the working tree had uncommitted changes."""
    environment = record.environment
    if not environment.get("commit"):
        return "no commit"  # the code was not in a git repository
    name = environment["commit"][:7]
    return name if environment.get("clean") else f"{name} (changed)"


def name_of(row: Row) -> str:
    """Returns the name of a row's section and files, such as "mixit-table-1-dyck-1"."""
    slug = re.sub(r"[^a-z0-9]+", "-", row.item.name.lower()).strip("-")
    return f"{row.paper.key.replace('_', '-')}-{slug}"


def as_csv(row: Row) -> str:
    """Returns the lines of a row as CSV."""
    return csv_text([[*COLUMNS, *MORE_COLUMNS], *map(_csv_cells, lines(row))])


def ledger_as_csv(rows: Sequence[Row]) -> str:
    """Returns the lines of all rows as one CSV.

    Each line has its paper, the name and the verdict of its row, what was fresh behind this verdict
    with the kind of a failure, the verdict of the first runs, whose numbers the line has, and the
    columns of `as_csv`.
    """
    head = ["paper", "row", "verdict of row", "runs and kind", "first runs", *COLUMNS]
    head += MORE_COLUMNS
    cells = (
        [row.paper.key, row.item.name, headline.verdict(row), headline.note(row), row.verdict]
        + _csv_cells(line)
        for row in rows
        for line in lines(row)
    )
    return csv_text([head, *cells])


def _csv_cells(line: Line) -> list[Any]:
    """Returns the cells of a line, with the nine significant digits of a float32."""
    value = line.value or {"mean": None, "sem": None, "n": None}
    record = line.record
    values = (line.published, value["mean"], value["sem"], value["n"], line.baseline)
    numbers = [float(f"{x:.9g}") if isinstance(x, float) else x for x in values]
    texts = [record.scale if record else "", line.verdict, line.baseline_name]
    origin = [*([commit(record), record.where] if record else ["", ""]), line.rules]
    return [line.cell, line.metric, *numbers, *texts, *origin]


def as_latex(row: Row) -> str:
    """Returns a LaTeX tabular that needs no package."""
    latex_lines = [
        " ".join(f"% {row.paper.source}, {row.item.name}: {row.item.claim}".split()),
        r"\begin{tabular}{llrrrrll}",
        r"\hline",
        " & ".join(name for name in COLUMNS if name != "sem") + r" \\",
        r"\hline",
        *(" & ".join(map(latex, line.columns().values())) + r" \\" for line in lines(row)),
        r"\hline",
        r"\end{tabular}",
        "",
    ]
    return "\n".join(latex_lines)


def latex(text: str) -> str:
    """Returns the text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _metrics(row: Row, record: Record | None, rule_metrics: dict[str, None]) -> list[str]:
    """Returns the metrics to show of a cell.

    A cell with a record shows the metric of the item and those of its rules, if the record has
    them. A cell without a record shows one metric: that of the item if the item's rules use it or
    the item has no rules, and else the first metric of the rules about this cell. It is "" if no
    rule is about this cell.
    """
    if record is None:
        of_all_rules = {side.metric for rule in row.item.rules.values() for side in rule.sides}
        is_used = row.item.metric in {*rule_metrics, *of_all_rules} or not of_all_rules
        if is_used:
            return [row.item.metric]
        return [*rule_metrics][:1] or [""]
    names = [name for name in (row.item.metric, *rule_metrics) if name in record.metrics]
    return list(dict.fromkeys(names)) or list(record.metrics)[:MAX_METRICS]
