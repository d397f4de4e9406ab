"""The style of all figures, for one column of a paper (8 cm) or two (16 cm).

The finding is written above the panels, caveats below them, and legends outside of the panels. The
size of a figure is (COLUMN or PAGE, height of the panels) in inches; texts add to its height.
"""

import functools
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically

COLUMN, PAGE = 8 / 2.54, 16 / 2.54  # inches
# Okabe and Ito: distinct for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SEQUENTIAL_MAP, DIVERGING_MAP = "cividis", "RdBu_r"  # in RdBu_r white is zero
ENDINGS = (".png", ".pdf", ".svg")
TITLE, TEXT, SMALL, SMALLEST = 8.0, 7.0, 6.5, 6.0  # font sizes in points
LINE = 1.2  # height of a line divided by its font size
EDGE = 0.06  # inches of white around texts
SPINE = 0.45  # inches of a panel that tick labels and the axis label take
LOOK: dict[Any, Any] = {
    "font.size": TEXT,
    "figure.titlesize": TITLE,
    "axes.titlesize": TEXT,
    "axes.titlelocation": "left",
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": TEXT,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.6,
    "image.cmap": SEQUENTIAL_MAP,
    "image.interpolation": "nearest",  # sharp cells and small files
    "savefig.dpi": 150,  # for a screen; pdf and svg are for print
    "pdf.fonttype": 42,  # text remains text in an editor
    "svg.hashsalt": "jaxformer",  # equal figures have equal bytes
}


def apply() -> None:
    """Sets the style of all figures of a program."""
    import matplotlib

    matplotlib.rcParams.update(LOOK)


def styled(draw: Callable) -> Callable:
    """Decorates a function that draws: the style applies inside of it only."""

    @functools.wraps(draw)
    def within(*args: Any, **kwargs: Any) -> Any:
        import matplotlib

        with matplotlib.rc_context(LOOK):
            return draw(*args, **kwargs)

    return within


def notebook_figure() -> Any:
    """Returns an empty figure that a notebook displays once, as the value of its cell."""
    from matplotlib import pyplot

    figure = pyplot.figure()  # registered with pyplot, so that a notebook can display it
    pyplot.close(figure)
    return figure


def panels(rows: int, columns: int, size: tuple[float, float], figure: Any = None, **shared: Any):
    """Returns a figure without a window, and its (rows, columns) panels.

    Args:
        rows, columns: the numbers of panels.
        size: width and height in inches.
        figure: a matplotlib figure to draw in; a new one if None.
        **shared: arguments of `Figure.subplots`, such as sharey=True.
    """
    from matplotlib.figure import Figure

    figure = figure or Figure()
    figure.set_size_inches(*size)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def add_finding(
    figure: Any, finding: str, caveat: str = "", names: Any = None, columns: int = 0
) -> None:
    """Adds a finding above all panels, and a caveat and a legend below. Call it once, last.

    The figure becomes higher by the height of the texts.

    Args:
        figure: a figure of `panels`.
        finding: the text above.
        caveat: the text below.
        names: a panel whose legend serves all panels, or (handles, labels).
        columns: the largest number of columns of the legend; 0 for no limit.
    """
    width, height = figure.get_size_inches()
    above = wrapped(finding, width - 2 * EDGE, TITLE)
    below = wrapped(caveat, width - 2 * EDGE, SMALL)
    top, bottom = _text_height(above, TITLE), _text_height(below, SMALL)
    legend = None
    handles, labels = _legend_entries(names)
    if labels:
        legend = _add_legend(figure, width - 2 * EDGE, handles, labels, columns)
        bottom += legend.get_window_extent().height / figure.dpi
    total = top + height + bottom
    figure.set_size_inches(width, total)
    figure.get_layout_engine().set(rect=(0, bottom / total, 1, height / total))
    if legend:
        anchor = (0.5, _text_height(below, SMALL) / total)
        legend.set_bbox_to_anchor(anchor, figure.transFigure)
    look = {"x": EDGE / width, "ha": "left", "linespacing": LINE, "in_layout": False}
    if above:
        figure.suptitle(above, y=1 - EDGE / total, va="top", **look)
    if below:
        figure.supxlabel(below, y=EDGE / total, va="bottom", fontsize=SMALL, **look)


