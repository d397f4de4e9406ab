"""The drawing of a network as boxes, each coloured by what is lost without its part.

The same boxes are drawn as SVG, whose colours follow the page (light or dark), and with matplotlib.
A view selects the variant that a box shows. The default view shows the variant with the part
removed. If this variant is open or was not tried, it shows the variant with the part frozen.
"""

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from jaxformer.studies.anatomy import parts
from jaxformer.studies.anatomy.judge import NO_WORSE, OPEN, WORSE, Judged, Table
from jaxformer.studies.anatomy.parts import (
    ATTENTION,
    EMBEDDING,
    FROZEN,
    MLP,
    ONLY,
    POSITIONS,
    QUERIES_KEYS,
    REMOVED,
    UNEMBEDDING,
)
from jaxformer.studies.anatomy.sentences import Sentence, unbroken

WITHOUT = "without it"
VIEWS = (WITHOUT, FROZEN, REMOVED, ONLY)
FRAMES = (ATTENTION, MLP)  # the parts whose boxes contain the boxes of their own parts
WIDTH = 360  # of the drawing. Sizes are pixels in the SVG and points in the matplotlib figure.
BOX, GAP = 46, 8  # the height of a box, and the distance between two boxes
NOTE_HEIGHT, HEADING_HEIGHT = 14, 26
# Sentences beside the drawing: their width, the height of a line, the letters of a line.
TEXT_WIDTH, LINE, LINE_LETTERS = 280, 14, 58
SHORT_NAMES = {
    QUERIES_KEYS: "queries, keys",
    "attention output": "output",
    "MLP in": "in",
    "MLP out": "out",
}


class Box(NamedTuple):
    """A rectangle with the name of its part, what was done to it, and the outcome."""

    part: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    lost: float  # lost share of the lead over guessing, from 0 to 1; 0 if not decided
    state: str  # WORSE, NO_WORSE, OPEN or "" without a variant


class Drawing(NamedTuple):
    """The boxes of a network, and the texts outside of them."""

    boxes: tuple[Box, ...]
    notes: tuple[tuple[float, float, str], ...]  # (x, y, text)
    height: float


def draw(table: Table, view: str = WITHOUT, layers: int = 1) -> Drawing:
    """Returns the drawing of a network whose data flows upwards.

    Args:
      table: the comparisons.
      view: one of VIEWS.
      layers: the number of blocks.
    """
    names = list(dict.fromkeys(row.cell.variant.part for row in table.rows))
    boxes, notes = [], []
    y = 4.0  # the margin at the top, and likewise at the left and right

    def add(part: str, x: float, top: float, width: float, height: float = BOX) -> None:
        boxes.append(_box(table, part, view, x, top, width, height))

    outside = [name for name in names if name.startswith(parts.OTHER)]
    for name in [*outside, UNEMBEDDING]:
        if name in names:
            add(name, 4, y, WIDTH - 8)
            y += BOX + GAP
    frames = [name for name in FRAMES if name in names]
    inside = {
        ATTENTION: [n for n in (QUERIES_KEYS, "values", "attention output") if n in names],
        MLP: [n for n in ("MLP in", "MLP out") if n in names],
    }
    if frames:
        y += NOTE_HEIGHT
        n_rows = max(len(inside[name]) for name in frames)
        height = BOX + n_rows * (BOX + GAP) + GAP
        width = (WIDTH - 8 - GAP * (len(frames) - 1)) / len(frames)
        notes.append((4, y - 5, f"{layers} block{'s' * (layers > 1)}"))
        for column, frame in enumerate(frames):
            x = 4 + column * (width + GAP)
            add(frame, x, y, width, height)
            for i, name in enumerate(inside[frame]):
                add(name, x + GAP, y + BOX + i * (BOX + GAP), width - 2 * GAP)
        y += height + GAP
    bottom = [name for name in ("norms", POSITIONS, EMBEDDING) if name in names]
    for i, name in enumerate(bottom):
        width = (WIDTH - 8 - GAP * (len(bottom) - 1)) / len(bottom)
        add(name, 4 + i * (width + GAP), y, width)
    return Drawing(tuple(boxes), tuple(notes), y + BOX * bool(bottom) + 4)


def _box(
    table: Table, part: str, view: str, x: float, y: float, width: float, height: float
) -> Box:
    name = SHORT_NAMES.get(part, part.removeprefix("other "))
    row = shown_row(table, part, view)
    if row is None:
        return Box(part, x, y, width, height, (name, ""), 0.0, "")
    method = row.cell.variant.method
    method_name = "trained alone" if method == ONLY else method
    lines = (name, f"{method_name}: {loss_text(table, row)}")
    lost = 1 - table.share(row) if row.outcome == WORSE else 0.0
    return Box(part, x, y, width, height, lines, min(max(lost, 0.0), 1.0), row.outcome)


