"""The numbers of a ledger row: one line a cell and metric, as text, CSV and LaTeX.

Every measured number comes out of a record, which the line carries along.
"""

import math
import re
import shlex
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.cli.describe import csv_text
from experiments.ledger.item import config_string
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_RUN, OPEN, Finding, Side, overall
from experiments.ledger.statistics import quantile
from jaxformer.core.text_format import number, with_error

COLUMNS = ("cell", "metric", "published", "measured", "sem", "n", "baseline", "scale", "verdict")
MORE = ("baseline_name", "commit", "record")
MOST = 64  # seeds that a row asks for
SHOWN = 6  # metrics of a record that no rule asks about
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"–": "--", "²": r"$^2$"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
SYMBOLS = {"±": "pm", "≤": "leq", "≥": "geq", "×": "times", "·": "cdot", "∞": "infty"}
SYMBOLS |= {"α": "alpha", "β": "beta", "η": "eta", "θ": "theta", "λ": "lambda"}
SYMBOLS |= {"ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "Φ": "Phi"}
LATEX |= {sign: f"$\\{name}$" for sign, name in SYMBOLS.items()}


class Line(NamedTuple):
    """One number of a cell, or the lack of it."""

    cell: str
    metric: str
    published: float | None
    value: dict[str, Any] | None  # {"mean", "sem", "n"} of the record; None if there is none
    baseline: float | None
    baseline_name: str
    verdict: str  # of the rules that look at this number; "" if none does
    record: Record | None
    stale: bool = False

    @property
    def standing(self) -> str:
        """ "stale: " or "not trusted: " before what decides nothing."""
        return f"{self.record.standing}: " if self.stale and self.record else ""

    def words(self) -> dict[str, str]:
        """What every table says of it; a dash where there is nothing."""
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
    """A row's numbers: the item's metric first, then those that its rules ask about."""
    shown = []
    for name, cell in row.item.cells.items():
        record = row.records.get(name) or row.stale.get(name)
        stale = name not in row.records and record is not None
        rules = (*row.item.rules.values(), *row.item.checks.values())
        sides = [s for rule in rules for s in rule.sides if name in s.cells]
        asked = dict.fromkeys(side.metric for side in sides if not side.is_baseline)
        trivial = [row.item.baseline, *(side.metric for side in sides if side.is_baseline)]
        for metric in _metrics(row, record, asked):
            published, baselines = None, {}
            if metric == row.item.metric:
                published, baselines = cell.published, record.baselines if record else {}
            baseline = next((b for b in trivial if b in baselines), "")
            numbers = (published, record and record.metrics.get(metric), baselines.get(baseline))
            judged = verdict_of(row, name, metric)
            shown.append(Line(name, metric, *numbers, baseline, judged, record, stale))
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


def verdict_of(row: Row, cell: str, metric: str) -> str:
    """What the rules that look at a number say together; "" if there is none."""
    looked = [
        finding.verdict
        for finding, sides in findings_with_sides(row)
        if any(cell in s.cells and s.metric == metric for s in sides if not s.is_baseline)
    ]
    return overall(looked) if looked else ""


def stale_lines(row: Row) -> list[str]:
    """A line for each reason why records are stale."""
    why: dict[tuple[str, str], list[str]] = {}
    for name, record in row.stale.items():
        why.setdefault((record.standing, record.stale), []).append(name)
    return [
        f"{word.capitalize()}, so it decides nothing: {', '.join(names)}: {text}"
        for (word, text), names in why.items()
    ]


def missing(row: Row) -> dict[str, str]:
    """Cell -> the command of what was not run, at the last (the cheapest) of its scales."""
    return {
        name: f"{flags.command(config_string(cell, cell.scales[-1]), cell.overrides)} --record"
        for name, cell in row.item.cells.items()
        if name not in row.records
    }


def more_seeds(row: Row) -> str:
    """The command with so many seeds as would decide an item that only errors leave open."""
    seeds, records = seeds_needed(row), row.records.values()
    if not seeds:
        return ""
    scale = next(iter(records)).scale
    only = shlex.quote(row.item.name)
    return (
        f"python experiments/reproduce.py --paper {row.paper.key} --only {only} --scale {scale} "
        f"--seeds {seeds}"
    )


def seeds_needed(row: Row) -> int:
    """By the gaps and the spread of the open rules; 0 if no number up to MOST would decide.

    An interval shrinks with the root of the seeds, and with Student's t. Where the error is not
    known, two more show it. Other splits of the data, and what was not run, are no matter of seeds.
    """
    trained = any(len(record.members) > 1 for record in row.records.values())
    if row.verdict != OPEN or not trained:
        return 0
    needed = 0
    for rule, finding in zip(row.item.rules.values(), row.findings, strict=True):
        if finding.verdict == HELD:
            continue
        compared = finding.compared
        if compared is None or any(side.among for side in rule.sides):
            return 0
        n, gap = max(compared.seeds), abs(compared.gap) if rule.within else compared.gap
        if math.isinf(compared.half):
            needed = max(needed, n + 2)
            continue
        spread = compared.half * math.sqrt(n) / quantile(n - 1)
        enough = (m for m in range(n + 1, MOST + 1) if _half(spread, m) < abs(gap - rule.by))
        if not (asked := next(enough, 0)):
            return 0
        needed = max(needed, asked)
    return needed


def _half(spread: float, seeds: int) -> float:
    return quantile(seeds - 1) * spread / math.sqrt(seeds)


def decided(row: Row) -> str:
    """How much stands behind a verdict, if not all."""
    open_ones = sum(finding.verdict == NOT_RUN for finding in row.findings)
    if row.verdict == NOT_RUN or not open_ones:
        return ""
    return f"{len(row.findings) - open_ones} of {len(row.findings)} rules decided"


def measured(value: dict[str, Any] | None) -> str:
    """ "0.9987 ± 0.0013"."""
    if value is None:
        return "-"
    mean, sem = value["mean"], value["sem"]
    # A mean of equal numbers has a standard error of rounding.
    hidden = mean is None or sem is None or 0 < sem < 1e-12 * abs(mean)
    return with_error(mean, None if hidden else sem)


def commit(record: Record) -> str:
    """ "fe7c5b0", with a mark if the code had changes that are in no commit."""
    environment = record.environment
    if not environment.get("commit"):
        return "no commit"  # the code was not in a git repository
    name = environment["commit"][:7]
    return name if environment.get("clean") else f"{name} (changed)"


def name_of(row: Row) -> str:
    """ "mixit-table-1-decimal-addition": the name of a row's section and of its files."""
    words = re.sub(r"[^a-z0-9]+", "-", row.item.name.lower()).strip("-")
    return f"{row.paper.key.replace('_', '-')}-{words}"


def as_csv(row: Row) -> str:
    """The lines with all digits of a float32; those behind them are rounding."""
    out: list[list[Any]] = [[*COLUMNS, *MORE]]
    for line in lines(row):
        value, record = line.value or {"mean": None, "sem": None, "n": None}, line.record
        held = (line.published, value["mean"], value["sem"], value["n"], line.baseline)
        numbers = [float(f"{x:.9g}") if isinstance(x, float) else x for x in held]
        where = [record.scale if record else "", line.verdict, line.baseline_name]
        made = [commit(record), record.where] if record else ["", ""]
        out.append([line.cell, line.metric, *numbers, *where, *made])
    return csv_text(out)


def as_latex(row: Row) -> str:
    """A tabular that needs no package."""
    out = [
        " ".join(f"% {row.paper.source}, {row.item.name}: {row.item.claim}".split()),
        r"\begin{tabular}{llrrrrll}",
        r"\hline",
        " & ".join(name for name in COLUMNS if name != "sem") + r" \\",
        r"\hline",
        *(" & ".join(map(latex, line.words().values())) + r" \\" for line in lines(row)),
        r"\hline",
        r"\end{tabular}",
        "",
    ]
    return "\n".join(out)


def latex(text: str) -> str:
    """Text that LaTeX prints as it stands here."""
    return "".join(LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _metrics(row: Row, record: Record | None, asked: dict[str, None]) -> list[str]:
    if record is None:
        ruled = {side.metric for rule in row.item.rules.values() for side in rule.sides}
        own = row.item.metric in asked or row.item.metric in ruled or not ruled
        return [row.item.metric] if own else [*asked][:1] or [""]
    names = [name for name in (row.item.metric, *asked) if name in record.metrics]
    return list(dict.fromkeys(names)) or list(record.metrics)[:SHOWN]
