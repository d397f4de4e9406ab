"""The drawing of a network as boxes, each coloured by what is lost without its part.

It is SVG, in the page or as a picture of its own, and its colours follow the reader's choice of
light or dark. A view selects the variant that a box shows. The default view shows the variant with
the part removed. If this variant is open or was not tried, it shows the variant with the part
frozen.
"""

import base64
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from jaxformer.studies.anatomy import parts
from jaxformer.studies.anatomy.judge import NO_WORSE, NOT_TRAINED, OPEN, WORSE, Judged, Table
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
STYLE = Path(__file__).with_name("drawing.css").read_text()
WIDTH = 360  # pixels of the drawing
BOX, GAP = 46, 8  # the height of a box, and the distance between two boxes
NOTE_HEIGHT, HEADING_HEIGHT = 14, 26
# Sentences beside the drawing: their width, the height of a line, the letters of a line.
TEXT_WIDTH, LINE, LINE_LETTERS = 320, 15, 50
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
    state: str  # WORSE, NO_WORSE, OPEN, NOT_TRAINED or "" without a variant


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
    if removed is None or (not removed.is_decided and frozen is not None):
        return frozen
    return removed


def loss_text(table: Table, row: Judged) -> str:
    """Returns what is lost, such as "-45 %" or "no worse"; "open" if it was not decided."""
    if row.outcome == OPEN:
        return "open"
    if row.outcome == NOT_TRAINED:
        return "not trained"
    if row.outcome == NO_WORSE:
        return "no worse"
    return f"−{100 * (1 - table.share(row)):.0f} %"


def svg(drawing: Drawing, label: str) -> str:
    """The drawing as SVG; `STYLE`, in the page, has its colours."""
    return _svg(WIDTH, drawing.height, label, _marks(drawing))


def picture(table: Table, title: str, layers: int, sentences: Sequence[Sentence] = ()) -> "Picture":
    """The drawing with a title above it and the sentences at its right, as a file of its own.

    The last sentences are left out if they do not all fit.
    """
    drawing = draw(table, layers=layers)
    marks = [f'<text class="title" x="4" y="16">{escape(title)}</text>']
    marks.append(f'<g transform="translate(0 {HEADING_HEIGHT})">{"".join(_marks(drawing))}')
    y = 4.0
    for sentence in sentences:
        lines = textwrap.wrap(unbroken(sentence.text), LINE_LETTERS)
        height = LINE * len(lines) + GAP
        if y + height > drawing.height:
            break
        state = sentence.outcome.replace(" ", "-")
        bar = f'x="{WIDTH + 6}" y="{y:.0f}" width="4" height="{height - GAP}"'
        marks.append(f'<rect class="bar {state}" {bar}/>')
        for i, line in enumerate(lines):
            place = f'x="{WIDTH + 18}" y="{y + LINE * i + 11:.0f}"'
            marks.append(f'<text class="outcome" {place}>{escape(line)}</text>')
        y += height + GAP / 2
    marks.append("</g>")
    width = WIDTH + TEXT_WIDTH if sentences else WIDTH
    height = drawing.height + HEADING_HEIGHT
    paper = f'<rect class="paper" width="{width}" height="{height:.0f}"/>'
    style = f"<style>{STYLE}</style>"
    text = _svg(width, height, label_of(table, WITHOUT), [style, paper, *marks])
    # A file of its own has to say that it is SVG; inside a page it need not.
    return Picture(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


class Picture(str):
    """The text of an SVG file, which a notebook displays as an image."""

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.encode()).decode()
        return f'<img alt="the network as boxes" src="data:image/svg+xml;base64,{data}">'


def _marks(drawing: Drawing) -> list[str]:
    """The boxes, their losses and their texts."""
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
    return marks


def _svg(width: float, height: float, label: str, marks: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
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
