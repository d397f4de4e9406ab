"""The table of a sweep: a row for each learning rate of each run, the best of each model marked."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from experiments.cli import describe
from experiments.cli.describe import csv_text
from experiments.schedule.grids import RATE, Run
from experiments.schedule.jobs import Job
from jaxformer.core.text_format import with_error
from jaxformer.io.atomic_files import write_atomically
from jaxformer.io.run_folder import Workdir
from jaxformer.training.metrics import Mean, over_seeds
from jaxformer.training.result import validated

SHOWN = 40  # rows on the screen; the file has them all


class Row(NamedTuple):
    """The seeds of one learning rate of one run."""

    model: str  # "retrieval frozen_qk"
    varied: dict[str, str]  # the fields of the grid
    rate: float | None
    seeds: int
    validation: Mean | None
    metrics: dict[str, Mean]  # on the test set
    diverged: int  # seeds
    workdir: Path
    score: str = "accuracy"  # what `validation` is the mean of
    best: bool = False

    @property
    def goodness(self) -> float:
        """The higher the better; of a loss the lowest is the best."""
        if self.validation is None or math.isnan(self.validation.mean):
            return -math.inf
        return -self.validation.mean if self.score == "loss" else self.validation.mean


def model(run: Run) -> str:
    """What is compared: the config's file and its arguments, without the scale."""
    file, _, arguments = run.config.partition(":")
    words = [word.partition("=") for word in arguments.split(",") if word]
    return " ".join([Path(file).stem, *(value for name, _, value in words if name != "scale")])


def gather(done: Sequence[tuple[Run, Job]]) -> list[Row]:
    """Rows of finished runs; of each model the one that is best in validation is `best`."""
    rows = [row for run, job in done for row in _rows(run, job)]
    for name in dict.fromkeys(row.model for row in rows):
        mine = [i for i, row in enumerate(rows) if row.model == name and row.validation]
        usable = [i for i in mine if not rows[i].diverged]
        if usable:
            best = max(usable, key=lambda i: _value(rows[i]))
            rows[best] = rows[best]._replace(best=True)
    return rows


def write(file: Path, rows: Sequence[Row]) -> None:
    """All rows as CSV."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    fields = _fields(rows)
    scores = list(dict.fromkeys(row.score for row in rows))
    head = ["model", *fields, RATE, "seeds", "diverged", "best"]
    head += [word for name in scores for word in (f"validation_{name}", "sem")]
    head += [word for name in metrics for word in (name, f"{name} sem")]
    lines: list[list[Any]] = [[*head, "workdir"]]
    for row in rows:
        line: list[Any] = [row.model, *(row.varied.get(field, "") for field in fields)]
        line += ["" if row.rate is None else f"{row.rate:g}", row.seeds, row.diverged]
        line += ["yes" if row.best else ""]
        for name in scores:
            line += _pair(row.validation if name == row.score else None)
        for name in metrics:
            line += _pair(row.metrics.get(name))
        lines.append([*line, row.workdir])
    write_atomically(file, csv_text(lines).encode())


def show(rows: Sequence[Row]) -> None:
    """The table, and a sentence for the best of each model."""
    fields, metric = _fields(rows), _headline(rows)
    table = Table("model", *fields, "rate", "seeds", "validation", f"test {metric}", box=None)
    ordered = sorted(rows, key=lambda row: (row.model, -_value(row)))
    for row in ordered[:SHOWN]:
        values = [row.varied.get(field, "-") for field in fields]
        rate = "-" if row.rate is None else f"{row.rate:g}"
        note = f"{row.diverged} diverged" if row.diverged else _say(row.validation)
        score = _say(row.metrics.get(metric))
        style = "bold" if row.best else ""
        table.add_row(row.model, *values, rate, str(row.seeds), note, score, style=style)
    describe.show(table, width=140)
    if len(rows) > SHOWN:
        print(f"({len(rows) - SHOWN} more rows in the file)")
    for row in (row for row in ordered if row.best):
        settings = [f"{name} = {value}" for name, value in row.varied.items()]
        print(
            f"best {row.model}: test {metric} {_say(row.metrics.get(metric))} ({row.seeds} seeds) "
            f"with {', '.join([*settings, f'{RATE} = {row.rate:g}'])}, chosen on validation "
            f"{row.score}"
        )


def _rows(run: Run, job: Job) -> list[Row]:
    result = Workdir(job.workdir).read("result.json")
    members = [m for m in result["members"] if "validation_accuracy" in m]
    blank = Row(model(run), run.varied, None, len(result["seeds"]), None, {}, 0, job.workdir)
    if not members:  # a figure of theory, a posterior: nothing was chosen
        return [blank._replace(metrics={n: _mean(m) for n, m in result["metrics"].items()})]
    rows = []
    for rate in dict.fromkeys(member["learning_rate"] for member in members):
        mine = [member for member in members if member["learning_rate"] == rate]
        score, scores = validated(mine[0])[0], [_number(validated(m)[1]) for m in mine]
        names = [name for name in mine[0]["metrics"] if all(name in m["metrics"] for m in mine)]
        metrics = {name: over_seeds([_number(m["metrics"][name]) for m in mine]) for name in names}
        diverged = sum(m.get("diverged_at") is not None for m in mine)
        of_seeds = (len(mine), over_seeds(scores), metrics, diverged)
        rows.append(Row(blank.model, run.varied, rate, *of_seeds, job.workdir, score))
    return rows


def _mean(value: dict[str, Any]) -> Mean:
    return Mean(_number(value["mean"]), _number(value["sem"]), value["n"])


def _number(value: Any) -> float:
    value = value["mean"] if isinstance(value, dict) else value
    return math.nan if value is None else float(value)


def _value(row: Row) -> float:
    return -math.inf if row.diverged else row.goodness


def _pair(value: Mean | None) -> list[str]:
    numbers = (math.nan, math.nan) if value is None else (value.mean, value.sem)
    return ["" if math.isnan(x) else f"{x:.6g}" for x in numbers]


def _say(value: Mean | None) -> str:
    if value is None or math.isnan(value.mean):
        return "-"
    return with_error(value.mean, value.sem)


def _fields(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.varied))


def _headline(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))
    return "accuracy" if "accuracy" in names or not names else names[0]
