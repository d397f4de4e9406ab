"""`Report`: what each part of one transformer does, as table, sentences, figure and page."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.anatomy_report import sentences
from experiments.anatomy_report.judge import Table
from experiments.anatomy_report.sentences import Sentence
from experiments.cli.describe import csv_text
from jaxformer.io.atomic_files import write_atomically, write_json

COLUMNS = ("part", "what was done", "share of the way", "score", "seeds", "compared with the whole")


@dataclass(frozen=True, eq=False)
class Report:
    """The comparisons of one transformer, and the sentences that they decide.

    Attributes:
      name: of the task, run or model.
      training: the comparisons of trained variants; None for a published model.
      curves: {variant: [(step, training loss)]} of the first seed at the chosen learning rate.
      costs: numbers such as "trainings" and "seconds".
      settings: the settings of the training, for the page.
    """

    name: str
    training: Table | None = None
    curves: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def decided(self) -> list[Sentence]:
        """The sentences with the comparisons that they state."""
        return sentences.sentences(self.training) if self.training else []

    @property
    def sentences(self) -> list[str]:
        """A sentence for each decided comparison, the largest losses first."""
        return [sentence.text for sentence in self.decided]

    @cached_property
    def table(self) -> list[dict[str, Any]]:
        """One dict for each comparison: `pandas.DataFrame(report.table)`."""
        table = self.training
        if table is None:
            return []
        return [
            {
                "part": row.cell.variant.part,
                "block": row.cell.variant.layer,
                "method": row.cell.variant.method,
                "share": table.share(row),
                "half_width": table.share_half_width(row),
                "score": row.cell.score.mean,
                "standard_error": row.cell.score.error,
                "seeds": row.cell.score.n,
                "learning_rate": row.cell.rate,
                "rates_tried": row.cell.rates_tried,
                "q_value": row.q,
                "outcome": row.outcome,
            }
            for row in table.rows
        ]

    @property
    def verdicts(self) -> dict[str, str]:
        """{part: verdict}; a part of one block is named such as "MLP of block 1"."""
        if self.training is None:
            return {}
        return {
            part if layer is None else f"{part} of block {layer}": verdict
            for (part, layer), verdict in self.training.verdicts().items()
        }

    def __str__(self) -> str:
        lines = [text_table(self.training)] if self.training else []
        return "\n\n".join([*lines, "\n".join(self.sentences)])

    def to_csv(self, file: str | Path | None = None) -> str:
        """Returns the table as CSV; with `file` also writes it."""
        heads = list(self.table[0]) if self.table else []
        text = csv_text([heads, *([*row.values()] for row in self.table)])
        if file is not None:
            write_atomically(Path(file), text.encode())
        return text

    def save(self, folder: Path) -> list[Path]:
        """Writes anatomy.json and anatomy.csv into a folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "name": self.name,
            "sentences": self.sentences,
            "verdicts": self.verdicts,
            "table": self.table,
            "costs": self.costs,
        }
        write_json(folder / "anatomy.json", json.loads(json.dumps(record, default=str)))
        self.to_csv(folder / "anatomy.csv")
        return [folder / "anatomy.json", folder / "anatomy.csv"]


def text_table(table: Table) -> str:
    """Returns the comparisons as aligned lines."""
    rows = [COLUMNS, whole_columns(table), *(columns(table, row) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def whole_columns(table: Table) -> tuple[str, ...]:
    """Returns the cells of the whole network."""
    score = table.whole.score
    return ("whole network", "trained", "1", sentences.shown(score), str(score.n), "")


def columns(table: Table, row: Any) -> tuple[str, ...]:
    """Returns the cells of one comparison."""
    variant, score = row.cell.variant, row.cell.score
    part = variant.part if variant.layer is None else f"{variant.part} of block {variant.layer}"
    outcome = "cannot tell yet" if row.outcome == "open" else row.outcome
    return (
        part,
        variant.method if variant.method != "only" else "only this trained",
        share_text(table, row),
        sentences.shown(score),
        str(score.n),
        outcome,
    )


def share_text(table: Table, row: Any) -> str:
    """Returns the share with the half width of its interval, such as ".98 ± .02"."""
    share, half_width = table.share(row), table.share_half_width(row)
    if not math.isfinite(half_width):
        return f"{share:.2f}"
    digits = 2 if half_width >= 0.005 else 3
    return f"{share:.{digits}f} ± {half_width:.{digits}f}"
