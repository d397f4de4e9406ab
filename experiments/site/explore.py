"""Two charts with sliders: a phase diagram, and the order parameter against the width N.

The browser computes both from tables in the page. The phase diagram uses the overlaps of
theory.rem, shortened to an error of 1e-3. The order parameter uses order.json. Without scripts
neither is shown.
"""

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
LENGTHS, SPREADS, COSINES = 10, 24, 12  # terms of the Chebyshev series in the page
# The items whose measured points the charts show.
DIAGRAM, PARAMETER = "Figure 1c", "Figure 2c, bottom"


def is_shown(rows: list[Row]) -> bool:
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
        parts += [PHASE, embedded("phase-data", series() | {"dots": _dots(_record(rows, DIAGRAM))})]
    if "attention_paths" in keys:
        sampled = _sampled(_record(rows, PARAMETER, "U"))
        parts += [ORDER_HTML, embedded("order-data", json.loads(ORDER.read_text()) | sampled)]
    return parts


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
        upper = [(i, j) for i in range(len(names)) for j in range(i, len(names))]
        for width in (10, 100, 1000):
            for place, (i, j) in enumerate(upper):
                value = record.metrics.get(f"E[U]/N={width}/{names[i]},{names[j]}", {}).get("mean")
                points += [(width, place, round(value, 4))] if value is not None else []
    return {"sampled": points}


def _slider(
    name: str, label: str, chart: str, low: float, high: float, step: float, value: float
) -> str:
    """Returns a labelled slider and the <output> that shows its value."""
    limits = f'min="{low}" max="{high}" step="{step}" value="{value}"'
    return (
        f'<label>{label} <input type="range" name="{name}" {limits}>'
        f'<output id="{chart}-{name}"></output></label>'
    )


PHASE = f"""<section id="phase" class="item" aria-labelledby="phase-name" hidden>
<h3 id="phase-name">Will tokens collapse? A transformer at initialisation</h3>
<p class="caveat">Post-norm encoder blocks of arXiv 2505.24333, exact at finite length in the limit
of large width: yellow is a cosine of 1, where all tokens are alike. Below the blue line they
collapse; right of the dashed one a row of attention looks at few tokens. Move the sliders, or
choose a point of the map.</p>
<form id="phase-controls" class="controls">
{_slider("beta", "score scale β", "phase", 0, 2.5, 0.01, 0.5)}
{_slider("alpha", "residual strength α", "phase", 0, 2.5, 0.01, 1.1)}
{_slider("layers", "layers L", "phase", 1, 160, 1, 60)}
{_slider("tokens", "tokens T", "phase", 2, 17, 1, 6)}
<label><input type="checkbox" name="limit"> the paper's limit of many tokens</label>
</form>
<div class="panels"><svg id="phase-map" viewBox="0 0 420 330" role="img"
aria-label="Map of the cosine after the last layer over score scale and residual strength"></svg>
<svg id="phase-depth" viewBox="0 0 340 250" role="img"
aria-label="The cosine of two tokens layer by layer at the chosen point"></svg></div>
<ul class="legend"><li>cosine of two tokens after the last layer: 0
<span class="ramp"></span> 1, all alike</li></ul>
<p><output id="phase-told" form="phase-controls" aria-live="polite"></output></p></section>"""

ORDER_HTML = f"""<section id="order" class="item" aria-labelledby="order-name" hidden>
<h3 id="order-name">Which paths does a narrow network combine?</h3>
<p class="caveat">The order parameter U of arXiv 2405.15926 on its hidden Markov task. Each row is a
path of attention heads. Lines are the theory; dots are sampled means of the exact posterior.
Narrow networks use the good and the denoising path and subtract one from the other; wide ones
cannot tell paths apart.</p>
<form id="order-controls" class="controls">
{_slider("place", "width N", "order", 0, 24, 1, 3)}</form>
<div class="panels"><svg id="order-heat" viewBox="0 0 290 244" role="img"
aria-label="The order parameter at the chosen width"></svg>
<svg id="order-lines" viewBox="0 0 340 244" role="img"
aria-label="Entries of the order parameter against the width"></svg>
<svg id="order-accuracy" viewBox="0 0 300 244" role="img"
aria-label="Test accuracy against the width; dashed the limit"></svg></div>
<ul class="legend"><li><span class="swatch b0"></span>good</li><li><span class="swatch b1"></span>
denoising</li><li><span class="swatch b2"></span>good and denoising, off the diagonal</li>
<li><span class="swatch b3"></span>a1, an adversarial path</li></ul>
<p><output id="order-told" form="order-controls" aria-live="polite"></output></p></section>"""
