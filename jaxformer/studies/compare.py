"""`jaxformer.compare`: runs of one task side by side, with the interval of each difference."""

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxformer.core.errors import UserError
from jaxformer.core.text_format import number, with_error
from jaxformer.io.atomic_files import json_value
from jaxformer.io.run_folder import flatten_config
from jaxformer.loading import open_run
from jaxformer.report import figure_style
from jaxformer.report.tables import shown_metrics
from jaxformer.stats import controls
from jaxformer.stats.differences import Difference, difference_on_shared_seeds
from jaxformer.stats.members import record_number
from jaxformer.stats.trainings import training_of
from jaxformer.training import curves
from jaxformer.training.run_view import Run

TABLE_WIDTH = 160  # characters
SCORES = ("accuracy", "exact_match", "loss")  # metrics that say how well a task is solved


@dataclass(frozen=True)
class Comparison:
    """Runs of one task side by side.

    A difference is the score of a run minus that of the first, or of the first that has finished.
    """

    runs: Mapping[str, Run]  # by label

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each metric and run: `pandas.DataFrame(rows)`.

        `difference` is the run's mean minus the first run's, over the seeds that both have where
        they share any, so it need not be the difference of the two `mean`s. `low` and `high` are
        the ends of its 95 % interval, and `verdict` is "above", "below" or "cannot tell". `control`
        says whether the run with the lower accuracy or the larger loss was trained, by
        `jaxformer.stats.controls`; a single run never shows that it has ended, unless it has solved
        the task.
        """
        results = self._results()
        rows = []
        for metric in _metrics_of(results):
            for label, result in results.items():
                value = result["metrics"].get(metric)
                if value is None:
                    continue
                row = {"metric": metric, "run": label, **value}
                first, *_ = results.values()
                if result is not first and (difference := metric_difference(first, result, metric)):
                    row |= {
                        "difference": difference.gap,
                        "low": difference.low,
                        "high": difference.high,
                    }
                    row["verdict"] = difference.verdict()
                    row["control"] = metric_control(first, result, metric)
                rows.append(row)
        return rows

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings that differ: {"optim.learning_rate": {label: value}}."""
        fields = {label: flatten_config(run.config) for label, run in self.runs.items()}
        differing = {}
        for field in sorted(set().union(*fields.values())):
            values = {label: values.get(field, "-") for label, values in fields.items()}
            first, *_ = values.values()
            if any(value != first for value in values.values()):
                differing[field] = values
        return differing

    def text(self, with_cost: bool = False) -> str:
        """Returns the tables of settings and metrics as text.

        Args:
          with_cost: whether metrics about speed and cost are shown too.
        """
        console = Console(file=io.StringIO(), width=TABLE_WIDTH)
        console.print(self._settings_table())
        if results := self._results():
            console.print(_metrics_table(results, with_cost))
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined]

    def plot(self, file: str | Path | None = None) -> Any:
        """Returns a matplotlib figure of the learning curves; saves it as `file`, if given."""
        baselines = next(map(curves.trivial_lines, self._results().values()), {})
        all_rows = {label: run.workdir.rows() for label, run in self.runs.items()}
        rows = {label: run_rows for label, run_rows in all_rows.items() if run_rows}
        chosen = {label: self.runs[label].is_chosen for label in rows}
        figure = curves.curves(rows, baselines, chosen, figure_style.notebook_figure())
        if file is not None:
            figure_style.save(figure, Path(file))
        return figure

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Returns the tables, which a notebook displays."""
        return f"<pre>{html.escape(self.text())}</pre>"

    def _results(self) -> dict[str, dict[str, Any]]:
        """Returns the content of result.json of each finished run."""
        return {
            label: json_value(run.finished.as_json())
            for label, run in self.runs.items()
            if run.finished is not None
        }

    def _settings_table(self) -> Table:
        title = "settings that differ"
        table = Table("setting", *self.runs, box=None, pad_edge=False, title=title)
        for field, values in self.settings.items():
            table.add_row(field, *map(str, values.values()))
        return table


def compare(*runs: Run | str | Path) -> Comparison:
    """Compares runs of one task: settings, metrics, differences with intervals.

    Example:

        import jaxformer

        comparison = jaxformer.compare("runs/standard", "runs/mixit")
        print(comparison)
        comparison.rows  # numbers, for pandas
        comparison.plot("curves.png")

    Args:
      *runs: two or more runs of `jaxformer.train` or `jaxformer.open`, or their folders. Each is
        compared with the first one.

    Returns:
      A `Comparison`: `rows`, `settings`, `plot()`. `print` shows its tables.

    Raises:
      UserError: a folder is no run, there are fewer than two, or their tasks or held-out examples
        differ.
    """
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    if len(opened) < 2:
        raise UserError(f"compare needs at least two runs, got {len(opened)}.")
    tasks = [_task_name(run) for run in opened]
    if other := next((task for task in tasks if task != tasks[0]), ""):
        raise UserError(
            f"the runs have different tasks, {tasks[0]} and {other}: their scores cannot be "
            "compared. Give runs of one task."
        )
    _check_same_examples(opened)
    return Comparison(dict(zip(_labels(opened), opened, strict=True)))


def metric_difference(first: dict, other: dict, metric: str) -> Difference | None:
    """Returns the difference other - first of a metric, or None if a result does not have it.

    Args:
      first: the content of result.json of the first run.
      other: the content of result.json of another run.
      metric: the name of the metric.
    """
    numbers = []
    for result in (other, first):
        mean = result["metrics"].get(metric, {})
        if mean.get("mean") is None:
            return None
        numbers.append(record_number(mean, result["members"], metric))
    return difference_on_shared_seeds(*numbers)


def metric_control(first: dict, other: dict, metric: str) -> str:
    """The word of `jaxformer.stats.controls` for the run that loses; "" where no score is compared.

    The arguments are those of `metric_difference`.
    """
    if metric not in SCORES:
        return ""
    trainings = [training_of(result, metric) for result in (other, first)]
    left, right = trainings
    if left is None or right is None:
        return ""
    loser, winner = (left, right) if left.score.mean < right.score.mean else (right, left)
    return str(controls.compare(loser, winner))


def _check_same_examples(runs: Sequence[Run]) -> None:
    """Raises UserError if two runs were scored on other examples, whatever their tasks are called.

    All tasks of arrays have one name, and the code of a task may be edited between two runs.
    """
    labels = _labels(runs)
    known = {
        label: examples
        for label, run in zip(labels, runs, strict=True)
        if (examples := _examples_hash(run))
    }
    for label, examples in known.items():
        first = next(iter(known))
        if examples != known[first]:
            raise UserError(
                f"{first} and {label} have different held-out examples (their hashes are "
                f"{known[first]} and {examples}), so their scores cannot be compared: train both "
                "on one data set with one data.seed, and with the same code of the task."
            )


def _examples_hash(run: Run) -> str:
    """The hash of the held-out examples of a run; "" if an older version wrote it."""
    return run.workdir.read("config.json").get("identity", {}).get("examples", "")


def _task_name(run: Run) -> str:
    config = run.config
    return config["task"]["name"] if "task" in config else config["name"]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Returns the shortest labels that distinguish the runs."""
    variants = [run.config["arguments"].get("variant", "") for run in runs]
    names = [run.folder.name if run.folder else "" for run in runs]
    folders = [str(run.folder) if run.folder else "" for run in runs]
    for labels in (variants, names, folders):
        if len(set(labels)) == len(labels) and all(labels):
            return labels
    return [f"run {i}" for i in range(1, len(runs) + 1)]


def _metrics_of(results: Mapping[str, dict]) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result["metrics"]))


def _metrics_table(results: Mapping[str, dict], with_cost: bool) -> Table:
    table = Table("metric", *results, box=None, pad_edge=False, title="mean +- standard error")
    first, *others = results.values()
    metrics = _metrics_of(results) if with_cost else shown_metrics(_metrics_of(results))
    for metric in metrics:
        table.add_row(
            metric, *(_cell(result["metrics"].get(metric)) for result in results.values())
        )
    for metric in metrics:
        differences = [metric_difference(first, other, metric) for other in others]
        if any(differences):
            texts = (
                f"{difference}: {difference.verdict()}" if difference else "-"
                for difference in differences
            )
            table.add_row(f"{metric}, difference", "", *texts)
            words = [metric_control(first, other, metric) for other in others]
            if any(words):
                table.add_row(f"{metric}, the run that loses", "", *words)
    for name in first.get("baselines", {}):
        values = (result["baselines"].get(name) for result in results.values())
        table.add_row(f"baseline {name}", *map(number, values), style="dim")
    return table


def _cell(value) -> str:
    if value is None:
        return "-"
    return f"{with_error(value['mean'], value['sem']).replace('±', '+-')} (n={value['n']})"
