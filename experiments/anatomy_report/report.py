"""`Report`: what each part of one transformer does, as table, sentences, figure and page."""

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.anatomy_report import components, drawing, page, sentences
from experiments.anatomy_report.components import DecidedEffect
from experiments.anatomy_report.effect import Effect
from experiments.anatomy_report.inside import Inside
from experiments.anatomy_report.judge import Table
from experiments.anatomy_report.sentences import Sentence
from experiments.anatomy_report.text_tables import effects_text, text_table
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.report.tables import csv_text

NOTHING_DECIDED = "Nothing is decided yet: more seeds or prompts are needed."


@dataclass(frozen=True, eq=False)
class Report:
    """The comparisons of one transformer, and the sentences that they decide.

    Attributes:
      name: the name of the task, run or model.
      training: the comparisons of trained variants; None for a published model.
      curves: {variant: [(step, training loss)]} of the first seed at the chosen learning rate.
      inside: the effects of the components of a trained network; None if it was not examined.
      maps: {head: (B, T, T)} attention of the heads that matter.
      tokens: a text for each token of each prompt.
      theory: lines of text with predictions of the papers' theories.
      costs: numbers such as "trainings" and "seconds".
      settings: the settings of the training, for the page.
    """

    name: str
    training: Table | None = None
    curves: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    inside: Inside | None = None
    maps: Mapping[str, Any] = field(default_factory=dict)
    tokens: Sequence[Sequence[str]] = ()
    theory: Sequence[str] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def decided(self) -> list[Sentence]:
        """The sentences about trained variants, each with its part, method and outcome."""
        return sentences.sentences(self.training) if self.training else []

    @cached_property
    def effects(self) -> list[DecidedEffect]:
        """The effects in the trained network.

        Their p-values are corrected together with those of the trained variants.
        """
        if self.inside is None:
            return []
        p_values = [row.p for row in self.training.rows] if self.training else []
        return components.decide(self.inside.effects, p_values)

    @cached_property
    def effect_sentences(self) -> list[tuple[str, Effect]]:
        """Sentences about components, with the effects that they state."""
        return [] if self.inside is None else components.sentences(self.inside, self.effects)

    @property
    def sentences(self) -> list[str]:
        """A sentence for each decided comparison, the largest losses first."""
        texts = [sentence.text for sentence in self.decided]
        return texts + [text for text, _ in self.effect_sentences]

    @cached_property
    def effect_table(self) -> list[dict[str, Any]]:
        """One dict for each effect of a component: `pandas.DataFrame(report.effect_table)`."""
        return [
            {**dataclasses.asdict(row.effect), "q_value": row.q, "is_decided": row.is_decided}
            for row in self.effects
        ]

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
        parts = [text_table(self.training)] if self.training else []
        if any(row.is_decided for row in self.effects):
            parts.append(effects_text(self.effects))
        sentences = self.sentences or [NOTHING_DECIDED]
        return "\n\n".join([*parts, "\n".join([*sentences, *self.theory])])

    def to_csv(self, file: str | Path | None = None) -> str:
        """Returns the comparisons as CSV, or the effects without any; writes `file`, if given."""
        rows = self.table or self.effect_table
        columns = list(rows[0]) if rows else []
        text = csv_text([columns, *([*row.values()] for row in rows)])
        if file is not None:
            write_atomically(Path(file), text.encode())
        return text

    def to_html(self, file: str | Path | None = None) -> str:
        """Returns the HTML page and writes it to `file`, if given."""
        text = page.page(self)
        if file is not None:
            write_atomically(Path(file), text.encode())
        return text

    def plot(self, file: str | Path | None = None) -> Any:
        """Returns drawing and sentences as a matplotlib figure; saves it as `file`, if given."""
        if self.training is None:
            raise UserError("the drawing shows trained variants, and this report has none.")
        layers = int(self.settings.get("layers", 1))
        title = f"Anatomy of {self.name}"
        figure = drawing.figure(self.training, title, layers=layers, sentences=self.decided)
        if file is not None:
            figure.savefig(file, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        if self.training is None:
            return f"<pre>{html.escape(str(self))}</pre>"
        lines = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences)
        return f"<pre>{html.escape(text_table(self.training))}</pre><ul>{lines}</ul>"

    def save(self, folder: Path) -> list[Path]:
        """Writes anatomy.html, .json, .csv and .png into a folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "name": self.name,
            "sentences": self.sentences,
            "verdicts": self.verdicts,
            "table": self.table,
            "effects": self.effect_table,
            "theory": list(self.theory),
            "costs": self.costs,
        }
        # Values that JSON does not have become text.
        json_values = json.loads(json.dumps(record, default=str))
        write_json(folder / "anatomy.json", json_values)
        self.to_csv(folder / "anatomy.csv")
        self.to_html(folder / "anatomy.html")
        names = ["anatomy.html", "anatomy.json", "anatomy.csv"]
        if self.training is not None:
            self.plot(folder / "anatomy.png")
            names.append("anatomy.png")
        return [folder / name for name in names]