def label_panel(axis: Any, title: str = "", columns: int = 0) -> None:
    """Adds a panel's title and legend above the panel."""
    width = _width(axis)
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return set_title(axis, title)
    title = wrapped(title, width, TEXT)
    look = {"title": title or None, "alignment": "left", "borderpad": 0, "borderaxespad": 0.3}
    where = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    _add_legend(axis, width, handles, labels, columns, **where, **look)


def set_title(axis: Any, title: str) -> None:
    """Adds a panel's title, wrapped to the width of the panel."""
    axis.set_title(wrapped(title, _width(axis), TEXT))


def add_colour_bar(figure: Any, image: Any, axes: Any, label: str, **look: Any) -> Any:
    """Adds a labelled colour bar to one panel or several."""
    axes = list(np.ravel(axes)) if isinstance(axes, np.ndarray | list | tuple) else axes
    colour_bar = figure.colorbar(image, ax=axes, label=label, **{"pad": 0.02, "aspect": 25} | look)
    colour_bar.outline.set_linewidth(0.5)
    return colour_bar


def wrapped(text: str, width: float, size: float) -> str:
    """Wraps a text to lines of at most `width` inches at a font size in points.

    A formula between $ signs is not split.
    """
    lines = []
    for paragraph in text.split("\n"):
        line, max_points = "", width * 72
        for word in re.findall(r"(?:\$[^$]*\$|\S)+", paragraph):
            if line and _text_width(f"{line} {word}", size) > max_points:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        lines.append(line)
    return "\n".join(lines) if text else ""


def check_file(file: Path, flag: str = "a figure's name") -> Path:
    """Raises a UserError unless the file is png, pdf or svg."""
    if file.suffix not in ENDINGS:
        ends = ", ".join(ENDINGS)
        raise UserError(f"{flag} must end in one of {ends}; got {str(file)!r}.")
    return file


def save(figure: Any, file: Path) -> None:
    """Writes a figure atomically, in the format of the file's suffix and without a date."""
    kind = check_file(file).suffix[1:]
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=LOOK["savefig.dpi"], metadata=metadata)
    try:
        write_atomically(file, buffer.getvalue())
    except OSError as error:
        raise UserError(f"cannot write the figure {file}: {error.strerror}.") from None


def _text_height(text: str, size: float) -> float:
    """Returns the height of a text in inches, with the white around it; 0 for an empty text."""
    n_lines = text.count("\n") + 1
    return n_lines * LINE * size / 72 + 2 * EDGE if text else 0.0


@functools.cache
def _text_width(text: str, size: float) -> float:
    """Returns the width of a line in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size)
    width = TextToPath().get_text_width_height_descent(text, font, ismath="$" in text)[0]
    return 1.05 * width  # renderers round the width of each letter


def _width(axis: Any) -> float:
    """Returns the approximate width of a panel in inches."""
    spec = axis.get_subplotspec()
    figure_width = axis.figure.get_size_inches()[0]
    return figure_width * len(spec.colspan) / spec.get_gridspec().ncols - SPINE


def _legend_entries(names: Any) -> tuple[Sequence[Any], Sequence[str]]:
    """Returns (handles, labels), where `names` is a panel, such a pair, or None for empty lists."""
    if names is None or isinstance(names, tuple):
        return names or ([], [])
    return names.get_legend_handles_labels()


def _add_legend(parent: Any, width: float, handles, labels, columns: int, **look: Any) -> Any:
    """Adds a legend to a panel or figure with as many columns as fit, at most `columns`."""
    figure = getattr(parent, "figure", parent) or parent
    max_columns = min(columns or len(labels), len(labels))
    look = {"loc": "lower center"} | look
    for n in range(max_columns, 0, -1):
        legend = parent.legend(handles, labels, ncols=n, **look)
        if n == 1 or legend.get_window_extent().width <= width * figure.dpi:
            return legend
        legend.remove()
    raise AssertionError("a legend needs a label")
