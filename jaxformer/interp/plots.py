"""Heat maps of captured activations, with tokens on the axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.report import figure_style

SEQUENTIAL, DIVERGING = "Blues", figure_style.DIVERGING_MAP
MIN_HEIGHT = 1.5  # inches, so that labels fit beside few rows


@figure_style.styled
def heat(
    values_RxC: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    label: str = "",
    file: str | Path | None = None,
) -> Any:
    """Draws a heat map. White is zero; NaN stays blank.

    Args:
        rows: names of the rows, such as tokens, blocks or heads.
        columns: names of the columns.
        title: the title of the figure.
        label: the label of the colour bar.
        file: where to save the figure (png, pdf or svg); not saved if None.

    Returns:
        A matplotlib figure.
    """
    values = np.asarray(values_RxC, float)
    if values.shape != (len(rows), len(columns)):
        raise UserError(
            f"{len(rows)} rows and {len(columns)} columns are named, got values {values.shape}."
        )
    # Inches: 1.2 for labels and colour bar, and 0.16 for each column.
    smallest_width = 1.2 + 0.16 * len(columns)
    standard_widths = (figure_style.COLUMN, figure_style.PAGE)
    width = next((width for width in standard_widths if smallest_width <= width), smallest_width)
    height = max(0.7 + 0.12 * len(rows), MIN_HEIGHT)
    figure, panels = figure_style.panels(1, 1, (width, height))
    axis = panels[0, 0]
    largest = np.nanmax(np.abs(values)) if np.isfinite(values).any() else 1.0
    has_negative = (values < 0).any()
    limits = {"vmin": -largest if has_negative else 0.0, "vmax": largest}
    image = axis.imshow(
        values, cmap=DIVERGING if has_negative else SEQUENTIAL, aspect="auto", **limits
    )
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=figure_style.SMALLEST)
    axis.set_yticks(range(len(rows)), rows, fontsize=figure_style.SMALLEST)
    axis.spines[:].set_visible(True)
    figure_style.add_colour_bar(figure, image, axis, label)
    figure_style.add_finding(figure, title)
    _save(figure, file)
    return figure


def attention(weights_TxS: Any, tokens: Sequence[str], title: str = "", file: Any = None) -> Any:
    """Draws attention weights, one row for each query; masked later positions stay blank.

    Args:
        weights_TxS: the weights of one head.
        tokens: the names of the positions.
        title: the title of the figure.
        file: where to save the figure; not saved if None.

    Returns:
        A matplotlib figure.
    """
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
