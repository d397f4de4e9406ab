"""Compares finished or running experiments: settings, curves, metrics with error bars.

    python experiments/compare.py RUN RUN [RUN ...] [--plot=FILE.png]

  RUN          folders of runs, two at least
  --plot=FILE  draws the learning curves (png, svg or pdf)

Prints the fields in which the configs differ, the metrics side by side (mean +- standard error over
seeds), and each run's difference from the first one. A difference has its 95 % interval and a
verdict: above, below or cannot tell. Runs that share seeds are compared seed by seed.
"""

try:
    import experiments  # noqa: F401 (first: sets how Ctrl-C ends the process)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (exits with the command that activates the environment)

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from experiments.cli.describe import show
from experiments.ledger.record_numbers import record_number
from experiments.ledger.statistics import difference_on_shared_seeds
from experiments.papers import plots
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import number, with_error
from jaxformer.io.run_folder import Workdir, flatten_config
from jaxformer.runtime import figure_style
from jaxformer.runtime.command_line import Parser, command
from jaxformer.training import curves


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("folders", nargs="*", type=Workdir, metavar="RUN")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args(argv)
    folders = args.folders
    if len(folders) < 2:
        raise UserError(f"give at least two run folders to compare, got {len(folders)}.")
    if args.plot:
        figure_style.check_file(args.plot, "--plot")
    labels = _labels(folders)
    show(_differences(folders, labels), width=160)
    results = {
        label: folder.read("result.json")
        for label, folder in zip(labels, folders, strict=True)
        if (folder / "result.json").exists()
    }
    if results:
        show(_metrics(results), width=160)
    for label in labels:
        if label not in results:
            print(f"{label} is not finished: no result.json yet")
    rows = {label: folder.rows() for label, folder in zip(labels, folders, strict=True)}
    if args.plot and any(rows.values()):
        baselines = next(iter(results.values()))["baselines"] if results else {}
        chosen = {}  # for each run, whether each member has the chosen learning rate
        for label, result in results.items():
            chosen[label] = [member.get("chosen", True) for member in result["members"]]
        started = {label: run_rows for label, run_rows in rows.items() if run_rows}
        figure = curves.curves(started, baselines, chosen)
        plots.save(figure, args.plot)
        print(f"curves: {args.plot}")
    return 0


def _labels(folders: list[Workdir]) -> list[str]:
    """Returns the shortest labels that distinguish the runs."""
    configs = [flatten_config(folder.read("config.json")["config"]) for folder in folders]
    variants = [fields.get("arguments.variant", "") for fields in configs]
    if len(set(variants)) == len(variants) and all(variants):
        return variants
    names = [folder.path.name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder.path) for folder in folders]


def _differences(folders: list[Workdir], labels: list[str]) -> Table:
    configs = [flatten_config(folder.read("config.json")["config"]) for folder in folders]
    table = Table("setting", *labels, box=None, pad_edge=False, title="settings that differ")
    for field in sorted(set().union(*configs)):
        values = [fields.get(field, "-") for fields in configs]
        if any(value != values[0] for value in values):
            table.add_row(field, *map(str, values))
    return table


def _metrics(results: dict) -> Table:
    table = Table("metric", *results, box=None, pad_edge=False, title="mean +- standard error")
    metrics = list(dict.fromkeys(name for result in results.values() for name in result["metrics"]))
    for metric in metrics:
        means = [result["metrics"].get(metric) for result in results.values()]
        table.add_row(metric, *map(_cell, means))
    first, *others = results.values()
    for metric in metrics:
        texts = [difference_text(first, other, metric) for other in others]
        if any(texts):
            table.add_row(f"{metric}, difference", "", *(text or "-" for text in texts))
    for name in first.get("baselines", {}):
        values = (result["baselines"].get(name) for result in results.values())
        table.add_row(f"baseline {name}", *map(number, values), style="dim")
    return table


def _cell(value) -> str:
    if value is None:
        return "-"
    return f"{with_error(value['mean'], value['sem']).replace('±', '+-')} (n={value['n']})"


def difference_text(first: dict, other: dict, metric: str) -> str:
    """Returns the difference other - first of a metric, with its 95 % interval and the verdict.

    Returns "" if one of the results does not have the metric.
    """
    numbers = []
    for result in (other, first):
        mean = result["metrics"].get(metric, {})
        if mean.get("mean") is None:
            return ""
        numbers.append(record_number(mean, result["members"], metric))
    difference = difference_on_shared_seeds(*numbers)
    return f"{difference}: {difference.verdict()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
