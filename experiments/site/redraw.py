"""A run's figure as vectors: drawn again from the arrays of its record, by what drew it first.

What needs an array that the record holds only thinned is not drawn again, and neither are maps of
thousands of cells; such a figure is shown as the picture that the record has.
"""

import importlib
import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
from ml_collections import ConfigDict

from experiments.ledger.record import Record
from experiments.papers import plots
from experiments.site import minify_svg
from experiments.site.arrays import arrays_of

DRAWN = ("solve", "recall", "posterior", "oneshot")  # recipes whose figure is one of arrays
LARGEST = 40_000  # characters of a drawing: beyond it the picture is smaller


def drawing(record: Record, largest: float = LARGEST) -> str:
    """The SVG of a record's figure, or "" if it cannot be made of what the record holds, or has
    more than `largest` characters."""
    try:
        figure = _figure(record)
        text = as_svg(figure) if figure else ""
        ElementTree.fromstring(text or "<svg/>")
    except Exception:  # whoever wrote the record: its picture is shown
        return ""
    finally:
        plots.pyplot().close("all")
    return text if len(text) <= largest else ""


def as_svg(figure: Any) -> str:
    """A figure of matplotlib as a short SVG, whose letters are letters."""
    import matplotlib

    file = io.StringIO()
    look: Any = {"svg.fonttype": "none", "svg.hashsalt": "page", "path.simplify_threshold": 0.2}
    with matplotlib.rc_context(look):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return minify_svg.shortened(file.getvalue())


def _figure(record: Record) -> Any:
    """Drawn by the record's recipe; None if that recipe draws from more than arrays."""
    held, own = arrays_of(record), {"data": {}} | record.config
    if not held or own["data"].get("file") or own["recipe"] not in DRAWN:
        return None  # a drawing with a file would read one that the record names
    recipe = importlib.import_module(f"experiments.recipes.{own['recipe']}")
    config, words = ConfigDict(record.config), {}
    if own["recipe"] == "recall":
        known = {name: array.values for name, array in held.items()}
        words = {} if held["steps"].is_whole else _of_a_thinned_curve(record)
    else:
        whole = {name: array.values for name, array in held.items() if array.is_whole}
        known = _names(record) | whole
    return recipe.figure(config, known, **words)


def _of_a_thinned_curve(record: Record) -> dict[str, str]:
    """Where a record keeps every k-th point the picture says so, and takes its numbers from the
    metrics: the end of a thinned curve is not the end of the run."""
    means = {name: value["mean"] for name, value in record.metrics.items()}
    cuts = [name.removeprefix("p_correct") for name in means if re.match("p_correct($|_w)", name)]
    words = [
        f"{cut.replace('_', ' ').strip() or 'whole'} {means['p_correct' + cut]:.2f} and "
        f"{means['p_noise' + cut]:.2f}"
        for cut in cuts
    ]
    found = "Asked without noise, probability of the answer and of the noise at the end: "
    return {
        "found": f"{found}{', '.join(words)}",
        "more": "Not all points that were measured are drawn.",
    }


def _names(record: Record) -> dict[str, np.ndarray]:
    """The names of the hidden Markov task's four paths, which older records do not hold."""
    from experiments.papers.attention_paths import problem

    held: dict[str, Any] = {"figure": {}} | record.config
    names = problem.NAMES["four_paths"]
    is_it = held["figure"].get("task", {}).get("design") == "four_paths"
    return {"names": np.array(names)} if is_it else {}
