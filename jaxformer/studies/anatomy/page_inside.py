"""The sections of the page about a trained network: effects of its components, attention, lens."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from jaxformer.report.html import table, views
from jaxformer.studies.anatomy.components import MAX_PROMPTS, DecidedEffect
from jaxformer.studies.anatomy.inside import METHODS, Inside

MAX_MAP_TOKENS = 24
MAP_CELL = 12  # pixels of a cell of an attention map
MIN_WEIGHT = 0.02  # attention below it is too pale to be drawn


def effect_tables(decided: Sequence[DecidedEffect]) -> str:
    """Returns a table of blocks and components for each method.

    An effect is bold if it differs from 0 after the correction for many comparisons.
    """
    by_method = {m: [d for d in decided if d.effect.method == m] for m in METHODS}
    tables = {method: _table(rows) for method, rows in by_method.items() if rows}
    return views("effects", tables)


def _table(rows: Sequence[DecidedEffect]) -> str:
    largest = max(abs(row.effect.value) for row in rows) or 1.0
    cells = {row.effect.part: row for row in rows}
    blocks = sorted({part.split("/")[0] for part in cells}, key=_numbers)
    columns = list(dict.fromkeys(part.partition("/")[2] for part in cells))
    columns.sort(key=lambda name: ("head" in name, _numbers(name)))
    titles = (name.removeprefix("attn/").replace("_", " ") for name in columns)
    lines = [
        [
            block.replace("_", " "),
            *(_effect_cell(cells.get(f"{block}/{name}"), largest) for name in columns),
        ]
        for block in reversed(blocks)
    ]
    return f'<div class="scroll">{table(["", *map(escape, titles)], lines, kind="effects")}</div>'


def _effect_cell(row: DecidedEffect | None, largest: float) -> str:
    if row is None:
        return ""
    value = row.effect.value
    text = f"{value:+.2f}" if abs(value) >= 0.005 else "0"
    if not row.is_decided:
        return f'<div class="heat soft">{text}</div>'
    percent = round(75 * abs(value) / largest)
    colour = "--lost" if value > 0 else "--gain"  # an effect is the score lost without the part
    style = f"background: color-mix(in srgb, var({colour}) {percent}%, transparent)"
    error = row.effect.half_width
    title = f"{row.effect.part}: {value:+.3g} ± {error:.2g}, q = {row.q:.2g}"
    return f'<div class="heat" style="{style}" title="{escape(title)}"><b>{text}</b></div>'


def facts_table(inside: Inside) -> str:
    """Returns the logit lens and the entropies by block."""
    heads = ("", "score read before", "after", "entropy of each head (nats)")
    rows = [
        (
            f"block {facts.block}",
            _interval(facts.lens_before),
            _interval(facts.lens_after),
            ", ".join(f"{entropy:.2f}" for entropy in facts.entropy_H),
        )
        for facts in inside.layers
    ]
    return f'<div class="scroll">{table(heads, rows)}</div>'


def kernels_table(inside: Inside) -> str:
    """Returns norm, effective rank and distance from initialisation of each matrix."""
    heads = ("matrix", "norm", "effective rank", "distance / initial norm")
    rows = [
        (
            escape(path),
            f"{facts.norm:.3g}",
            f"{facts.effective_rank:.3g} of {facts.rank}",
            "" if facts.distance is None else f"{facts.distance:.3g}",
        )
        for path, facts in inside.kernels.items()
    ]
    return f'<div class="scroll">{table(heads, rows)}</div>'


def attention(maps: Mapping[str, np.ndarray], tokens: Sequence[Sequence[str]]) -> str:
    """Returns the attention of heads on the first prompts, with buttons that select the prompt.

    Args:
      maps: {head: (B, T, T)}.
      tokens: a text for each token of each prompt.
    """
    prompts: dict[str, str] = {}
    for prompt, texts in enumerate(tokens[:MAX_PROMPTS]):
        shown = list(texts[:MAX_MAP_TOKENS])
        figures = "".join(
            f"<figure>{_map(weights[prompt], shown, head)}"
            f"<figcaption>{escape(head)}</figcaption></figure>"
            for head, weights in maps.items()
        )
        prompts[f"prompt {prompt + 1}"] = f'<div class="maps">{figures}</div>'
    return views("prompts", prompts) if prompts else ""


def _map(weights_TxT: np.ndarray, tokens: Sequence[str], head: str) -> str:
    """Returns an attention map: the row of a token shows where it attends."""
    longest = min(max(map(len, tokens), default=0), 10)  # letters of a token that are shown
    n, left = len(tokens), 8 + 6 * longest  # the map begins after the labels
    marks = []
    for t in range(n):
        marks.append(
            f'<text x="{left - 3}" y="{MAP_CELL * t + 10}" text-anchor="end">'
            f"{escape(tokens[t][:10])}</text>"
        )
        for s in range(n):
            weight = float(weights_TxT[t, s])
            if weight >= MIN_WEIGHT and math.isfinite(weight):
                marks.append(
                    f'<rect x="{left + MAP_CELL * s}" y="{MAP_CELL * t}" '
                    f'width="{MAP_CELL}" height="{MAP_CELL}" fill-opacity="{weight:.2f}"/>'
                )
    width, height = left + MAP_CELL * n, MAP_CELL * n
    frame = f'<path class="grid" d="M{left} 0H{width}V{height}H{left}Z"/>'
    label = escape(f"Attention of {head}: rows attend to columns")
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="map" {size} role="img" aria-label="{label}">{frame}{"".join(marks)}</svg>'


def _interval(value: tuple[float, float]) -> str:
    mean, half_width = value
    return f"{mean:.3g}" + (f" ± {half_width:.2g}" if math.isfinite(half_width) else "")


def _numbers(name: str) -> tuple[int, ...]:
    """Returns the numbers in an address, such as (1, 2) for "block_1/attn/head_2"."""
    digits: list[Any] = [int(part) for part in name.replace("/", "_").split("_") if part.isdigit()]
    return tuple(digits)
