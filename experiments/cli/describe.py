"""What a run says in words: the table of what is trained, and what came out."""

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
    """The claim of the experiment: every parameter, its label and its size."""
    flat, labels = paths.flatten(params), paths.flatten(partition.labels(params))
    table = Table("parameter", "shape", "size", "label", box=None, pad_edge=False)
    for path, leaf in flat.items():
        style = "dim" if labels[path] == FROZEN else ""
        shape = " x ".join(map(str, leaf.shape))
        table.add_row(path, shape, f"{int(np.prod(leaf.shape)):,}", labels[path], style=style)
    show(table)  # wide enough for the longest path
    counts = partition.count(params)
    print("parameters:", ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())))


def announce(setup: Setup) -> None:
    """What a run is about to train."""
    print_labels(setup.partition, setup.shapes())
    if setup.task.remark:
        print(f"note: {setup.task.remark}")


def print_result(workdir: Workdir) -> None:
    """The metrics of a finished run beside the trivial baselines."""
    result = workdir.read("result.json")
    title = f"{result['config']['name']}, {len(result['seeds'])} seeds"
    table = Table("metric", "mean", "sem", "n", box=None, pad_edge=False, title=title)
    for name, value in result["metrics"].items():
        mean, _, error = with_error(value["mean"], value["sem"]).partition(" ± ")
        table.add_row(name, mean, error or "-", str(value["n"]))
    for name, value in result.get("baselines", {}).items():
        table.add_row(f"baseline {name}", number(value), "", "", style="dim")
    show(table)
    pictures = [name for name in ("curves.png", "figure.png") if (workdir / name).exists()]
    print(f"the run is in {workdir.path}" + f" (see {', '.join(pictures)})" * bool(pictures))


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV; the first one is the head. No cell is a formula to a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_harmless, row) for row in rows)
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    """The cell; behind an apostrophe if it begins as a formula does and is no number."""
    if not (isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))):
        return cell
    try:
        complex(cell)
    except ValueError:
        return cell if cell == "-" else f"'{cell}"
    return cell


def show(table: Table, width: int = 120) -> None:
    """Prints a table, in a file as wide as `width`."""
    console = Console()
    (console if console.is_terminal else Console(width=width)).print(table)


def label(variant: str) -> str:
    """ "Frozen-QK" of "frozen_qk"."""
    spelled = {"qk": "QK", "mlp": "MLP", "mixit": "MixiT"}
    return "-".join(spelled.get(word, word.capitalize()) for word in variant.split("_"))


def differing(settings: int) -> str:
    """ "; 2 settings differ from it", behind the name of a scale; "" for none."""
    if not settings:
        return ""
    return f"; {settings} setting{' differs' if settings == 1 else 's differ'} from it"
