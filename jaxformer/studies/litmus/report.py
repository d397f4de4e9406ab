"""`Litmus`: the verdict of a litmus test with its numbers, as text, table, figure and JSON."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxformer.core.variants import label
from jaxformer.io.atomic_files import write_json
from jaxformer.stats.differences import Number, difference
from jaxformer.studies.litmus import figure
from jaxformer.studies.litmus.rule import Runs, Trained, judge, read


@dataclass(frozen=True)
class Litmus:
    """The verdict on a task, and the accuracies of the networks that were trained for it."""

    task: str
    scale: str
    verdict: str  # "needed", "helps", "not needed" or "cannot be told"
    sentence: str
    trivial: tuple[str, float]  # name and accuracy of the best trivial predictor
    variants: Mapping[str, Trained]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each variant, and one for the trivial predictor: `pandas.DataFrame(rows)`.

        `low` and `high` are the ends of the 95 % interval.
        """
        rows = []
        for variant, trained in self.variants.items():
            interval = difference(trained.accuracy, Number(0.0))
            rows.append(
                {
                    "variant": variant,
                    "accuracy": trained.accuracy.mean,
                    "low": interval.low,
                    "high": interval.high,
                    "seeds": trained.seeds,
                    "learning_rate": trained.rates[0],  # validation chose one for all seeds
                    "steps": trained.steps,
                    "control": trained.control,
                }
            )
        name, accuracy = self.trivial
        return [*rows, {"variant": f"trivial: {name}", "accuracy": accuracy}]

    @property
    def table(self) -> str:
        """The accuracies in %, with rate, steps and the control's word, a line for each variant."""
        lines = []
        for variant, trained in self.variants.items():
            tries = f"rate {trained.rates[0]:g}, {trained.steps:,} steps"
            word = f", {trained.control}" if trained.control else ""
            lines.append((label(variant), f"{trained.accuracy.percent()} %  {tries}{word}"))
        name, accuracy = self.trivial
        lines.append((f"trivial predictor ({name.replace('_', ' ')})", f"{100 * accuracy:.1f} %"))
        width = max(len(text) for text, _ in lines)
        return "\n".join(f"{text:<{width}}  {rest}" for text, rest in lines)

    def plot(self, file: str | Path | None = None) -> Any:
        """Returns a matplotlib figure of the accuracies; with `file` (png, svg, pdf) saves it."""
        accuracies = {variant: trained.accuracy for variant, trained in self.variants.items()}
        settings = ", ".join(filter(None, (self.task, self.scale)))
        to = None if file is None else Path(file)
        return figure.draw(accuracies, self.trivial, self.verdict, settings, to)

    def as_json(self) -> dict[str, Any]:
        """Returns the content of litmus.json."""
        name, accuracy = self.trivial
        values = {field: getattr(self, field) for field in ("task", "scale", "verdict", "sentence")}
        trivial = {"name": name, "accuracy": accuracy}
        return values | {"trivial": trivial, "variants": dict(self.variants)}

    def save(self, folder: Path) -> None:
        """Writes litmus.json (every number) and litmus.png into a folder."""
        write_json(folder / "litmus.json", self.as_json())
        self.plot(folder / "litmus.png")

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.table}"

    def _repr_html_(self) -> str:
        """Returns the sentence and the table, which a notebook displays."""
        return f"<p>{html.escape(self.sentence)}</p><pre>{html.escape(self.table)}</pre>"


def make_litmus(
    task: str, scale: str, runs: Mapping[str, Runs], trivial: tuple[str, float]
) -> Litmus:
    """Judges a task by the rule of `jaxformer.studies.litmus.rule` and returns the verdict."""
    name, guess = trivial
    trainings = {variant: of_variant.training(guess) for variant, of_variant in runs.items()}
    judgement = judge(task, trainings, name)
    standard = runs["standard"]
    variants = {variant: read(of_variant, standard, guess) for variant, of_variant in runs.items()}
    return Litmus(task, scale, judgement.verdict, judgement.sentence, trivial, variants)
