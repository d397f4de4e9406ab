"""A circuit as JSON, all edges as CSV, and the picture of a circuit as SVG."""

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp.circuits.curve import Curve
from jaxformer.interp.circuits.graph import LETTERS, LOGITS, Edge
from jaxformer.interp.circuits.measured import Wiring
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.report.tables import csv_text
from jaxformer.stats.differences import LEVEL, quantile
from jaxformer.stats.standard_error import standard_error

COLOURS = {"query": "#3b6fb6", "key": "#3a8f5c", "value": "#b5533c"}  # other edges are grey
GAP_X, GAP_Y, MARGIN = 96, 74, 40  # pixels


def to_json(
    file: str | Path,
    wiring: Wiring,
    circuit: Iterable[Edge],
    scores: np.ndarray | None = None,
    curve: Curve | None = None,
) -> dict[str, Any]:
    """Writes a circuit with its scores, and returns what was written.

    Args:
        file: the file to write.
        wiring: the network and the prompts.
        circuit: its edges.
        scores: of all edges, (E,) or (E, B) by prompt.
        curve: faithfulness over size.
    """
    is_chosen_E = wiring.graph.chosen(circuit)
    means, half_widths = _intervals(wiring, scores)
    rows = [
        {"source": edge.source, "reader": edge.reader}
        | ({} if scores is None else {"score": means[i], "half_width": half_widths[i]})
        for i, edge in enumerate(wiring.edges)
        if is_chosen_E[i]
    ]
    content: dict[str, Any] = {
        "ablation": wiring.ablation,
        "pairs": len(wiring.tokens_BxT),
        "edges_of_network": wiring.n_edges,
        "score": float(wiring.whole_B.mean()),
        "score_without_edges": float(wiring.nothing_B.mean()),
        "circuit": rows,
    }
    if curve is not None:
        content |= {
            "curve": curve.points,
            "area": curve.area,
            "distance": curve.distance,
            "null_areas": curve.null_areas,
            "total": curve.total,
            "prompts": curve.prompts,
        }
    write_json(Path(file), content)
    return content


def to_csv(file: str | Path, wiring: Wiring, scores: np.ndarray) -> None:
    """Writes the score of every edge, with the half width of its 95 % interval over prompts."""
    means, half_widths = _intervals(wiring, scores)
    rows: list[Iterable[Any]] = [("source", "reader", "score", "half_width")]
    for edge, mean, half_width in zip(wiring.edges, means, half_widths, strict=True):
        rows.append((*edge, f"{mean:.6g}", "" if half_width is None else f"{half_width:.3g}"))
    write_atomically(Path(file), csv_text(rows).encode())


def to_svg(file: str | Path, wiring: Wiring, circuit: Iterable[Edge]) -> str:
    """Draws a circuit from the embedding (below) to the logits, and writes it; returns the SVG.

    Queries are blue, keys green, values red. Nodes outside the circuit are not drawn.
    """
    graph = wiring.graph
    is_chosen_E = graph.chosen(circuit)
    edges = [edge for edge, is_in in zip(graph.edges, is_chosen_E, strict=True) if is_in]
    writers = {edge: graph.writers(edge.reader) or [LOGITS] for edge in edges}
    used = {edge.source for edge in edges}.union(*writers.values())
    floors = [[graph.input]]
    for stage in graph.stages[:-1]:
        names = [name for name in graph.sources if name in used and _is_in(name, stage.writes)]
        floors += [names] if names else []
    floors.append([LOGITS])
    width = MARGIN * 2 + GAP_X * max(len(floor) for floor in floors)
    height = MARGIN * 2 + GAP_Y * (len(floors) - 1)
    place = {
        name: (width / 2 + GAP_X * (i - (len(floor) - 1) / 2), height - MARGIN - GAP_Y * level)
        for level, floor in enumerate(floors)
        for i, name in enumerate(floor)
    }
    parts = []
    for edge in edges:
        letter = edge.reader.rsplit("/", 1)[-1]
        for writer in writers[edge]:
            parts.append(_line(place[edge.source], place[writer], letter, str(edge)))
    for name, (x, y) in place.items():
        parts.append(_box(x, y, name))
    alt = f"a circuit of {len(edges)} of {wiring.n_edges} edges"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{alt}" font-family="sans-serif" font-size="11">'
        f"{''.join(parts)}</svg>\n"
    )
    write_atomically(Path(file), svg.encode())
    return svg


def _is_in(name: str, address: str) -> bool:
    """Returns whether a node is one of those that an address has."""
    branch = address.rpartition("/")[0]
    return name == branch or name.startswith(f"{branch}/head_")


def _line(start: tuple[float, float], end: tuple[float, float], letter: str, title: str) -> str:
    # Queries arrive at the left of a box, keys in its middle, values at its right.
    shift = 14 * ([*LETTERS].index(letter) - 1) if letter in LETTERS else 0
    (x1, y1), (x2, y2) = start, end
    bend = (y1 - y2) / 2
    return (
        f'<path d="M{x1:.1f} {y1 - 11:.1f}C{x1:.1f} {y1 - bend:.1f} {x2 + shift:.1f} '
        f'{y2 + bend:.1f} {x2 + shift:.1f} {y2 + 11:.1f}" fill="none" stroke-width="1.6" '
        f'stroke="{COLOURS.get(letter, "#8a8a8a")}"><title>{escape(title)}</title></path>'
    )


def _box(x: float, y: float, name: str) -> str:
    label = name.removeprefix("block_").replace("/attn/head_", ".").replace("/", " ")
    return (
        f'<rect x="{x - 36:.1f}" y="{y - 11:.1f}" width="72" height="22" rx="4" fill="#fff" '
        f'stroke="#444"/><text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">'
        f"{escape(label)}<title>{escape(name)}</title></text>"
    )


def _intervals(wiring: Wiring, scores: Any) -> tuple[list[float], list[float | None]]:
    """Returns the mean score of each edge and the half width of its interval, None if unknown."""
    if scores is None:
        return [], []
    scores = np.asarray(scores, float)
    if scores.shape not in ((wiring.n_edges,), (wiring.n_edges, len(wiring.tokens_BxT))):
        raise UserError(
            f"expected a score for each of {wiring.n_edges} edges, got the shape {scores.shape}."
        )
    if scores.ndim == 1 or scores.shape[1] < 2:
        means = scores.reshape(len(scores), -1).mean(1)
        return [float(x) for x in means], [None] * len(scores)
    half_widths = quantile(scores.shape[1] - 1, LEVEL) * standard_error(scores.T)
    return [float(x) for x in scores.mean(1)], [float(x) for x in half_widths]
