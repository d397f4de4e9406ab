"""Table of a sweep: a row for each learning rate of each run, with the best row of each model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from experiments.cli import describe
from experiments.schedule.grids import RATE, Run
from experiments.schedule.jobs import Job
from jaxformer.core.text_format import with_error
from jaxformer.io.atomic_files import write_atomically
from jaxformer.io.run_folder import Workdir
from jaxformer.report.tables import csv_text
from jaxformer.stats.differences import UNDECIDED, Number, difference_on_shared_seeds
from jaxformer.stats.members import number_over_seeds
from jaxformer.training.result import validated

MAX_SHOWN_ROWS = 40  # printed rows; the file has all rows


class Row(NamedTuple):
    """The seeds of one learning rate of one run."""

    model: str  # "retrieval frozen_qk"
    varied: Mapping[str, str]  # the fields of the grid
    rate: float | None  # the learning rate; None for a run without learning rates
    seeds: int
    validation: Number | None
    metrics: dict[str, Number]  # on the test set
    diverged: int  # the number of seeds whose training diverged
    workdir: Path
    validation_metric: str = "accuracy"
    best: bool = False

    @property
    def fitness(self) -> float:
        """The validation metric, negated for a loss; -inf if a seed diverged."""
        if self.diverged or self.validation is None or math.isnan(self.validation.mean):
            return -math.inf
        is_loss = self.validation_metric == "loss"
        return -self.validation.mean if is_loss else self.validation.mean


def model_name(run: Run) -> str:
    """Returns the config's file name and arguments without the scale."""
    file, _, arguments = run.config.partition(":")
    pairs = [argument.partition("=") for argument in arguments.split(",") if argument]
    return " ".join([Path(file).stem, *(value for name, _, value in pairs if name != "scale")])


def rows_of_runs(finished: Sequence[tuple[Run, Job]]) -> list[Row]:
    """Returns the rows of finished runs; the best row of each model in validation is marked."""
    rows = []
    for run, job in finished:
        result = Workdir(job.workdir).read("result.json")
        rows += rows_of_result(model_name(run), run.varied, result, job.workdir)
    for model in dict.fromkeys(row.model for row in rows):
        usable = [i for i, r in enumerate(rows) if r.model == model and r.fitness > -math.inf]
        if usable:
            best = max(usable, key=lambda i: rows[i].fitness)
            rows[best] = rows[best]._replace(best=True)
    return rows


def rows_of_result(
    model: str, varied: Mapping[str, str], result: Mapping[str, Any], workdir: Path
) -> list[Row]:
    """Returns a row for each learning rate. A run without learning rates has one row."""
    # Trained members have a validation accuracy, even if the validation loss chooses among them.
    members = [m for m in result["members"] if "validation_accuracy" in m]
    blank = Row(model, varied, None, len(result["seeds"]), None, {}, 0, workdir)
    if not members:  # such as a figure of theory or a posterior
        return [blank._replace(metrics={n: _mean(v) for n, v in result["metrics"].items()})]
    rates = dict.fromkeys(member["learning_rate"] for member in members)
    return [
        _row_of_members(blank, rate, [m for m in members if m["learning_rate"] == rate])
        for rate in rates
    ]


def _row_of_members(blank: Row, rate: float, members: list[dict[str, Any]]) -> Row:
    """Returns the row of the members of one learning rate, which differ in their seeds."""
    validation_metric = validated(members[0])[0]
    shared_names = [n for n in members[0]["metrics"] if all(n in m["metrics"] for m in members)]
    validation = {member["seed"]: validated(member)[1] for member in members}
    metrics = {
        name: number_over_seeds({m["seed"]: m["metrics"][name] for m in members}, name)
        for name in shared_names
    }
    return blank._replace(
        rate=rate,
        seeds=len(members),
        validation=number_over_seeds(validation, validation_metric),
        metrics=metrics,
        diverged=sum(member.get("diverged_at") is not None for member in members),
        validation_metric=validation_metric,
    )


