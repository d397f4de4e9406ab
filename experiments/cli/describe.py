"""Printed tables: the parameters of a run with their labels, and its results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxformer.core.label_table import label_table
from jaxformer.core.text_format import counted, number, with_error
from jaxformer.io.run_folder import Workdir
from jaxformer.report.tables import shown_metrics
from jaxformer.training.setup import Setup

MEANINGS = {
    "accuracy": "share of scored tokens that are predicted right",
    "exact_match": "share of sequences without an error",
    "loss": "cross-entropy in nats a token",
    "in_context": "share of predictions that occur in the context",
    "trained_share": "trained parameters of all",
    "bits_per_parameter": "memorised bits for each trained parameter",
    "perplexity": "exp(loss)",
    "waiting_share": "share of the time in which the device waited for data",
    "share_of_matmul": "speed relative to one large matrix product",
}
TRIVIAL = "a trivial predictor"
# {first or last word of the name of a baseline: what it is}
REFERENCE_KINDS = {
    "paper": "printed in the paper",
    "exact": "exact theory",
    "limit": "theory in the limit of infinite size",
    "asymptotic": "theory for large sizes",
    "theory": "theory",
}
# Tables are printed at this width even on a narrower terminal, because rich would cut numbers off.
LEAST_TABLE_WIDTH = 72


def announce(setup: Setup) -> None:
    """Prints the parameters that a run is about to train, and the remark of its task."""
    print(label_table(setup.partition, setup.shapes()))
    if setup.task.remark:
        print(f"note: {setup.task.remark}")


def print_result(workdir: Workdir, everything: bool = False) -> None:
    """Prints the metrics of a finished run, and below them what they are compared with.

    Args:
        workdir: the folder of the run.
        everything: whether to print scores of groups and of unseen examples, and numbers about
            speed.
    """
    result = workdir.read("result.json")
    columns = ("metric", "mean", "standard error", "n", "meaning")
    table = Table(*columns, box=None, pad_edge=False, title=run_title(result))
    names = list(result["metrics"])
    for name in names if everything else shown_metrics(names):
        value = result["metrics"][name]
        mean, _, error = with_error(value["mean"], value["sem"]).partition(" ± ")
        table.add_row(name, mean, error or "-", str(value["n"]), meaning(name))
    for name, value in result.get("baselines", {}).items():
        what = reference_kind(name)
        label = f"baseline {name}" if what == TRIVIAL else name
        table.add_row(label, number(value), "", "", what, style="dim")
    if everything:
        speed = {**(result.get("performance") or {}), **(result.get("timing") or {})}
        for name, value in speed.items():
            table.add_row(name, number(value), "", "", "speed of this machine", style="dim")
    show(table)
    if hidden := len(names) - len(shown_metrics(names)):
        print("" if everything else f"{counted(hidden, 'more metric')}: --all")
    figures = [name for name in ("curves.png", "figure.png") if (workdir / name).exists()]
    hint = f" (see {', '.join(figures)})" if figures else ""
    print(f"the run is in {workdir.path}{hint}")
    if result["config"].get("recipe") == "train":
        folder = short_path(workdir.path)
        print(f"next: jaxformer look {folder}   or in Python: jaxformer.open({str(folder)!r})")


def run_title(result: Mapping[str, Any]) -> str:
    """Returns a title such as "mixit/retrieval, variant frozen_qk, scale tiny, 1 seed"."""
    config = result["config"]
    labels = dict(config.get("arguments") or {})
    # The argument `text` is a default, which --config.task.tokens and the scale tiny replace.
    if "text" in labels and "task" in config and "tokens" in config["task"]:
        labels["text"] = Path(config["task"]["tokens"]).name or "of the packaged chain"
    arguments = [f"{name} {value}" for name, value in labels.items() if value]
    return ", ".join([config["name"], *arguments, counted(len(result["seeds"]), "seed")])


def reference_kind(baseline: str) -> str:
    """Returns what a number is with which a metric is compared, by a word of its name.

    A record calls all of them baselines: guesses, theories, and numbers that a paper prints.
    """
    words = baseline.partition("/")[0].split("_")
    kinds = (what for word, what in REFERENCE_KINDS.items() if word in (words[0], words[-1]))
    return next(kinds, TRIVIAL)


def meaning(metric: str) -> str:
    """Returns what a metric measures, or "" for a metric that only its task defines."""
    if metric.endswith("_unseen"):
        return "the same, examples outside the training set"
    return MEANINGS.get(metric, "")


def short_path(path: Path) -> Path:
    """Returns a path relative to the current folder, if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def show(table: Table, width: int = 120) -> None:
    """Prints a table. `width` counts characters and applies unless stdout is a terminal."""
    terminal = Console()
    if terminal.is_terminal:
        width = max(terminal.width, LEAST_TABLE_WIDTH)
    Console(width=width).print(table)


def differing_settings(settings: int) -> str:
    """Returns "; 2 settings differ from it", which follows the name of a scale, or "" for 0."""
    if not settings:
        return ""
    return f"; {settings} setting{' differs' if settings == 1 else 's differ'} from it"
