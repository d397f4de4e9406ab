"""HTML section of a ledger row: claim, rules, numbers, figures and runs."""

from html import escape

from experiments.ledger import headline, requirement, tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import NOT_RUN, Finding
from experiments.site import figures, groups
from experiments.site.attachments import Attachments
from experiments.site.why import why
from jaxformer.report.html import folded, table

# Columns of numbers, which are right-aligned.
NUMBERS = ("published", "measured", "n", "baseline")


def section(row: Row, shown: dict[str, Row], attached: Attachments | None = None) -> str:
    """Returns the section.

    Args:
      row: The row.
      shown: {key of a figure: its row} of the figures that the page already shows. The figures of
        this section are added.
      attached: The files of the page.
    """
    name, item = tables.name_of(row), row.item
    attached = attached or Attachments()
    slim = "" if row.records or row.stale else " slim"
    parts = [f'<section class="item{slim}" id="{name}">']
    back = '<a class="back" href="#ledger">ledger</a>'
    head = f"<h3>{escape(item.name)}</h3> {verdict_chip(headline.verdict(row))} {back}"
    parts.append(f'<div class="head">{head}</div>')
    if note := headline.note(row):
        parts.append(f'<p class="small">{escape(note)}</p>')
    also = f" ({escape(item.also)} too)" if item.also else ""
    parts.append(f'<p class="claim"><b>The paper{also}:</b> {escape(item.claim)}</p>')
    if row.flags:
        parts.append(f"<p>{' '.join(map(flag_chip, row.flags))}</p>")
    if item.note:
        parts.append(f'<p class="caveat"><b>Caveat:</b> {with_code(item.note)}</p>')
    if item.defines:
        parts.append(f"<p><b>Definition:</b> {with_code(item.defines)}</p>")
    if item.needs:
        needs = with_code(item.needs)
        parts.append(f'<p class="caveat"><b>Not in the repository:</b> {needs}.</p>')
    problems = (*row.problems, *tables.stale_lines(row))
    parts += [f'<p class="problem">{escape(text)}</p>' for text in problems]
    parts += [*_findings(row), *_numbers(row, attached)]
    previous: list[Record] = []
    for figure in (*figures.figures(row), *groups.by_kind(row)):
        parts.append(_figure(figure, row, shown, previous, attached))
        previous = figure.records
    parts += [f'<p class="problem">{escape(text)}</p>' for text in figures.missing_figures(row)]
    parts += _open(row)
    return "\n".join([*parts, "</section>"])


def verdict_chip(verdict: str, dot: bool = False) -> str:
    """Returns a coloured chip with the verdict, or only a coloured dot."""
    css_class = verdict.replace(" ", "-")
    if dot:
        return f'<span class="mark {css_class}" role="img" aria-label="{verdict}"></span>'
    return f'<span class="verdict {css_class}">{verdict}</span>'


def flag_chip(flag: str) -> str:
    return f'<span class="flag">{escape(flag)}</span>'


def finding_texts(row: Row, checks: bool = False) -> list[tuple[Finding, str]]:
    """Returns each finding with its HTML. The attribute `data-records` names its records."""
    findings, required = [], requirement.by_sentence(row)
    for finding, sides in tables.findings_with_sides(row, checks):
        text = escape(finding.text)
        if finding.numbers:
            where = " ".join(
                sorted({record_reference(row.records[c]) for s in sides for c in s.cells})
            )
            numbers = f'data-records="{where}">{escape(finding.numbers)}'
            needs = escape(f", required {required[finding.text]}")
            text += f': <span class="numbers" {numbers}</span>{needs}'
        findings.append((finding, text))
    return findings


def record_reference(record: Record) -> str:
    """Returns the config hash of a record in results/, or the path of another run."""
    ending = f"-{record.config_hash}.json"
    is_in_results = record.where.startswith("results/") and record.where.endswith(ending)
    return escape(record.config_hash if is_in_results else record.where)


def run_details(records: list[Record], attached: Attachments) -> str:
    """Returns config, command, seeds, commit and file of each record."""
    blocks = []
    for record in records:
        seeds = ", ".join(map(str, record.seeds))
        facts = {
            "config": attached.config(record),
            "run": f"seeds {seeds}; scale {escape(record.scale)}; "
            f"{record.seconds.get('cpu', 0):.0f} CPU seconds",
            "commit": attached.commit(record),
            "record": attached.record(record),
        }
        rows = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in facts.items())
        reason = f"{record.standing.capitalize()}: {escape(record.stale)}"
        stale_note = f'<p class="problem">{reason}</p>' if record.stale else ""
        blocks.append(
            f'{stale_note}<dl class="made">{rows}</dl><pre>{escape(record.command)}</pre>'
        )
    return "".join(blocks)


