"""The results page of a paper, docs/results/PAPER.md.

It begins with a picture and one table, so that an author finds her claim at once: what the paper
says and prints, what we measured at which size, the verdict, and where the effect goes with size.
A section repeats these with the command that runs the claim again; all rules, checks, caveats and
records fold up. The site draws the two numbers of the deciding rule where a section has a comment
`<!-- thumbnail: NAME -->`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from experiments.cli.describe import number
from experiments.ledger import headline, requirement, summary, tables
from experiments.ledger.item import Item, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.network_size import sizes
from experiments.ledger.record import Record
from experiments.ledger.rules import DEFINITION, SHOWN, Rule, Side
from experiments.site import confirmation_lines
from experiments.site.digits import three_digits
from experiments.site.markdown import plain, table, table_cell
from experiments.site.results_pages import anchor, records_lines
from experiments.site.rule_tables import rule_lines
from jaxformer.core.text_format import counted, duration

HEADS = ("claim", "paper", "ours", "size, of theirs", "verdict", "with size")
PICTURES = {  # {paper: (picture, what it shows)}
    "mixit": ("retrieval.png", "Accuracy of four variants while they learn retrieval"),
    "random_attention": ("sde.png", "Norms and correlations: equation and networks"),
    "two_failure_modes": ("three_regimes.png", "Loss of networks from three starting points"),
    "associations": ("last_layer.png", "Right token and noise without a feed-forward layer"),
    "attention_paths": ("attention_paths.png", "How a network combines its paths at three widths"),
}
NOTES = {"mixit": "mixit", "random_attention": "sde", "two_failure_modes": "signal"}
HEAD = """{source}. [Notes on the paper](../{notes}.md) ·
[if you disagree with a verdict](../verdicts.md#if-you-disagree)

![{caption}](../pictures/{picture})

{counts}.

*Ours* are the numbers of the rule that decided: means ± standard errors over seeds,
including the error of the test set. They are of fresh runs where there are some: rules were fixed
first and seeds drawn afterwards. *Size* is width × layers, and *with size* says where the effect
goes as networks grow ([ladders](../ladders.md))."""
WORDS = """Each section has the rule that decided with both numbers and what it requires, to three
digits. The site draws them with their 95 % intervals, and the rule holds in the grey part of a
drawing. The folded part of a section has all rules with all digits. *Primary* is the rule that
tests the main point of the claim. *p* is corrected for the number of rules: by Holm's method for
the primary rules of distinct claims, by Benjamini and Hochberg's for all others. *First runs* are
those in which the claim was explored, and *code* is their commit. [How a verdict is
made](../verdicts.md) explains verdicts, flags and kinds of "did not hold". `jaxformer report
--write` makes this page."""
ALL_EXAMPLES = " (all examples)"  # after a published number, where our rule takes a part of them
# The end of the first sentence of a caveat.
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9\"`(])")


class Trend(NamedTuple):
    """A ladder of a row: its rule, and where it stands."""

    name: str
    rule: str  # "stays below 0.05"
    state: str  # "held", or "2 of 4 sizes"
    sentence: str = ""  # where the effect goes with size, once all sizes are there


# {(paper, name of the row): its ladders}
Trends = Mapping[tuple[str, str], Sequence[Trend]]


def paper_page(paper: Paper, rows: Sequence[Row], records: Sequence[Record], trends: Trends) -> str:
    """Returns the text of the page.

    Args:
      paper: the paper.
      rows: its rows.
      records: its records, of which a table is the end of the page.
      trends: the ladders of its rows.
    """
    notes = NOTES.get(paper.key, paper.key)
    judged = [row for row in rows if row.verdict != DEFINITION]
    claims = [row for row in judged if row.item.is_distinct]
    others = [row for row in judged if not row.item.is_distinct]
    picture, caption = PICTURES.get(paper.key, ("retrieval.png", ""))
    head = HEAD.format(
        source=paper.source,
        notes=notes,
        caption=caption,
        picture=picture,
        counts=counts(summary.distinct_claims(judged)),
    )
    lines = [f"# Results: {paper.title}", "", head, ""]
    lines += _in_box("claims", _table(claims, trends))
    lines += _folded("The words below", WORDS.splitlines())
    if others:
        lines += ["**Beside the claims**: questions of our own, and rows that are not counted.", ""]
        lines += _in_box("claims", _table(others, trends))
    sections = [line for row in judged for line in (*_section(row, trends), "")]
    if any(tables.missing_commands(row) for row in judged):
        lines += [f"`jaxformer reproduce --paper {paper.key}` makes all missing runs.", ""]
    lines += sections
    for row in rows:
        if row.verdict == DEFINITION:
            lines += [*_section(row, trends), ""]
    lines += _records(records)
    return "\n".join(lines).rstrip() + "\n"


def counts(claims: Sequence[Row]) -> str:
    """The number of claims by verdict: "**10 held**, **9 did not hold**, 12 cannot tell yet"."""
    by_verdict = Counter(map(headline.verdict, claims))
    parts = [f"**{n} {verdict}**" for verdict in SHOWN if (n := by_verdict[verdict])]
    return f"Of {len(claims)} claims {', '.join(parts)}"


def _in_box(kind: str, lines: Sequence[str]) -> list[str]:
    """Lines in an element that the style sheet of the site knows, here a table of claims."""
    return [f'<div class="{kind}">', "", *lines, "", "</div>", ""]


def _table(rows: Sequence[Row], trends: Trends) -> list[str]:
    """Returns the table of some rows, without the columns in which all of them have a dash."""
    body = [_cells(row, trends) for row in rows]
    shown = [i for i in range(len(HEADS)) if any(cells[i] != "-" for cells in body) or not body]
    return table([HEADS[i] for i in shown], [[cells[i] for i in shown] for cells in body])


def _cells(row: Row, trends: Trends) -> list[str]:
    # The style sheet hides what is in a span on a phone, where the section of the claim has it.
    note = headline.note(row)
    verdict = f"**{headline.verdict(row)}**" + (f" <span>({note})</span>" if note else "")
    cells = [
        f"[{row.item.name}](#{anchor(row)})<span>: {row.item.claim}</span>",
        _published(row),
        three_digits(requirement.decisive_text(row)) or "-",
        sizes(row) or "-",
        verdict,
        "; ".join(
            f"[{trend.rule}](../ladders.md#{trend.name}): {trend.state}"
            for trend in trends.get((row.paper.key, row.item.name), ())
        )
        or "-",
    ]
    return [table_cell(cell) for cell in cells]


def _published(row: Row) -> str:
    """The paper's numbers for the rule that decided, such as "0.97 against 1"; "-" without any."""
    sentence, _ = headline.decisive_numbers(row)
    for item in (row.item, *row.item.earlier):
        if sentence in item.rules:
            return _published_sides(item, item.rules[sentence])
    return "-"


def _published_sides(item: Item, rule: Rule) -> str:
    """Returns the paper's numbers for the sides of a rule, with a note unless they are alike."""
    texts = {side: text for side in rule.sides if (text := _published_number(item, side))}
    note = ALL_EXAMPLES if any(side.metric != item.metric for side in texts) else ""
    return (" against ".join(texts.values()) or "-") + note


def _published_number(item: Item, side: Side) -> str:
    """The number that the paper prints for a side; "" if it prints none or the side has several.

    A side on a part of the examples, such as those that training lacks, or after more steps has
    the number of its network.
    """
    is_cell = side.cells == (side.cell,) and side.cell in item.cells
    is_of_metric = re.fullmatch(rf"{re.escape(item.metric)}(_unseen|/.+)?", side.metric)
    if not is_cell or side.is_baseline or not is_of_metric:
        return ""
    own = item.cells[side.cell]
    same = [own, *(x for x in item.cells.values() if x.config == own.config and not x.overrides)]
    published = [number(cell.published) for cell in same if cell.published is not None]
    return published[0] if published else ""


def _section(row: Row, trends: Trends) -> list[str]:
    item = row.item
    ladders = trends.get((row.paper.key, item.name), ())
    also = f" (also {item.also})" if item.also else ""
    note = f" ({note})" if (note := headline.note(row)) else ""
    verdict = f"**{headline.verdict(row)}**{note}"
    lines = [f"## {item.name}", "", f"{verdict}. Claim{also}: {item.claim}", ""]
    why, caveats = [], SENTENCE_END.split(item.note, maxsplit=1)
    if numbers := requirement.decisive_text(row):
        sentence, _ = headline.decisive_numbers(row)
        why = [f"{_capital(sentence)}: {three_digits(numbers)}."]
        lines += [f"<!-- thumbnail: {item.name} -->", ""]
    remarks = [
        *(trend.sentence for trend in ladders),
        *why,
        caveats[0],
        item.defines,
        f"Needs {item.needs}." if item.needs else "",
    ]
    lines += [" ".join(filter(None, remarks)), ""]
    lines += [f"- {plain(line)}" for line in (*tables.stale_lines(row), *row.problems)]
    lines += [*_rerun(row), ""]
    return lines + _folded(_fold_title(row), [*caveats[1:], "", *_details(row)])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _rerun(row: Row) -> list[str]:
    """The line with the command that makes the runs of a row, and its time."""
    command = f'jaxformer reproduce --paper {row.paper.key} --only "{row.item.name}"'
    missing = tables.missing_commands(row)
    if not (row.records or missing):
        return []
    if missing:
        what = f"{len(missing)} of {len(row.item.cells)} runs are missing"
    else:
        seconds = sum(record.seconds.get("cpu", 0) for record in row.records.values())
        what, command = f"Rerun, {duration(seconds)} of CPU time", f"{command} --again"
    return [f'<p class="rerun">{what}: <code>{escape(command)}</code></p>', ""]


def _fold_title(row: Row) -> str:
    """The title of the folded part: "3 rules, 9 checks, 4 runs"."""
    parts = [counted(len(row.item.rules), "rule")]
    parts += [counted(len(row.checks), "check")] if row.checks else []
    parts += [counted(len(row.records), "run")] if row.records else []
    return ", ".join(parts)


def _details(row: Row) -> list[str]:
    """Returns the rules, checks and facts of a row, [] for a definition."""
    lines = [*rule_lines(row)]
    if detail := confirmation_lines.detail(row):
        lines += [detail, ""]
    if more := tables.how_to_decide(row):
        lines += [more, ""]
    facts = [f"*{flag}*" for flag in row.flags]
    scales = sorted({record.scale for record in row.records.values()})
    facts += [f"scale {', '.join(scales)}"] if scales else []
    commits = sorted({tables.commit(record) for record in row.records.values()})
    facts += [f"code {', '.join(map(plain, commits))}"] if commits else []
    if facts:
        lines += [f"{'; '.join(facts)}.", ""]
    if missing := dict.fromkeys(tables.missing_commands(row).values()):
        lines += ["Runs not yet made:", "", *(f"    {line}" for line in missing), ""]
    return lines


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    """Returns lines that a reader opens by a click, on GitHub and on the site."""
    if not any(lines):
        return []
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _records(records: Sequence[Record]) -> list[str]:
    """The records of the paper with their commands, folded."""
    if not records:
        return []
    lines = records_lines(records, "**{}**")
    return ["## Records", "", *_folded(f"{counted(len(records), 'run')} with its command", lines)]
