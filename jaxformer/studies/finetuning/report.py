"""`FinetuningReport`: which parts of a published model need an update, as text, page and files."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from jaxformer.core.text_format import byte_size, counted
from jaxformer.io.atomic_files import write_json, written
from jaxformer.report.tables import csv_text
from jaxformer.stats.differences import Number
from jaxformer.studies.anatomy.judge import CANNOT_TELL, NO_WORSE, OPEN, WORSE
from jaxformer.studies.anatomy.parts import ATTENTION, MLP, QUERIES_KEYS
from jaxformer.studies.anatomy.text_tables import aligned, share_text
from jaxformer.studies.finetuning import page
from jaxformer.studies.finetuning.judge import Row, Table
from jaxformer.studies.finetuning.updates import EVERYTHING, FULL, Update

COLUMNS = (
    *("part", "update", "trained", "memory"),
    *("share of the gain", "bits per byte", "seeds", "outcome"),
)
PLURALS = {MLP: "MLPs"}  # names of parts in sentences
PLAIN = (EVERYTHING, ATTENTION, QUERIES_KEYS, "values")  # those without an article
NOTHING_DECIDED = "Nothing is decided yet: more seeds or texts are needed."


@dataclass(frozen=True, eq=False)
class FinetuningReport:
    """The gain of a model on a text, and the updates that keep it.

    Attributes:
      name: the model and the text.
      comparisons: the updates with their shares of the gain.
      shapes: the parameters of the model, or their shapes.
      settings: the settings of the training, for the page.
      costs: numbers such as "trainings" and "seconds".
    """

    name: str
    comparisons: Table
    shapes: Mapping[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def opening(self) -> str:
        """The gain of training everything, in a sentence."""
        table = self.comparisons
        before, after = table.before, table.whole.score
        change = f"lowers {before} bits per byte to {after}"
        if after.mean >= before.mean:  # on the test texts; validation chose among others
            change = f"does not lower {before} bits per byte but gives {after}"
        seeds = counted(after.n, "seed")
        return f"Training everything {change} ({seeds}, learning rate {table.whole.rate:g})."

    @cached_property
    def sentences(self) -> list[str]:
        """A sentence for each decided update: those that are enough by size, then the others."""
        decided = [row for row in self.comparisons.rows if row.outcome != OPEN]
        decided.sort(key=lambda row: (row.outcome == WORSE, self._trained(row.cell.update)))
        return [self._sentence(row) for row in decided]

    def _sentence(self, row: Row) -> str:
        update = row.cell.update
        kind = f"A rank-{update.rank} update" if update.rank else "A full update"
        part = f"the {PLURALS.get(update.part, update.part)}"
        part = update.part if update.part in PLAIN else part
        verdict = "is enough" if row.outcome == NO_WORSE else "is not enough"
        trained = self._trained(update) / self._trained(FULL)
        return (
            f"{kind} of {part} {verdict}: {share_text(row.share, row.half_width)} of the gain, "
            f"with {100 * trained:.2g} % of the parameters."
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """One dict for each update: `pandas.DataFrame(report.table)`."""
        return [
            {
                "part": row.cell.update.part,
                "update": row.cell.update.method,
                "trained": self._trained(row.cell.update),
                "memory": row.cell.update.memory(self.shapes),
                "share": row.share,
                "half_width": row.half_width,
                "score": row.cell.score.mean,
                "standard_error": row.cell.score.error,
                "seeds": row.cell.score.n,
                "learning_rate": row.cell.rate,
                "rate_at_edge": row.cell.is_edge,
                "q_value": row.q,
                "outcome": row.outcome,
            }
            for row in self.comparisons.rows
        ]

    def _trained(self, update: Update) -> int:
        return update.trained(self.shapes)

    def lines(self) -> list[tuple[str, ...]]:
        """The texts of the table's cells; the first row is that of the full update."""
        whole = self.comparisons.whole
        return [
            (*self._size(FULL), "1", self._score(whole.score), str(whole.score.n), ""),
            *(
                (
                    *self._size(row.cell.update),
                    share_text(row.share, row.half_width),
                    self._score(row.cell.score),
                    str(row.cell.score.n),
                    (CANNOT_TELL if row.outcome == OPEN else row.outcome)
                    + (" (rate at the edge)" if row.cell.is_edge else ""),
                )
                for row in self.comparisons.rows
            ),
        ]

    def _size(self, update: Update) -> tuple[str, str, str, str]:
        memory = byte_size(update.memory(self.shapes))
        return update.part, update.method, f"{self._trained(update):,}", memory

    def _score(self, score: Number) -> str:
        """A score with its standard error, or alone where one seed has none."""
        return str(score if math.isfinite(score.error) else score._replace(sem=0.0))

    def __repr__(self) -> str:
        sentences = self.sentences or [NOTHING_DECIDED]
        table = aligned([COLUMNS, *self.lines()])
        return "\n\n".join([self.opening, table, "\n".join(sentences)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_csv(self, file: str | Path | None = None) -> str:
        """Returns the updates as CSV; writes `file`, if given."""
        rows = self.table
        text = csv_text([[*rows[0]], *([*row.values()] for row in rows)]) if rows else ""
        return written(text, file)

    def to_html(self, file: str | Path | None = None) -> str:
        """Returns the HTML page and writes it to `file`, if given."""
        return written(page.page(self), file)

    def save(self, folder: Path) -> list[Path]:
        """Writes anatomy.html, .json and .csv into a folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "name": self.name,
            "opening": self.opening,
            "sentences": self.sentences,
            "table": self.table,
            "costs": dict(self.costs),
        }
        write_json(folder / "anatomy.json", record)
        self.to_csv(folder / "anatomy.csv")
        self.to_html(folder / "anatomy.html")
        return [folder / f"anatomy.{kind}" for kind in ("html", "json", "csv")]
