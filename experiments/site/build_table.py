"""Computes order.json within a minute: the numbers behind the page's slider of the width N.

    python -m experiments.site.build_table

The file has the theory's order parameter U (arXiv 2405.15926) at widths from 4 to 4000, and the
test accuracy that it predicts, for the data set of configs/attention_paths/order_parameter.py.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from experiments.cli import flags
from experiments.papers.attention_paths import problem
from experiments.recipes import solve
from jaxformer.io.atomic_files import write_atomically

FILE = Path(__file__).with_name("order.json")
CONFIG = "configs/attention_paths/order_parameter.py:scale=paper"
WIDTHS = [round(10 ** (k / 8)) for k in range(5, 30)]  # eight in each power of ten


def table(widths: list[int]) -> dict:
    """Returns the content of order.json.

    Its keys are "widths"; "names", the labels of the rows of U; "U", the upper triangle of U as one
    list for each width; "accuracy" for each width; and "gp_limit", the accuracy at infinite width.
    """
    _, settings = solve.setup(flags.load_config(CONFIG))
    temperature = settings["temperature"]
    with jax.enable_x64(True):
        example = problem.example(settings["seed"], **settings["task"])
        matrices = [example.solve(width, temperature).U for width in widths]
        accuracy = [example.accuracy_at(U, temperature) for U in matrices]
        limit = example.accuracy_at(np.eye(len(example.names)), temperature)
    upper = np.triu_indices(len(example.names))
    triangles = [[float(f"{x:.4g}") for x in np.asarray(U)[upper]] for U in matrices]
    content = {"widths": widths, "names": example.names, "U": triangles}
    return content | {"accuracy": accuracy, "gp_limit": limit}


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)  # there are no options
    write_atomically(FILE, (json.dumps(table(WIDTHS)) + "\n").encode())
    print(f"wrote {FILE.name}: {len(WIDTHS)} widths")