def undecided(best: Row, rows: Sequence[Row]) -> list[Row]:
    """Returns the model's other rows whose validation score does not differ significantly."""
    others = [row for row in rows if row is not best and row.model == best.model]
    return [row for row in others if row.fitness > -math.inf and _is_undecided(best, row)]


def _is_undecided(left: Row, right: Row) -> bool:
    if left.validation is None or right.validation is None:
        return True
    return difference_on_shared_seeds(left.validation, right.validation).verdict() == UNDECIDED


def write(file: Path, rows: Sequence[Row]) -> None:
    """Writes all rows as CSV."""
    fields = _unique(name for row in rows for name in row.varied)
    metrics = _unique(name for row in rows for name in row.metrics)
    validation_metrics = _unique(row.validation_metric for row in rows)
    head = ["model", *fields, RATE, "seeds", "diverged", "best"]
    head += [column for name in validation_metrics for column in (f"validation_{name}", "sem")]
    head += [column for name in metrics for column in (name, f"{name} sem")]
    lines: list[list[Any]] = [[*head, "workdir"]]
    for row in rows:
        line: list[Any] = [row.model, *(row.varied.get(field, "") for field in fields)]
        line += ["" if row.rate is None else f"{row.rate:g}", row.seeds, row.diverged]
        line += ["yes" if row.best else ""]
        for name in validation_metrics:
            line += _csv_cells(row.validation if name == row.validation_metric else None)
        for name in metrics:
            line += _csv_cells(row.metrics.get(name))
        lines.append([*line, row.workdir])
    write_atomically(file, csv_text(lines).encode())


def show(rows: Sequence[Row]) -> None:
    """Prints the table, and a sentence for the best row of each model."""
    fields = _unique(name for row in rows for name in row.varied)
    metric = _main_metric(rows)
    table = Table("model", *fields, "rate", "seeds", "validation", f"test {metric}", box=None)
    ordered = sorted(rows, key=lambda row: (row.model, -row.fitness))
    for row in ordered[:MAX_SHOWN_ROWS]:
        values = [row.varied.get(field, "-") for field in fields]
        rate = "-" if row.rate is None else f"{row.rate:g}"
        validation = f"{row.diverged} diverged" if row.diverged else _text(row.validation)
        cells = [row.model, *values, rate, str(row.seeds), validation]
        table.add_row(*cells, _text(row.metrics.get(metric)), style="bold" if row.best else "")
    describe.show(table, width=140)
    if len(rows) > MAX_SHOWN_ROWS:
        print(f"({len(rows) - MAX_SHOWN_ROWS} more rows in the file)")
    for row in ordered:
        if row.best:
            print(_best_sentence(row, rows, metric))


def _best_sentence(best: Row, rows: Sequence[Row], metric: str) -> str:
    settings = [f"{name} = {value}" for name, value in best.varied.items()]
    settings += [] if best.rate is None else [f"{RATE} = {best.rate:g}"]
    sentence = (
        f"best {best.model}: test {metric} {_text(best.metrics.get(metric))} ({best.seeds} seeds) "
        f"with {', '.join(settings)}, chosen on validation {best.validation_metric}"
    )
    n_others = sum(row.model == best.model for row in rows) - 1
    if not n_others:
        return sentence
    n_undecided = len(undecided(best, rows))
    return f"{sentence}; {n_undecided} of {n_others} others cannot be told from it"


def _mean(value: Mapping[str, Any]) -> Number:
    mean, sem = (math.nan if value[name] is None else value[name] for name in ("mean", "sem"))
    return Number(mean, sem, value["n"])


def _csv_cells(value: Number | None) -> list[str]:
    numbers = (math.nan, math.nan) if value is None else (value.mean, value.sem)
    return ["" if math.isnan(x) else f"{x:.6g}" for x in numbers]


def _text(value: Number | None) -> str:
    if value is None or math.isnan(value.mean):
        return "-"
    return with_error(value.mean, value.sem)


def _unique(names: Iterable[str]) -> list[str]:
    """Returns the names in order, each once."""
    return list(dict.fromkeys(names))


def _main_metric(rows: Sequence[Row]) -> str:
    names = _unique(name for row in rows for name in row.metrics)
    return "accuracy" if "accuracy" in names or not names else names[0]
