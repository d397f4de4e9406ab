"""How all figures look: made for one column of a paper (8 cm) or two (16 cm), shown at that size.

What was found stands above the panels, what to beware of below them, and the names of curves beside
them, where they hide nothing. A size is (COLUMN or PAGE, height of the panels) in inches; the
words make the figure higher.
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
# Okabe and Ito: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
AMOUNT, SIGNED = "cividis", "RdBu_r"  # colour maps; white is zero in the second
ENDINGS = (".png", ".pdf", ".svg")
TITLE, TEXT, SMALL, SMALLEST = 8.0, 7.0, 6.5, 6.0  # points
LINE = 1.2  # of a line's height in its size
EDGE = 0.06  # inches that stay white around words
SPINE = 0.45  # inches of a panel that its ticks and its label take
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
    "image.cmap": AMOUNT,
    "image.interpolation": "nearest",  # a cell is a cell, and the file is small
    "savefig.dpi": 150,  # for a screen; print takes pdf or svg
    "pdf.fonttype": 42,  # letters stay letters in an editor
    "svg.hashsalt": "jaxformer",  # the same bytes every time
}


def apply() -> None:
    """For a program: whatever it draws looks like this."""
    import matplotlib

    matplotlib.rcParams.update(LOOK)


def styled(draw: Callable) -> Callable:
    """For a library: the figure of this function looks like this, those of the caller stay."""

    @functools.wraps(draw)
    def within(*args: Any, **kwargs: Any) -> Any:
        import matplotlib

        with matplotlib.rc_context(LOOK):
            return draw(*args, **kwargs)

    return within


def panels(rows: int, columns: int, size: tuple[float, float], figure: Any = None, **shared: Any):
    """A figure without a screen, and its (rows, columns) panels."""
    from matplotlib.figure import Figure

    figure = figure or Figure()
    figure.set_size_inches(*size)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def headed(figure: Any, found: str, beware: str = "", names: Any = None, columns: int = 0) -> None:
    """Says what was found above all panels and what to beware of below, and names the curves.

    `names`: a panel whose curves stand for those of all, or (handles, labels). The figure becomes
    higher by what this takes. Called once, last.
    """
    width, height = figure.get_size_inches()
    above, below = (wrapped(words, width - 2 * EDGE, s) for words, s in _sized(found, beware))
    top, bottom = (_tall(words, s) for words, s in ((above, TITLE), (below, SMALL)))
    legend = None
    handles, labels = _named(names)
    if labels:
        legend = _fitting(figure, width - 2 * EDGE, handles, labels, columns)
        bottom += legend.get_window_extent().height / figure.dpi
    whole = top + height + bottom
    figure.set_size_inches(width, whole)
    figure.get_layout_engine().set(rect=(0, bottom / whole, 1, height / whole))
    if legend:
        at = (0.5, _tall(below, SMALL) / whole)
        legend.set_bbox_to_anchor(at, figure.transFigure)
    look = {"x": EDGE / width, "ha": "left", "linespacing": LINE, "in_layout": False}
    if above:
        figure.suptitle(above, y=1 - EDGE / whole, va="top", **look)
    if below:
        figure.supxlabel(below, y=EDGE / whole, va="bottom", fontsize=SMALL, **look)


def name(axis: Any, title: str = "", columns: int = 0) -> None:
    """A panel's title, and below it the names of its curves, all above the panel."""
    width = _width(axis)
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return titled(axis, title)
    title = wrapped(title, width, TEXT)
    look = {"title": title or None, "alignment": "left", "borderpad": 0, "borderaxespad": 0.3}
    where = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    _fitting(axis, width, handles, labels, columns, **where, **look)


def titled(axis: Any, title: str) -> None:
    """A panel's title, in lines that are no longer than the panel."""
    axis.set_title(wrapped(title, _width(axis), TEXT))


def bar(figure: Any, image: Any, axes: Any, label: str, **look: Any) -> Any:
    """A colour bar beside one panel or several, named."""
    axes = list(np.ravel(axes)) if isinstance(axes, np.ndarray | list | tuple) else axes
    drawn = figure.colorbar(image, ax=axes, label=label, **{"pad": 0.02, "aspect": 25} | look)
    drawn.outline.set_linewidth(0.5)
    return drawn


def wrapped(words: str, width: float, size: float) -> str:
    """The words in lines of at most so many inches; what stands between two $ stays together."""
    lines = []
    for paragraph in words.split("\n"):
        line, room = "", width * 72
        for word in re.findall(r"(?:\$[^$]*\$|\S)+", paragraph):
            if line and _wide(f"{line} {word}", size) > room:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        lines.append(line)
    return "\n".join(lines) if words else ""


def check_file(file: Path, flag: str = "a figure's name") -> Path:
    """Raises unless the ending is one that is drawn."""
    if file.suffix not in ENDINGS:
        ends = ", ".join(ENDINGS)
        raise UserError(f"{flag} ends in {ends}; got {str(file)!r}.")
    return file


def save(figure: Any, file: Path) -> None:
    """Writes the figure whole or not at all, in the format of its ending."""
    kind = check_file(file).suffix[1:]
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(drawn := io.BytesIO(), format=kind, dpi=LOOK["savefig.dpi"], metadata=undated)
    try:
        write_atomically(file, drawn.getvalue())
    except OSError as error:
        raise UserError(f"cannot write the figure {file}: {error.strerror}.") from None


def _sized(found: str, beware: str) -> tuple[tuple[str, float], tuple[str, float]]:
    return (found, TITLE), (beware, SMALL)


def _tall(words: str, size: float) -> float:
    """Inches that these lines take with the white around them."""
    return (words.count("\n") + 1) * LINE * size / 72 + 2 * EDGE if words else 0.0


@functools.cache
def _wide(words: str, size: float) -> float:
    """Points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size)
    wide = TextToPath().get_text_width_height_descent(words, font, ismath="$" in words)[0]
    return 1.05 * wide  # what draws rounds each letter


def _width(axis: Any) -> float:
    """Inches of a panel, about."""
    spec = axis.get_subplotspec()
    whole = axis.figure.get_size_inches()[0]
    return whole * len(spec.colspan) / spec.get_gridspec().ncols - SPINE


def _named(names: Any) -> tuple[Sequence[Any], Sequence[str]]:
    if names is None or isinstance(names, tuple):
        return names or ([], [])
    return names.get_legend_handles_labels()


def _fitting(place: Any, width: float, handles, labels, columns: int, **look: Any) -> Any:
    """The legend with as many columns as fit; `columns` says how many there are at most."""
    figure = getattr(place, "figure", place) or place
    most = min(columns or len(labels), len(labels))
    look = {"loc": "lower center"} | look
    for n in range(most, 0, -1):
        legend = place.legend(handles, labels, ncols=n, **look)
        if n == 1 or legend.get_window_extent().width <= width * figure.dpi:
            return legend
        legend.remove()
    raise AssertionError("a legend names something")
