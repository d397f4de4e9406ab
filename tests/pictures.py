"""Rules that every saved figure must follow at the size of its print."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxformer.report import figure_style

STEPS = 20  # points that are looked at between two of a curve
MAPS = {
    figure_style.SEQUENTIAL_MAP,
    f"{figure_style.SEQUENTIAL_MAP}_r",
    figure_style.DIVERGING_MAP,
    "Blues",
}


def faults(figure: Any, is_headed: bool = False) -> list[str]:
    """Returns a line for each fault. With `is_headed` the figure must have a heading."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
    result = [*_fonts(figure), *_cut_off(figure), *_hidden(figure), *_images(figure)]
    result += _colours(figure)
    if is_headed and not figure.get_suptitle():
        result.append("no words say what was found")
    return result


def smallest_font(figure: Any) -> float:
    """Returns the smallest font size in points, at a width of one or two columns."""
    width = figure.get_size_inches()[0]
    goal = (
        figure_style.COLUMN
        if width < (figure_style.COLUMN + figure_style.PAGE) / 2
        else figure_style.PAGE
    )
    scale = min(1.0, goal / width)
    return min((text.get_fontsize() * scale for text in _texts(figure)), default=np.inf)


def _fonts(figure) -> Iterator[str]:
    smallest = smallest_font(figure)
    if smallest < figure_style.SMALLEST - 1e-6:
        yield f"letters of {smallest:.1f} points, {figure_style.SMALLEST:g} are the least"


def _cut_off(figure) -> Iterator[str]:
    """Returns the texts that extend beyond the figure."""
    whole = figure.bbox
    for text in _texts(figure):
        box = text.get_window_extent()
        outside = (whole.x0 - box.x0, box.x1 - whole.x1, whole.y0 - box.y0, box.y1 - whole.y1)
        if max(outside) > 2:
            yield f"{text.get_text()!r} is cut off by {max(outside):.0f} pixels"


def _hidden(figure) -> Iterator[str]:
    """Returns the curves and bars that a legend covers, in any panel."""
    panels = [axis for axis in figure.axes if axis.get_visible()]
    legends = [axis.get_legend() for axis in panels if axis.get_legend()] + figure.legends
    for box in (legend.get_window_extent() for legend in legends):
        for axis in panels:
            frame = axis.get_window_extent()
            for line in axis.lines:
                inside = _inside(line.get_transform().transform(line.get_xydata()), box, frame)
                if line.get_visible() and inside.any():
                    yield f"a legend hides the curve {line.get_label()!r}"
            for patch in axis.patches:
                if (other := patch.get_window_extent()).width and other.height:
                    # The part of a bar outside of its panel is not drawn.
                    shared = min(box.x1, other.x1, frame.x1) - max(box.x0, other.x0, frame.x0)
                    high = min(box.y1, other.y1, frame.y1) - max(box.y0, other.y0, frame.y0)
                    if min(shared, high) > 1:
                        yield "a legend hides a bar"


def _inside(places_Px2: np.ndarray, box, frame) -> np.ndarray:
    """Returns which points along a curve are visible and lie in a box."""
    if len(places_Px2) > 1:
        share = np.linspace(0, 1, STEPS)[:, None, None]
        places_Px2 = places_Px2[None, :-1] * (1 - share) + places_Px2[None, 1:] * share
    x, y = places_Px2.reshape(-1, 2).T
    seen = (frame.x0 - 1 <= x) & (x <= frame.x1 + 1) & (frame.y0 - 1 <= y) & (y <= frame.y1 + 1)
    return seen & (box.x0 < x) & (x < box.x1) & (box.y0 < y) & (y < box.y1)


def _images(figure) -> Iterator[str]:
    """Returns images that have neither a labelled colour bar nor the scale of one that has."""
    images = [image for axis in figure.axes for image in axis.images]
    bars = [image for image in images if image.colorbar]
    known = {(image.get_cmap().name, image.get_clim()) for image in bars}
    for image in images:
        if (image.get_cmap().name, image.get_clim()) not in known:
            yield "an image has no colour bar, and not the scale of one that has"
        if image.get_cmap().name not in MAPS:
            yield f"the colour map {image.get_cmap().name}"
    for drawn in (image.colorbar for image in bars):
        if not (drawn.ax.get_ylabel() or drawn.ax.get_xlabel()):
            yield "a colour bar without a name"


def _colours(figure) -> Iterator[str]:
    from matplotlib.colors import to_hex

    ours = {colour.lower() for colour in figure_style.COLOURS}
    for line in (line for axis in figure.axes for line in axis.lines):
        is_marks = line.get_linestyle() == "None"  # the ends of error bars are such
        colour = to_hex(line.get_markeredgecolor() if is_marks else line.get_color())
        is_grey = colour[1:3] == colour[3:5] == colour[5:7]
        if not is_grey and colour not in ours:
            yield f"a curve of the colour {colour}, which is not one of ours"


def _texts(figure) -> list[Any]:
    """Returns the visible texts."""
    from matplotlib.text import Text

    outside = {
        t for axis in figure.axes for x in (axis.xaxis, axis.yaxis) for t in _unseen(axis, x)
    }
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible()
        and text.get_text().strip()
        and text not in outside
        and (text.axes is None or text.axes.get_visible())
    ]


def _unseen(axis, one) -> list[Any]:
    """Returns the tick labels that lie outside of the axis, or are switched off."""
    low, high = sorted(one.get_view_interval())
    gap = 1e-9 * (high - low)
    ticks = [*one.get_major_ticks(), *one.get_minor_ticks()]
    hidden = [t for t in ticks if not low - gap <= t.get_loc() <= high + gap]
    return [
        label
        for tick in ticks
        for label in (tick.label1, tick.label2)
        if tick in hidden or not axis.axison
    ]
