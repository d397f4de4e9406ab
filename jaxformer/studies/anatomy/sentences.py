"""Sentences about a transformer, made of decided comparisons only.

`jaxformer.stats.controls` says how each comparison may be worded: a network that was not trained
has no sentence, one that learns nothing after many tries "does not learn", and where both sides are
at a ceiling a part is "not needed to solve this task at this size", which is all that was seen.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxformer.stats import controls
from jaxformer.stats.differences import Number
from jaxformer.studies.anatomy.judge import NO_WORSE, WORSE, Judged, Table
from jaxformer.studies.anatomy.parts import (
    ATTENTION,
    FIXED_MIXING,
    FROZEN,
    MLP,
    ONLY,
    QUERIES_KEYS,
    REMOVED,
    Variant,
)

PLURALS = (QUERIES_KEYS, "values", "norms", "positions")
BRANCH_OF = {  # the branch that contains a part
    QUERIES_KEYS: ATTENTION,
    "values": ATTENTION,
    "attention output": ATTENTION,
    "MLP in": MLP,
    "MLP out": MLP,
}


class Sentence(NamedTuple):
    """A sentence, and the outcome of the comparison that it states."""

    text: str
    part: str
    method: str
    layer: int | None
    outcome: str


def sentences(table: Table) -> list[Sentence]:
    """Returns a sentence for each decided comparison, the largest losses first.

    A comparison that follows from another sentence is left out: a part that can be removed can stay
    random, and if a whole branch can stay random, each part of it can.
    """
    decided = [row for row in table.rows if row.outcome in TEMPLATES[row.cell.variant.method]]
    decided = [row for row in decided if not _is_implied(row, table)]
    decided.sort(key=lambda row: (row.outcome != WORSE, row.gap.gap))
    return [_sentence(row, table) for row in decided]


def _sentence(row: Judged, table: Table) -> Sentence:
    variant = row.cell.variant
    write = TEMPLATES[variant.method][row.outcome]
    name = sentence_subject(variant.part, variant.layer)
    text = write(name, variant.part in PLURALS)
    if variant.method == FROZEN and row.outcome == WORSE and _can_go(row, table):
        text = f"If {_lower(name)} stays, it must be trained"
    if row.control.word == controls.AT_CEILING:
        text = _at_ceiling(text, name, variant)
    elif row.control.word == controls.DOES_NOT_LEARN and variant.method == REMOVED:
        text = f"Without {_lower(name)} the network learns nothing"
    numbers = (
        f"{score_text(row.cell.score).removesuffix(' %')} against {score_text(table.whole.score)}"
    )
    if row.cell.steps != table.whole.steps:
        numbers += f", with {row.cell.steps:,} steps against {table.whole.steps:,}"
    return Sentence(f"{text}: {numbers}.", variant.part, variant.method, variant.layer, row.outcome)


def _at_ceiling(text: str, name: str, variant: Variant) -> str:
    """The words for a part without which the task is solved as well: no more may be said."""
    if variant.method == REMOVED:
        verb = "are" if variant.part in PLURALS else "is"
        return f"{name} {verb} not needed to solve this task at this size"
    return f"{text} to solve this task at this size"


def _is_implied(row: Judged, table: Table) -> bool:
    """Returns whether a comparison of a larger change to the network has the same outcome."""
    part, method, layer = row.cell.variant[:3]
    if row.outcome != NO_WORSE or method == ONLY:
        return False
    # The keys of all larger changes in `table.find`.
    larger = [(part, REMOVED, layer)] if method != REMOVED else []
    containing = [part] if layer is not None else []  # parts of all blocks
    if part in BRANCH_OF:
        containing.append(BRANCH_OF[part])
    larger += [(name, other, None) for name in containing for other in (method, REMOVED)]
    rows = [table.find(*key) for key in larger if key != (part, method, layer)]
    return any(other is not None and other.outcome == NO_WORSE for other in rows)


def _can_go(row: Judged, table: Table) -> bool:
    removed = table.find(row.cell.variant.part, REMOVED, row.cell.variant.layer)
    return removed is not None and removed.outcome == NO_WORSE


def sentence_subject(part: str, layer: int | None) -> str:
    """Returns the beginning of a sentence, such as "Queries and keys of block 1"."""
    name = part.removeprefix("other ")  # "other NAME" is a module outside all parts
    if part not in PLURALS:
        name = f"the {name}" if part != "attention" else name
    place = "" if layer is None else f" of block {layer}"
    return name[0].upper() + name[1:] + place


def score_text(score: Number) -> str:
    """Returns a score with its standard error: an accuracy in percent, or a loss in nats."""
    if score.is_share:
        return f"{score.percent()} %"
    # A loss is stored as minus the loss, so that the larger score is always the better one.
    positive = score._replace(mean=abs(score.mean))
    return f"{positive} nats" if score.mean <= 0 else str(score)


def unbroken(text: str) -> str:
    """Returns the text with no-break spaces between a number, its error and its unit."""
    return text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def _verb(singular: str, plural: str) -> Callable[[str, bool], str]:
    return lambda subject, is_plural: f"{subject} {plural if is_plural else singular}"


def _lower(text: str) -> str:
    is_acronym = text[:2].isupper()
    return text if is_acronym else text[0].lower() + text[1:]


# {method: {outcome: function of (subject, is plural)}}
TEMPLATES: dict[str, dict[str, Callable[[str, bool], str]]] = {
    FROZEN: {
        NO_WORSE: _verb("need not be trained", "need not be trained"),
        WORSE: _verb("must be trained", "must be trained"),
    },
    REMOVED: {
        NO_WORSE: _verb("can go", "can go"),
        WORSE: lambda subject, _: f"Without {_lower(subject)} the network is worse",
    },
    FIXED_MIXING: {
        NO_WORSE: lambda *_: "Random mixing that does not see the tokens can replace attention",
        WORSE: lambda *_: "Random mixing that does not see the tokens cannot replace attention",
    },
    ONLY: {
        NO_WORSE: lambda subject, _: f"It is enough to train {_lower(subject)}",
    },
}
