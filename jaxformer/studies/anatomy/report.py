"""`Report`: what each part of one transformer does, as text, page, picture and files."""

import html
import json
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically, write_json, written
from jaxformer.report.tables import csv_text
from jaxformer.studies.anatomy import drawing, page
from jaxformer.studies.anatomy.content import Content
from jaxformer.studies.anatomy.smallest import Elimination
from jaxformer.studies.anatomy.text_tables import effects_text, elimination_text, text_table


class Report(Content):
    """The content of a report with its outputs: `print`, `to_html`, `to_csv`, `plot`, `save`."""

    def __repr__(self) -> str:
        parts = [text_table(self.training)] if self.training else []
        if any(row.is_decided for row in self.effects):
            parts.append(
                effects_text(self.effects, self.inside.null_effects if self.inside else {})
            )
        parts += map(elimination_text, self.smallest)
        lines = [self.undecided, *self.sentences]
        if self.effect_sentences or self.group_sentences:
            lines.append(self.sources_of_error)
        lines = [line for line in lines if line] or [page.NOTHING_DECIDED]
        parts.append("\n".join([*lines, *self.theory]))
        if self.next_steps:
            parts.append("\n".join(["Next:", *(f"  {step}" for step in self.next_steps)]))
        return "\n\n".join(parts)

    def to_csv(self, file: str | Path | None = None) -> str:
        """Returns the comparisons as CSV, or the effects without any; writes `file`, if given."""
        rows = self.table or self.effect_table
        columns = list(rows[0]) if rows else []
        text = csv_text([columns, *([*row.values()] for row in rows)])
        return written(text, file)

    def to_html(self, file: str | Path | None = None) -> str:
        """Returns the HTML page and writes it to `file`, if given."""
        return written(page.page(self), file)

    def plot(self, file: str | Path | None = None) -> drawing.Picture:
        """The network as boxes beside the sentences, as SVG; writes `file`, if given.

        The picture is text, which a notebook displays and a browser or editor of vectors opens.
        """
        if self.training is None:
            raise UserError("the drawing shows trained variants, and this report has none.")
        layers = int(self.settings.get("layers", 1))
        title = f"Anatomy of {self.name}"
        picture = drawing.picture(self.training, title, layers, self.decided)
        if file is not None:
            if Path(file).suffix != ".svg":
                raise UserError(f"the drawing is SVG: give a file such as anatomy.svg, got {file}.")
            write_atomically(Path(file), picture.encode())
        return picture

    def _repr_html_(self) -> str:
        picture = "" if self.training is None else self.plot()._repr_html_()
        return f"{picture}<pre>{html.escape(str(self))}</pre>"

    def _elimination(self, found: Elimination) -> dict[str, Any]:
        """A search for the smallest network, step by step."""
        steps = [
            {
                "gone": step.gone,
                "parameters": step.parameters,
                "score": step.score.mean,
                "standard_error": step.score.error,
                "seeds": step.score.n,
                "looked_as_good": step.ties,
            }
            for step in found.steps
        ]
        return found._asdict() | {"steps": steps, "sentence": found.sentence}

    def _moments(self) -> list[dict[str, Any]]:
        """The parts at several steps of training."""
        moments = () if self.during is None else self.during.moments
        return [
            {
                "step": moment.step,
                "training_loss": moment.loss,
                "labels": moment.labels,
                "mean_ablation": {
                    part: [effect.value, effect.half_width]
                    for part, effect in moment.effects.items()
                },
            }
            for moment in moments
        ]

    def _whole_network(self) -> dict[str, Any] | None:
        """The score that all comparisons are compared with."""
        table = self.training
        if table is None:
            return None
        score = table.whole.score
        return {
            "score": score.mean,
            "standard_error": score.error,
            "seeds": score.n,
            "learning_rate": table.whole.rate,
            "guessing": table.trivial,
            "guessing_is": table.trivial_name,
            "margin": table.margin,
        }

    def _examined(self) -> dict[str, Any] | None:
        """The sample and the scores behind the effects in the trained network."""
        inside = self.inside
        if inside is None:
            return None
        names = ("score", "half_width", "corrupted", "corrupted_half_width", "unit", "networks")
        return {name: getattr(inside, name) for name in names} | {
            "pairs": inside.samples,
            "smallest_effect": inside.smallest,
            "labels": inside.labels,
            "labels_table": self.labels_table,
            "total": inside.total,
            "null_effects": inside.null_effects,
            "together": inside.mechanisms,
            "writes": inside.writes,
            "can_go_at_once": [
                {
                    "group": spare.name,
                    "parts": spare.parts,
                    "any": spare.spare,
                    "all_choices_tried": spare.is_exact,
                }
                for spare in inside.spares
            ],
            "left_out": inside.left_out,
        }

    def save(self, folder: Path) -> list[Path]:
        """Writes anatomy.html, .json, .csv and .svg into a folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "name": self.name,
            "sentences": self.sentences,
            "verdicts": self.verdicts,
            "table": self.table,
            "effects": self.effect_table,
            "theory": list(self.theory),
            "smallest": [self._elimination(found) for found in self.smallest],
            "during": self._moments(),
            "next": self.next_steps,
            "costs": self.costs,
            "settings": self.settings,
            "whole_network": self._whole_network(),
            "examined": self._examined(),
        }
        # Values that JSON does not have become text.
        json_values = json.loads(json.dumps(record, default=str))
        write_json(folder / "anatomy.json", json_values)
        self.to_csv(folder / "anatomy.csv")
        self.to_html(folder / "anatomy.html")
        names = ["anatomy.html", "anatomy.json", "anatomy.csv"]
        if self.training is not None:
            self.plot(folder / "anatomy.svg")
            names.append("anatomy.svg")
        return [folder / name for name in names]