def with_code(text: str) -> str:
    """Returns HTML of a text with `code` in backticks."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _findings(row: Row) -> list[str]:
    if not row.item.rules:
        return ['<p class="caveat">It has no rule yet.</p>'] if row.records else []
    if row.verdict == NOT_RUN:
        waiting = "; ".join(escape(finding.text) for finding in row.findings)
        return [f'<p class="small">Rules without a run: {waiting}.</p>']
    lines = _fresh_findings(row)
    first = "First runs: " if lines else ""
    for checks, label in ((False, first), (True, "Additional check: ")):
        rules = (row.item.checks if checks else row.item.rules).values()
        for (finding, text), rule in zip(finding_texts(row, checks), rules, strict=True):
            chip = verdict_chip(finding.verdict)
            lines.append(f"<li>{label}{chip} {text}{why(row, finding, rule)}</li>")
    return ['<ul class="findings">', *lines, "</ul>"]


def _fresh_findings(row: Row) -> list[str]:
    """Returns the rules of a row's confirmation as items of a list; [] if it was not run."""
    required, lines = requirement.by_sentence(row), []
    for sentence, verdict, numbers in headline.fresh_rules(row):
        shown = requirement.with_requirement(numbers, required[sentence])
        text = f"{sentence}: {shown}" if shown else sentence
        lines.append(f"<li>{verdict_chip(verdict)} {escape(text)}</li>")
    return lines


def _numbers(row: Row, attached: Attachments) -> list[str]:
    """Returns the table of measured and published values, with buttons to save it."""
    lines = tables.lines(row)
    if not any(line.record for line in lines):
        return []
    has_metric_column = len({line.metric for line in lines}) > 1
    heads = [name for name in lines[0].columns() if has_metric_column or name != "metric"]
    body = []
    for line in lines:
        cells = {name: escape(text) for name, text in line.columns().items()}
        cells["measured"] = _measured(line)
        if line.baseline is not None:
            name = escape(line.baseline_name).replace("_", " ")
            cells["baseline"] += f" <span class=soft>{name}</span>"
        no_rule = '<span class="soft">no rule</span>'
        cells["verdict"] = verdict_chip(line.verdict) if line.verdict else no_rule
        body.append([cells[name] for name in heads])
    caption = f'<p class="small soft">{escape(row.item.metric)}, mean ± standard error</p>'
    name, csv, tex = tables.name_of(row), tables.as_csv(row), tables.as_latex(row)
    buttons = f"{attached.save(f'{name}.csv', csv)} {attached.save(f'{name}.tex', tex)}"
    numbers = table(heads, body, NUMBERS, "cards cells")
    return ["" if has_metric_column else caption, numbers, f'<p class="saves">{buttons}</p>']


def _measured(line: tables.Line) -> str:
    if line.record is None:
        return "not run"
    if line.value is None or line.value["mean"] is None:
        return "-"
    where, mean = record_reference(line.record), line.value["mean"]
    text = tables.measured(line.value) + (f" ({line.record.standing})" if line.stale else "")
    return f'<data value="{mean:.6g}" data-record="{where}">{text}</data>'


def _figure(
    figure: figures.Figure,
    row: Row,
    shown: dict[str, Row],
    previous: list[Record],
    attached: Attachments,
) -> str:
    """Returns a figure with its runs, or a link if the page already shows it.

    The list of runs is left out if the previous figure has the same runs.
    """
    key = figure.key or figure.title + " ".join(record.where for record in figure.records)
    title = f"<p>{escape(figure.title)}</p>" if figure.title else ""
    if key in shown:
        first = shown[key]
        label = first.item.name if first.paper == row.paper else f"{first.item.name} above"
        link = f'<a href="#{tables.name_of(first)}">{escape(label)}</a>'
        return f"<p>{escape(figure.title)} The figure is at {link}.</p>"
    shown[key] = row
    name = tables.name_of(row)
    # The number of the row's figures so far, with this one.
    index = sum(other is row for other in shown.values())
    saved = attached.save(f"{name}-figure-{index}.csv", figure.csv) if figure.csv else ""
    numbers = f'<p class="saves">{saved}</p>' if saved else ""
    anchor = f' id="{name}-drawn"' if index == 1 else ""
    drawn = (
        f'<figure{anchor}><div class="panels">{figure.html}</div>{figure.legend}'
        f"<figcaption>{title}{numbers}</figcaption></figure>"
    )
    if figure.records == previous:
        return f'{drawn}<p class="small soft">Made by the same runs.</p>'
    n, first = len(figure.records), figure.records[0]
    runs = f"{n} runs" if n > 1 else escape(first.config_file)
    commits = ", ".join(dict.fromkeys(map(tables.commit, figure.records)))
    scales = ", ".join(dict.fromkeys(record.scale for record in figure.records))
    head = f"How it was made: {runs}, scale {escape(scales)}, commit {escape(commits)}"
    return drawn + folded(head, run_details(figure.records, attached))


def _open(row: Row) -> list[str]:
    """Returns the commands of missing runs, and what would decide an open row."""
    more = tables.how_to_decide(row)
    parts = [f"<p>{escape(more)}</p>"] if more else []
    commands = tables.missing_commands(row)
    if not commands:
        return parts
    n = len(commands)
    count = f"{n} run{'s' * (n > 1)} of {len(row.item.cells)} not yet made"
    lines = escape("\n".join(commands.values()))
    head = f"{count}; to make {'it' if n == 1 else 'them'}:"
    return [*parts, folded(head, f"<pre>{lines}</pre>")]
