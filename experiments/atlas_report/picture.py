"""The picture of an atlas: rows are tasks, columns are changes, colour is what is lost."""

from collections.abc import Mapping
from html import escape
from typing import Any

from experiments.atlas_report.table import COLUMNS, cell, ordered
from jaxformer.studies.anatomy.drawing import STYLE
from jaxformer.studies.anatomy.parts import FIXED_MIXING, FROZEN, REMOVED

LEFT, TOP, WIDTH, HEIGHT, GAP = 140, 118, 42, 22, 10  # pixels; GAP stands between groups of columns
HEADINGS = {FROZEN: "kept random", REMOVED: "removed", FIXED_MIXING: "replaced"}
OWN_STYLE = ".row{font-size:12px}.head{font-size:12px}.cell{font-size:10px;text-anchor:middle}"


def picture(rows: Mapping[str, Mapping[str, Any]], links: Mapping[str, str] | None = None) -> str:
    """Returns the picture as SVG.

    Args:
        rows: the rows of the record, by task.
        links: {task: address of its report}; a click on its row opens it.
    """
    xs, x, method = [], float(LEFT), COLUMNS[0].method
    marks = []
    for column in COLUMNS:
        x += GAP if column.method != method else 0
        if not xs or column.method != method:
            marks.append(f'<text class="note" x="{x:.0f}" y="12">{HEADINGS[column.method]}</text>')
        method = column.method
        xs.append(x)
        centre = x + WIDTH / 2 + 4
        marks.append(
            f'<text class="outcome head" x="{centre:.0f}" y="{TOP - 6}" '
            f'transform="rotate(-60 {centre:.0f} {TOP - 6})">{escape(column.title)}</text>'
        )
        x += WIDTH
    for number, name in enumerate(ordered(rows)):
        y = TOP + number * HEIGHT
        content = _row(name, rows[name], xs, y)
        link = (links or {}).get(name)
        marks.append(f'<a href="{escape(link)}">{content}</a>' if link else content)
    width, height = x + 50, TOP + len(rows) * HEIGHT + 4
    label = f"What {len(rows)} tasks lose without each part of a transformer"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="network" viewBox="0 0 {width:.0f} '
        f'{height}" width="{width:.0f}" height="{height}" role="img" aria-label="{label}">'
        f"<style>{STYLE}{OWN_STYLE}</style>"
        f'<rect class="paper" width="{width:.0f}" height="{height}"/>{"".join(marks)}</svg>'
    )


def _row(name: str, row: Mapping[str, Any], xs: list[float], y: float) -> str:
    text = name.replace("_", " ") + ("" if row["is_learned"] else " (not learned)")
    marks = [f'<text class="part row" x="4" y="{y + 15:.0f}">{escape(text)}</text>']
    for column, x in zip(COLUMNS, xs, strict=True):
        found = cell(row, column)
        if found is None or not row["is_learned"]:
            continue
        frame = f'x="{x:.0f}" y="{y:.0f}" width="{WIDTH - 3}" height="{HEIGHT - 3}" rx="3"'
        state = found["outcome"].replace(" ", "-")
        title = f"{text}; {column.title}, {column.method}: {_said(found)}"
        marks.append(f'<rect class="box {state}" {frame}><title>{escape(title)}</title></rect>')
        if state == "worse":
            lost = min(max(found["lost"], 0.0), 1.0)
            marks.append(f'<rect class="loss" {frame} fill-opacity="{0.12 + 0.78 * lost:.2f}"/>')
            marks.append(
                f'<text class="outcome cell" x="{x + (WIDTH - 3) / 2:.1f}" y="{y + 14:.0f}">'
                f"−{100 * lost:.0f}</text>"
            )
    return "".join(marks)


def _said(found: Mapping[str, Any]) -> str:
    half = "" if found["half_width"] is None else f" ± {found['half_width']:.0%}"
    outcome = "cannot tell yet" if found["outcome"] == "open" else found["outcome"]
    outcome = found.get("word", outcome)  # records of older versions have no controls
    return f"{found['lost']:.0%}{half} of the way is lost, {outcome}"
