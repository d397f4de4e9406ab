"""Attention maps as one HTML file: all heads small, one of them large, and a token under the mouse.

It loads nothing from elsewhere, so it can be mailed, or opened on a machine without Python.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.report import html

MAX_CELLS = 20_000_000  # bytes of all maps in the page
STYLE = """
:root { color-scheme: light dark; --ink: #111; --paper: #fff; --rule: #ccc; --mark: 199, 80, 0; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --paper: #131416; --rule: #444; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem; }
canvas { image-rendering: pixelated; border: 1px solid var(--rule); background: #fff; }
#large { width: min(100%, 30rem); aspect-ratio: 1; }
.heads { display: flex; flex-wrap: wrap; gap: .5rem; }
.heads button { font: inherit; font-size: .75rem; color: inherit; background: none;
  border: 2px solid transparent; padding: .2rem; cursor: pointer; max-width: 108px;
  overflow-wrap: anywhere; }
.heads button[aria-pressed=true] { border-color: rgb(var(--mark)); }
.heads canvas { display: block; width: 84px; height: 84px; }
#tokens { font: 14px/1.9 ui-monospace, monospace; margin: 1rem 0; }
#tokens span { padding: .1rem .15rem; border-radius: .2rem; white-space: pre-wrap; }
#tokens span.from { outline: 2px solid var(--ink); }
"""


def page(maps: Mapping[str, Any], tokens: Sequence[str] = (), example: int = 0) -> str:
    """The page of the attention maps of one example.

    Args:
        maps: {address: attention weights (batch, heads, queries, keys)}; other activations of the
            capture are left out.
        tokens: the texts of the tokens; their positions without any.
        example: which one of the batch.
    """
    found = {name: np.asarray(x) for name, x in maps.items() if _is_map(x)}
    if not found:
        raise UserError(
            "no attention map is among these activations: capture "
            r"'block_\d+/attn/weights', which are (batch, heads, queries, keys)."
        )
    batch, _, n_queries, n_keys = next(iter(found.values())).shape
    if not -batch <= example < batch:
        raise UserError(
            f"example {example} is none of the batch of {batch}: give 0 to {batch - 1}."
        )
    if tokens and len(tokens) != n_keys:
        raise UserError(f"{len(tokens)} texts for {n_keys} tokens: give one for each token.")
    heads = [
        {"name": f"{name}, head {h}", "size": map_QxK.shape, "map": _packed(map_QxK)}
        for name, x in found.items()
        for h, map_QxK in enumerate(x[example])
    ]
    if sum(np.prod(head["size"]) for head in heads) > MAX_CELLS:
        raise UserError(
            f"{len(heads)} heads of {n_queries} x {n_keys} are too many for a page: capture fewer "
            "blocks, or a shorter prompt."
        )
    data = {"heads": heads, "tokens": [*tokens] or [str(i) for i in range(n_keys)]}
    body = (
        f"<h1>{len(heads)} attention heads</h1><p>Click on a head, and point at a token: the "
        "others are coloured by how much it attends to them. A row of a map is a query.</p>"
        '<p id="name"></p><canvas id="large"></canvas><div id="tokens"></div>'
        '<div class="heads"></div>'
        f'<script type="application/json" id="data">{_in_script(data)}</script>'
    )
    script = (Path(__file__).parent / "attention_page.js").read_text()
    return html.document(escape("Attention heads"), body, STYLE, [script])


def _is_map(x: Any) -> bool:
    """Whether an activation has rows that sum to 1, as attention weights do."""
    if np.ndim(x) != 4:
        return False
    sums = np.asarray(x, np.float32).sum(-1)
    return bool(np.all((np.abs(sums - 1) < 0.02) | (sums == 0)))


def _packed(map_QxK: np.ndarray) -> str:
    """A map with 256 levels, in base64: a tenth of its length as numbers."""
    levels = np.round(255 * np.clip(map_QxK.astype(np.float32), 0, 1)).astype(np.uint8)
    return base64.b64encode(levels.tobytes()).decode()


def _in_script(data: Any) -> str:
    """JSON in which no text can end the script element."""
    return json.dumps(data).replace("<", "\\u003c")
