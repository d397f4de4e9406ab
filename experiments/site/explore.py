"""Two charts with sliders: a phase diagram, and the order parameter against the width N.

The browser computes both charts from tables in the page. The phase diagram uses the overlaps of
the random energy model, the Chebyshev series of theory.rem with fewer coefficients. This changes
them by at most 1e-3. The order parameter uses
order.json. Both charts need scripts.
"""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.arrays import array_of
from theory.rem.interpolated_tables import load_tables

SCRIPTS = ("charts.js", "phase.js", "explore.js")
ORDER = Path(__file__).with_name("order.json")
SAMPLED_WIDTHS = (10, 100, 1000)  # those of the record with sampled posteriors
# Terms of the Chebyshev series in the page: in length, in the spread of scores, in cosine.
LENGTHS, SPREADS, COSINES = 10, 24, 12
# The figures whose measured points the charts show.
DIAGRAM_ITEM, PARAMETER_ITEM = "Figure 1c", "Figure 2c, bottom"


def is_shown(rows: list[Row]) -> bool:
    """Returns whether a row belongs to one of the two papers whose results the charts show."""
    return bool({row.paper.key for row in rows} & {"two_failure_modes", "attention_paths"})


def explore(rows: list[Row]) -> list[str]:
    """Returns the HTML of the section, or [] if no row belongs to the two papers."""
    if not is_shown(rows):
        return []
    parts = ['<h2 id="explore">Explore</h2>']
    parts.append(
        "<noscript><p>This section has charts with sliders, which need scripts. The figures of the "
        "papers below show the same results.</p></noscript>"
    )
    keys = {row.paper.key for row in rows}
    if "two_failure_modes" in keys:
        parts += phase_diagram(_record(rows, DIAGRAM_ITEM))
    if "attention_paths" in keys:
        parts += order_parameter(_record(rows, PARAMETER_ITEM, "U"))
    return parts


def phase_diagram(record: Record | None) -> list[str]:
    """Returns the HTML of the phase diagram; the record has the measured points."""
    return [_html("phase"), embedded("phase-data", series() | {"dots": _dots(record)})]


def order_parameter(record: Record | None) -> list[str]:
    """Returns the HTML of the order parameter; the record has the sampled means."""
    table = json.loads(ORDER.read_text())
    return [_html("order"), embedded("order-data", table | _sampled(record))]


def _html(name: str) -> str:
    """Returns the static part of a chart with its sliders."""
    return Path(__file__).with_name(f"{name}.html").read_text().rstrip()


def embedded(name: str, value: Any) -> str:
    """Returns a <script> element with a value as JSON. No text in the value can end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def series() -> dict[str, Any]:
    """Returns the leading coefficients of the overlaps in length, spread and cosine."""
    tables = load_tables()
    leading = {name: tables[name][:LENGTHS, :SPREADS] for name in ("overlap", "entropy")}
    leading["pair"] = tables["pair"][:LENGTHS, :SPREADS, :COSINES]
    return {name: np.round(values, 5).tolist() for name, values in leading.items()}


def _record(rows: list[Row], item: str, cell: str = "") -> Record | None:
    """Returns the record of a cell of an item, or of its first cell if none is named."""
    candidates = (row.records for row in rows if row.item.name == item)
    records: Mapping[str, Record] = next(candidates, {})
    return records.get(cell) if cell else next(iter(records.values()), None)


def _dots(record: Record | None) -> dict[str, Any] | None:
    """Returns the measured points (beta, alpha, mean cosine) with the layers and the length."""
    if record is None:
        return None
    try:
        names = ("measured_beta", "measured_alpha", "measured")
        betas, alphas, measured_BxAxS = (array_of(record, name) for name in names)
        cosine_BxA = np.round(measured_BxAxS.mean(-1).astype(float), 4)
        points = [
            (float(b), float(a), float(cosine_BxA[i, j]))
            for i, b in enumerate(betas)
            for j, a in enumerate(alphas)
        ]
        figure = record.config["figure"]
        return {"layers": figure["layers"], "length": figure["length"], "points": points}
    except Exception:  # with a malformed record the diagram is drawn without dots
        return None


def _sampled(record: Record | None) -> dict[str, Any]:
    """Returns the sampled means of U as points (width, index of the entry, value).

    The index counts the entries of the upper triangle of U by rows.
    """
    points: list[tuple[int, int, float]] = []
    names = json.loads(ORDER.read_text())["names"]
    if record is not None:
        pairs = [*itertools.combinations_with_replacement(names, 2)]
        for width in SAMPLED_WIDTHS:
            for index, (row, column) in enumerate(pairs):
                metric = record.metrics.get(f"E[U]/N={width}/{row},{column}", {})
                if (value := metric.get("mean")) is not None:
                    points.append((width, index, round(value, 4)))
    return {"sampled": points}
