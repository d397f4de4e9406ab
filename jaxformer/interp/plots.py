"""Pictures of what was captured, with the tokens on the axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.runtime import figure_style

SEQUENTIAL, DIVERGING = "Blues", figure_style.SIGNED
LEAST = 1.5  # inches, for the words beside few rows


@figure_style.styled
def heat(
    values_RxC: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    label: str = "",
    file: str | Path | None = None,
) -> Any:
    """A heat map, a figure of matplotlib; white is zero if the values have both signs.

    Rows and columns are named: tokens ("' the'"), blocks ("block_3") or heads. NaN stays blank.
    """
    values = np.asarray(values_RxC, float)
    if values.shape != (len(rows), len(columns)):
        raise UserError(
            f"{len(rows)} rows and {len(columns)} columns are named, got values {values.shape}."
        )
    wide = 1.2 + 0.16 * len(columns)
    wide = next(
        (width for width in (figure_style.COLUMN, figure_style.PAGE) if wide <= width), wide
    )
    figure, panels = figure_style.panels(1, 1, (wide, max(0.7 + 0.12 * len(rows), LEAST)))
    axis = panels[0, 0]
    most = np.nanmax(np.abs(values)) if np.isfinite(values).any() else 1.0
    both = (values < 0).any()
    limits = {"vmin": -most if both else 0.0, "vmax": most}
    image = axis.imshow(values, cmap=DIVERGING if both else SEQUENTIAL, aspect="auto", **limits)
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=figure_style.SMALLEST)
    axis.set_yticks(range(len(rows)), rows, fontsize=figure_style.SMALLEST)
    axis.spines[:].set_visible(True)
    figure_style.bar(figure, image, axis, label)
    figure_style.headed(figure, title)
    _save(figure, file)
    return figure


def attention(weights_TxS: Any, tokens: Sequence[str], title: str = "", file: Any = None) -> Any:
    """Who looks at whom: a row a query; what comes after it and has no weight is left blank."""
    weights = np.array(weights_TxS, float)
    later = np.triu(np.ones(weights.shape, bool), 1)
    weights[later & (weights == 0)] = np.nan
    figure = heat(weights, tokens, tokens, title, "attention", None)
    figure.axes[0].set(xlabel="to this token", ylabel="from this token")
    _save(figure, file)
    return figure


def _save(figure: Any, file: str | Path | None) -> None:
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        figure_style.save(figure, Path(file))
