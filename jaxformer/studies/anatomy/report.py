"""`Report`: what each part of one transformer does, as text, page, picture and files."""

import html
import json
from pathlib import Path

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.report.tables import csv_text
from jaxformer.studies.anatomy import drawing, page
from jaxformer.studies.anatomy.content import Content
from jaxformer.studies.anatomy.text_tables import effects_text, text_table

NOTHING_DECIDED = "Nothing is decided yet: more seeds or prompts are needed."


class Report(Content):
    """The content of a report with its outputs: `print`, `to_html`, `to_csv`, `plot`, `save`."""

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
            "costs": self.costs,
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
