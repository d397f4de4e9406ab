"""The table of an atlas: what each task loses without each part, from the reports of its anatomies.

The rows are plain numbers, so that the record of an atlas has all that its page shows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.stats.differences import Number, difference
from jaxformer.studies.anatomy import parts
from jaxformer.studies.anatomy.judge import Table
from jaxformer.studies.anatomy.parts import FIXED_MIXING, FROZEN, REMOVED, Part, Variant
from jaxformer.studies.anatomy.report import Report

FIRST_BLOCK, LAST_BLOCK = "first block", "last block"


class Column(NamedTuple):
    """One change of the network."""

    title: str
    part: str
    method: str

    @property
    def key(self) -> str:
        return f"{self.part}, {self.method}"


COLUMNS = (
    *(
        Column(part, part, FROZEN)
        for part in (
            *(parts.EMBEDDING, parts.QUERIES_KEYS, "values", "attention output"),
            *(parts.ATTENTION, parts.MLP, "norms", parts.UNEMBEDDING),
        )
    ),
    *(
        Column(part, part, REMOVED)
        for part in (parts.QUERIES_KEYS, parts.ATTENTION, parts.MLP, FIRST_BLOCK, LAST_BLOCK)
    ),
    Column("random mixing", parts.ATTENTION, FIXED_MIXING),
)
UNIFORM = next(column for column in COLUMNS if column.key == f"{parts.QUERIES_KEYS}, {REMOVED}")


def variants(n_blocks: int) -> list[Variant]:
    """The variants of a network with these blocks, in the order of `COLUMNS`."""
    blocks = {FIRST_BLOCK: 0, LAST_BLOCK: n_blocks - 1}
    known = {part.name: part for part in parts.PARTS}
    known |= {
        name: Part(name, rf"block_{block}/.*", rf"block_{block}/(attn|mlp)/out/.*")
        for name, block in blocks.items()
    }
    return [
        variant
        for column in COLUMNS
        for variant in parts.variants_of([known[column.part]], [column.method], can_mix=True)
    ]


def row(report: Report) -> dict[str, Any]:
    """The entry of a task in the record, from its report."""
    table = report.training
    assert table is not None
    cells = {
        f"{judged.cell.variant.part}, {judged.cell.variant.method}": {
            "lost": 1 - table.share(judged),
            "half_width": _finite(table.share_half_width(judged)),
            "score": judged.cell.score.mean,
            "outcome": judged.outcome,
            "word": judged.word,  # what the controls say of it
            "rate": judged.cell.rate,
            "steps": judged.cell.steps,
        }
        for judged in table.rows
    }
    return {
        "score": table.whole.score.mean,
        "guessing": table.trivial,
        "is_learned": table.is_learned or not _has_interval(table),
        "seeds": table.whole.score.n,
        "cells": cells,
        "sentences": report.sentences,
        "trainings": report.costs["trainings"],
    }


def _has_interval(table: Table) -> bool:
    """Whether seeds decide that a task is learned; a study has asked its first seed before."""
    return math.isfinite(difference(table.whole.score, Number(table.trivial)).half)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def cell(row: Mapping[str, Any], column: Column) -> Mapping[str, Any] | None:
    """The comparison of a task in a column, None if it was not trained."""
    return row["cells"].get(column.key)


def ordered(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The names of the tasks: those that need content-dependent mixing most come first."""

    def need(name: str) -> tuple[bool, float, float]:
        mixing, uniform = (cell(rows[name], column) for column in (COLUMNS[-1], UNIFORM))
        return not rows[name]["is_learned"], -_decided_loss(mixing), -_decided_loss(uniform)

    return sorted(sorted(rows), key=need)


def _decided_loss(found: Mapping[str, Any] | None) -> float:
    """The lost share of a decided cell, at most 1: a network may be worse than guessing."""
    return min(found["lost"], 1.0) if found and found["outcome"] == "worse" else 0.0


class Split(NamedTuple):
    """The learned tasks by the outcome in one column."""

    worse: dict[str, float]  # {task: lost share of the way}, the largest first
    no_worse: list[str]
    undecided: list[str]


def split(rows: Mapping[str, Mapping[str, Any]], column: Column) -> Split:
    found: dict[str, Any] = {
        name: cell(row, column) for name, row in sorted(rows.items()) if row["is_learned"]
    }
    found = {name: value for name, value in found.items() if value is not None}
    worse = {name: _decided_loss(x) for name, x in found.items() if x["outcome"] == "worse"}
    return Split(
        dict(sorted(worse.items(), key=lambda item: -item[1])),
        [name for name, x in found.items() if x["outcome"] == "no worse"],
        [name for name, x in found.items() if x["outcome"] not in ("worse", "no worse")],
    )


def sentences(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Five sentences about the tasks: content, learned content, position, depth and storage."""
    by_key = {column.key: split(rows, column) for column in COLUMNS}
    mixing = by_key[f"{parts.ATTENTION}, {FIXED_MIXING}"]
    frozen = by_key[f"{parts.QUERIES_KEYS}, {FROZEN}"]
    uniform = by_key[f"{parts.QUERIES_KEYS}, {REMOVED}"]
    first, last = (by_key[f"{part}, {REMOVED}"] for part in (FIRST_BLOCK, LAST_BLOCK))
    no_mlp = by_key[f"{parts.MLP}, {REMOVED}"]
    either = sorted({*first.no_worse, *last.no_worse})
    both = [name for name in first.worse if name in last.worse]
    return [
        f"Content: random mixing that does not see the tokens can replace attention in "
        f"{_listed(mixing.no_worse)}; it loses most in {_losses(mixing.worse)}.{_open(mixing)}",
        f"Learned attention: queries and keys may stay random in {_listed(frozen.no_worse)}, and "
        f"must be trained in {_losses(frozen.worse)}.{_open(frozen)}",
        f"Position: the mean over all earlier tokens is enough in {_listed(uniform.no_worse)}; "
        f"without queries and keys the others lose up to {_losses(uniform.worse)}."
        f"{_open(uniform)}",
        f"Depth: the first or the last block can go in {_listed(either)}; both are needed in "
        f"{_listed(both)}.",
        f"Storage: the MLP can go in {_listed(no_mlp.no_worse)}; it is worth most in "
        f"{_losses(no_mlp.worse)}.{_open(no_mlp)}",
    ]


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "no task"
    shown = [name.replace("_", " ") for name in names]
    number = f"{len(names)} task{'s' * (len(names) != 1)}"
    return f"{number} ({', '.join(shown)})"


def _losses(worse: Mapping[str, float], most: int = 3) -> str:
    if not worse:
        return "no task"
    shown = [f"{name.replace('_', ' ')} ({lost:.0%})" for name, lost in [*worse.items()][:most]]
    rest = f" and {len(worse) - most} more" if len(worse) > most else ""
    return ", ".join(shown) + rest


def _open(found: Split) -> str:
    n_open = len(found.undecided)
    return f" Undecided: {n_open}." if n_open else ""
