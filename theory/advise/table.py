"""A network as it is beside its prediction: a table, a layer a row, and one picture."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.runtime import figure_style
from jaxformer.training.ranges import outside

KINDS = ("predicted", "start", "now")
FORMS = {"cosine": "9.4f", "keys": "9.2f", "beta": "9.3f", "gradient": "9.3g"}
RANGED = ("cosine", "keys", "gradient")


def text(found: dict[str, Any]) -> str:
    """The table. A dash stands for a number that is nan or infinity."""
    name = found["run"] if "run" in found else found["model"]
    kinds = [kind for kind in KINDS if kind in found]
    out = [f"judged            {name}: {found['judged']}, {found['length']} tokens"]
    out += [f"                  {words}" for words in found["said"]]
    for kind in kinds:
        beyond = outside(**{n: found[kind][n] for n in RANGED}, length=found["length"])
        out += [f"out of range      {kind}: {what}, {words}" for what, words in beyond.items()]
    out.append("layer  " + "".join(f"  {n + ':':<{10 * len(kinds) - 2}}" for n in FORMS).rstrip())
    out.append("       " + "".join(f"{kind:>10}" for _ in FORMS for kind in kinds))
    for layer in range(len(found["predicted"]["cosine"])):
        cells = []
        for number, form in FORMS.items():
            for kind in kinds:
                value = _at(found[kind][number], layer, len(found["predicted"]["cosine"]))
                if value is None:
                    cells.append(f"{'':>9}")
                else:
                    cells.append(f"{value:{form}}" if math.isfinite(value) else f"{'-':>9}")
        out.append(f"{layer:5d}   {' '.join(cells)}".rstrip())
    return "\n".join(out)


def _at(values: list[float], layer: int, rows: int) -> float | None:
    """Of what begins with block 0 the row of the embedding has none."""
    before = rows - len(values)
    return None if layer < before else values[layer - before]


def draw(found: dict[str, Any], path: Path, quiet: bool) -> None:
    """Cosine, keys and gradient by layer, a line or marks for each of `KINDS`."""
    from theory.command_output import BLUE, ORANGE, PAGE, RED, new_figure, save_figure

    figure, axes = new_figure(3, (PAGE, 1.9))
    looks = dict(zip(KINDS, ((BLUE, "-"), (ORANGE, "o"), (RED, "s"))))
    names = ("cosine of two tokens", "keys that a query sees", "gradient, last layer = 1")
    for axis, number, name in zip(axes, RANGED, names):
        for kind, (colour, mark) in looks.items():
            if kind in found:
                values = found[kind][number]
                first = len(found["predicted"]["cosine"]) - len(values)
                layers = np.arange(first, first + len(values))
                axis.plot(layers, values, mark, color=colour, label=kind)
        axis.set(xlabel="layer", ylabel=name)
    axes[2].set_yscale("log")
    last = [f"{kind} {found[kind]['cosine'][-1]:.3g}" for kind in KINDS if kind in found]
    said = f"Cosine of two tokens after the last block: {', '.join(last)}"
    figure_style.headed(figure, said, f"{found['judged']}.", axes[0])
    save_figure(figure, path, quiet=quiet)
