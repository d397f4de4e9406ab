"""Printed tables: the parameters of a run with their labels, and its results."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxformer.core import paths
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.text_format import number, with_error
from jaxformer.io.run_folder import Workdir
from jaxformer.training.setup import Setup


def print_labels(partition: Partition, params: Mapping[str, Any]) -> None:
    """Prints every parameter with its shape, size and label of the partition."""
    flat, labels = paths.flatten(params), paths.flatten(partition.labels(params))
    table = Table("parameter", "shape", "size", "label", box=None, pad_edge=False)
    for path, leaf in flat.items():
        style = "dim" if labels[path] == FROZEN else ""
        shape = " x ".join(map(str, leaf.shape))
        table.add_row(path, shape, f"{int(np.prod(leaf.shape)):,}", labels[path], style=style)
    show(table)
    counts = partition.count(params)
    print("parameters:", ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())))


def announce(setup: Setup) -> None:
    """Prints the parameters that a run is about to train, and the remark of its task."""
    print_labels(setup.partition, setup.shapes())
    if setup.task.remark:
        print(f"note: {setup.task.remark}")


def print_result(workdir: Workdir) -> None:
    """Prints the metrics of a finished run and the scores of trivial predictors."""
    result = workdir.read("result.json")
    title = f"{result['config']['name']}, {len(result['seeds'])} seeds"
    table = Table("metric", "mean", "sem", "n", box=None, pad_edge=False, title=title)
    for name, value in result["metrics"].items():
        mean, _, error = with_error(value["mean"], value["sem"]).partition(" ± ")
        table.add_row(name, mean, error or "-", str(value["n"]))
    for name, value in result.get("baselines", {}).items():
        table.add_row(f"baseline {name}", number(value), "", "", style="dim")
    show(table)
    figures = [name for name in ("curves.png", "figure.png") if (workdir / name).exists()]
    print(f"the run is in {workdir.path}" + f" (see {', '.join(figures)})" * bool(figures))


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Returns rows as CSV. Cells are escaped so that no spreadsheet evaluates one as a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_escape_formula, row) for row in rows)
    return text.getvalue()


def _escape_formula(cell: Any) -> Any:
    """Prepends an apostrophe to a text that begins like a formula and is no number."""
    if not (isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))):
        return cell
    try:
        complex(cell)
    except ValueError:
        return cell if cell == "-" else f"'{cell}"
    return cell


def show(table: Table, width: int = 120) -> None:
    """Prints a table. `width` counts characters and applies unless stdout is a terminal."""
    console = Console()
    (console if console.is_terminal else Console(width=width)).print(table)


def label(variant: str) -> str:
    """Returns the name of a variant for tables, such as "Frozen-QK" for "frozen_qk"."""
    spellings = {"qk": "QK", "mlp": "MLP", "mixit": "MixiT"}
    return "-".join(spellings.get(part, part.capitalize()) for part in variant.split("_"))


def differing_settings(settings: int) -> str:
    """Returns "; 2 settings differ from it", which follows the name of a scale, or "" for 0."""
    if not settings:
        return ""
    return f"; {settings} setting{' differs' if settings == 1 else 's differ'} from it"
