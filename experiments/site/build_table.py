"""Computes order.json, the table behind the page's slider of N: a minute.

    python -m experiments.site.build_table

The order parameter of the theory (arXiv 2405.15926) and its test accuracy on the data set of
configs/attention_paths/order_parameter.py, at widths from 4 to 4000.
"""

import json
from pathlib import Path

import jax
import numpy as np

from experiments.cli import flags
from experiments.papers.attention_paths import problem
from experiments.recipes import solve
from jaxformer.io.atomic_files import write_atomically

FILE = Path(__file__).with_name("order.json")
CONFIG = "configs/attention_paths/order_parameter.py:scale=paper"
WIDTHS = sorted({round(10 ** (k / 8)) for k in range(5, 30)} - {1})


def table(widths: list[int]) -> dict:
    """{"widths", "names", "U": a row of the upper triangle a width, "accuracy", "gp_limit"}."""
    _, settings = solve.setup(flags.load_config(CONFIG))
    temperature = settings["temperature"]
    with jax.enable_x64(True):
        data = problem.example(settings["seed"], **settings["task"])
        found = [data.solve(width, temperature).U for width in widths]
        accuracy = [data.accuracy_at(U, temperature) for U in found]
        limit = data.accuracy_at(np.eye(len(data.names)), temperature)
    upper = np.triu_indices(len(data.names))
    rows = [[float(f"{x:.4g}") for x in np.asarray(U)[upper]] for U in found]
    held = {"widths": widths, "names": data.names, "U": rows}
    return held | {"accuracy": accuracy, "gp_limit": limit}


if __name__ == "__main__":
    write_atomically(FILE, (json.dumps(table(WIDTHS)) + "\n").encode())
    print(f"wrote {FILE.name}: {len(WIDTHS)} widths")