def shown_row(table: Table, part: str, view: str) -> Judged | None:
    """Returns the comparison that a box shows."""
    if view != WITHOUT:
        return table.find(part, view)
    removed, frozen = (table.find(part, method) for method in (REMOVED, FROZEN))
    if removed is None or (removed.outcome == OPEN and frozen is not None):
        return frozen
    return removed


def loss_text(table: Table, row: Judged) -> str:
    """Returns what is lost, such as "-45 %" or "no worse"; "open" if it was not decided."""
    if row.outcome == OPEN:
        return "open"
    if row.outcome == NO_WORSE:
        return "no worse"
    return f"−{100 * (1 - table.share(row)):.0f} %"


def svg(drawing: Drawing, label: str) -> str:
    """Returns the drawing as SVG; the style sheet of the page has its colours."""
    marks = []
    for box in drawing.boxes:
        state = box.state.replace(" ", "-") or "untried"
        frame = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        marks.append(f'<rect class="box {state}" rx="6" {frame}/>')
        if box.lost:
            opacity = 0.12 + 0.78 * box.lost
            marks.append(f'<rect class="loss" rx="6" {frame} fill-opacity="{opacity:.2f}"/>')
        for i, line in enumerate(box.lines):
            css_class = "part" if i == 0 else "outcome"
            position = f'x="{box.x + 8:.1f}" y="{box.y + 18 + 16 * i:.1f}"'
            marks.append(f'<text class="{css_class}" {position}>{escape(line)}</text>')
    for x, y, text in drawing.notes:
        marks.append(f'<text class="note" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')
    size = f'viewBox="0 0 {WIDTH} {drawing.height:.0f}"'
    head = f'<svg class="network" {size} role="img" aria-label="{escape(label)}">'
    return f"{head}{''.join(marks)}</svg>"


def label_of(table: Table, view: str) -> str:
    """Returns the content of the drawing as a text, for screen readers."""
    texts = []
    for part in dict.fromkeys(row.cell.variant.part for row in table.rows):
        row = shown_row(table, part, view)
        if row is not None:
            texts.append(f"{part}, {row.cell.variant.method}: {loss_text(table, row)}")
    return "; ".join(texts)


def figure(
    table: Table,
    title: str,
    view: str = WITHOUT,
    layers: int = 1,
    sentences: Sequence[Sentence] = (),
) -> Any:
    """Returns the drawing as a matplotlib figure, with the sentences at its right.

    Args:
      table, view, layers: as in `draw`.
      title: the line above the drawing.
      sentences: the sentences. The last ones are left out if they do not all fit.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    drawing = draw(table, view, layers)
    inches = 1.15 / 72  # the inches of a point, enlarged by 15 %
    total_height = drawing.height + HEADING_HEIGHT
    width = WIDTH + (TEXT_WIDTH if sentences else 0)
    canvas = Figure(figsize=(width * inches, total_height * inches))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(drawing.height, -HEADING_HEIGHT))
    axes.set_axis_off()
    axes.text(4, -HEADING_HEIGHT + 10, title, fontsize=9, weight="bold", va="center")
    red = to_rgb("#e8743b")
    for box in drawing.boxes:
        opacity = 0.12 + 0.78 * box.lost if box.lost else 0.0
        fill = to_rgb({NO_WORSE: "#e3f1ea", OPEN: "#f0f0f0"}.get(box.state, "white"))
        colour = tuple(opacity * r + (1 - opacity) * f for r, f in zip(red, fill, strict=True))
        style = "--" if box.state == OPEN else "-"
        axes.add_patch(
            FancyBboxPatch(
                (box.x, box.y),
                box.width,
                box.height,
                boxstyle="round,pad=0,rounding_size=6",
                facecolor=colour,
                edgecolor="#8a939c",
                linewidth=0.8,
                linestyle=style,
            )
        )
        for i, line in enumerate(box.lines):
            weight = "bold" if i == 0 else "normal"
            axes.text(box.x + 8, box.y + 14 + 16 * i, line, fontsize=8, weight=weight, va="center")
    for x, y, text in drawing.notes:
        axes.text(x, y - 3, text, fontsize=7.5, color="#565f69", va="center")
    y = 4.0
    for sentence in sentences:
        lines = textwrap.wrap(unbroken(sentence.text), LINE_LETTERS)
        height = LINE * len(lines) + GAP
        if y + height > drawing.height:
            break
        bar_colour = "#e8743b" if sentence.outcome == WORSE else "#00805d"
        axes.plot(
            [WIDTH + 8] * 2, [y, y + height - GAP], color=bar_colour, lw=3, solid_capstyle="butt"
        )
        for i, line in enumerate(lines):
            axes.text(WIDTH + 15, y + LINE * (i + 0.5), line, fontsize=8, va="center")
        y += height + GAP / 2
    return canvas
