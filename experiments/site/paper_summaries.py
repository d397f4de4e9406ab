"""The verdicts on the page that introduces a paper, docs/papers/PAPER.md, between two marks.

An author who finds her paper should read there what did not hold and why, and how to object.
"""

from collections.abc import Sequence

from experiments.ledger import headline, requirement, summary
from experiments.ledger.ledger import Row
from experiments.ledger.rules import DEFINITION, NOT_HELD
from experiments.site.digits import three_digits
from experiments.site.markdown import replace_block
from experiments.site.paper_pages import counts
from experiments.site.results_pages import anchor

MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")
# {paper: (title, file in docs/notes)}
NOTES = {
    "mixit": (
        ("three scores at chance level", "chance_levels"),
        ("Theorem 2.1 and rank collapse", "rank_collapse"),
        ("the speed of Frozen-QK", "speed"),
    ),
    "random_attention": (("Theorem 5.1 needs positions", "positions"),),
    "two_failure_modes": (("the exponent of Y_q", "overlap_exponent"),),
    "associations": (("the sign in Theorem 2 (4)", "early_attention"),),
}
DISAGREE = """If you disagree with a verdict, [this is how to change its rule and judge the recorded
runs again](../verdicts.md#if-you-disagree), and where to write."""


def with_verdicts(text: str, rows: Sequence[Row]) -> str:
    """The page with its block of verdicts replaced.

    Args:
      text: the text of docs/papers/PAPER.md
      rows: the rows of this paper
    """
    paper = rows[0].paper.key
    claims = [row for row in summary.distinct_claims(rows) if row.verdict != DEFINITION]
    lines = ["", f"{counts(claims)} ([all of them](../results/{paper}.md)).", ""]
    if failed := [row for row in claims if headline.verdict(row) == NOT_HELD]:
        lines += ["These did not hold:", "", *map(_failure, failed), ""]
    if notes := NOTES.get(paper):
        links = (f"[{title}](../notes/{file}.md)" for title, file in notes)
        lines += [f"To the authors: {', '.join(links)}.", ""]
    return replace_block(text, MARKS, [*lines, *DISAGREE.splitlines(), ""])


def _failure(row: Row) -> str:
    sentence, _ = headline.decisive_numbers(row)
    reason = f" ({text})" if (text := headline.failure(row)) else ""
    numbers = three_digits(requirement.decisive_text(row))
    link = f"[{row.item.name}](../results/{row.paper.key}.md#{anchor(row)})"
    return f"- {link}{reason}. The rule: {sentence}. We measured {numbers}."
