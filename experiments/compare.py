"""Compares finished or running experiments: settings, curves, metrics with error bars.

    python experiments/compare.py DIR_A DIR_B [DIR_C ...] [--plot=FILE.png]

Prints the fields in which the configs differ, the metrics side by side (mean +- standard error over
seeds) and, for seeds that all runs share, the paired difference from the first run. Draws the
learning curves to compare.png, or to FILE.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.shared import plots
from experiments.shared.describe import number
from jaxformer.errors import UserError
from jaxformer.records import Workdir, flat
from jaxformer.training import curves
from jaxformer.training.metrics import over_seeds


def main(argv: Sequence[str]) -> int:
    try:
        return compare(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(argv: Sequence[str]) -> int:
    plot, folders = "compare.png", []
    for word in argv:
        if word in ("--help", "-h"):
            print(__doc__)
            return 0
        if word.startswith("--plot="):
            plot = word.removeprefix("--plot=")
        elif word.startswith("-"):
            raise UserError(f"unknown flag {word!r}. The flags are --plot=FILE.png and --help.")
        else:
            folders.append(Workdir(word))
    if len(folders) < 2:
        raise UserError(f"give at least two run folders to compare, got {len(folders)}.")
    if Path(plot).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot must name a .png, .svg or .pdf file, got {plot!r}.")
    names = _labels(folders)
    _print(_differences(folders, names))
    results = {
        name: folder.read("result.json")
        for name, folder in zip(names, folders, strict=True)
        if (folder / "result.json").exists()
    }
    if results:
        _print(_metrics(results))
    for name in names:
        if name not in results:
            print(f"{name} is not finished: no result.json yet")
    runs = {name: folder.rows() for name, folder in zip(names, folders, strict=True)}
    if any(runs.values()):
        baselines = next(iter(results.values()))["baselines"] if results else {}
        chosen = {name: [m["chosen"] for m in r["members"]] for name, r in results.items()}
        figure = curves.curves({n: r for n, r in runs.items() if r}, baselines, chosen)
        plots.save(figure, Path(plot))
        print(f"curves: {plot}")
    return 0


def _labels(folders: list[Workdir]) -> list[str]:
    """The shortest names that tell the runs apart."""
    configs = [flat(folder.read("config.json")["config"]) for folder in folders]
    variants = [config.get("arguments.variant", "") for config in configs]
    if len(set(variants)) == len(variants) and all(variants):
        return variants
    names = [folder.path.name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder.path) for folder in folders]


def _differences(folders: list[Workdir], names: list[str]) -> Table:
    configs = [flat(folder.read("config.json")["config"]) for folder in folders]
    table = Table("setting", *names, box=None, pad_edge=False, title="settings that differ")
    for field in sorted(set().union(*configs)):
        values = [config.get(field, "-") for config in configs]
        if any(value != values[0] for value in values):
            table.add_row(field, *map(str, values))
    return table


def _metrics(results: dict) -> Table:
    table = Table("metric", *results, box=None, pad_edge=False, title="mean +- standard error")
    metrics = list(dict.fromkeys(m for r in results.values() for m in r["metrics"]))
    for metric in metrics:
        cells = [r["metrics"].get(metric) for r in results.values()]
        table.add_row(metric, *(_cell(c) for c in cells))
    first, *others = results.values()
    for metric in metrics:
        paired = [_paired(first, other, metric) for other in others]
        if any(paired):
            table.add_row(f"{metric}, paired difference", "", *(p or "-" for p in paired))
    for name in first.get("baselines", {}):
        values = (r["baselines"].get(name) for r in results.values())
        table.add_row(f"baseline {name}", *map(number, values), style="dim")
    return table


def _cell(value) -> str:
    if value is None:
        return "-"
    error = "" if value["sem"] is None else f" +- {number(value['sem'])}"
    return f"{number(value['mean'])}{error} (n={value['n']})"


def _paired(first: dict, other: dict, metric: str) -> str | None:
    """The mean difference over the seeds that both have: equal seeds saw equal data."""
    one, two = (_by_seed(result, metric) for result in (first, other))
    shared = sorted(set(one) & set(two))
    if len(shared) < 2:
        return None
    difference = over_seeds([two[seed] - one[seed] for seed in shared])
    return f"{difference.mean:+.4g} +- {difference.sem:.2g}"


def _by_seed(result: dict, metric: str) -> dict[int, float]:
    members = [m for m in result["members"] if m.get("chosen", True) and metric in m["metrics"]]
    values = {m["seed"]: m["metrics"][metric] for m in members}
    return {s: v["mean"] if isinstance(v, dict) else v for s, v in values.items()}


def _print(table: Table) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
