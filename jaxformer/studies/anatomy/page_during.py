"""The section of the page about the network in training: rows are parts, columns are steps."""

from html import escape

from jaxformer.report.html import table
from jaxformer.studies.anatomy.components import part_name
from jaxformer.studies.anatomy.during import During


def during_section(found: During) -> str:
    """Returns a table with a coloured cell for each part and step, and the sentences above it."""
    parts = list(found.moments[-1].effects)
    largest = max(
        (moment.effects[part].value for moment in found.moments for part in parts), default=0.0
    )
    heads = ["", *(f"step {moment.step}" for moment in found.moments)]
    rows = [["training loss", *(f"{moment.loss:.2g}" for moment in found.moments)]]
    for part in parts:
        cells = [_cell(found, number, part, largest) for number in range(len(found.moments))]
        rows.append([escape(part_name(part)), *cells])
    items = "".join(f"<li>{escape(text)}</li>" for text in found.sentences)
    return (
        f"<h2>When parts become necessary</h2><ul>{items}</ul>"
        f'<p class="small soft">What the {escape(found.unit)} loses without a part (mean ablation) '
        "in one network, at steps between which the training loss changes equally. Bold: more than "
        f"{found.smallest:.2g}, with its interval over prompts.</p>"
        f'<div class="scroll">{table(heads, rows, kind="effects")}</div>'
    )


def _cell(found: During, number: int, part: str, largest: float) -> str:
    moment = found.moments[number]
    effect = moment.effects[part]
    text = f"{effect.value:+.2f}" if abs(effect.value) >= 0.005 else "0"
    label = f"; {moment.labels[part][0]}" if part in moment.labels else ""
    if effect.value - effect.half_width > found.smallest:
        text = f"<b>{text}</b>"
    percent = round(75 * max(effect.value, 0.0) / largest) if largest > 0 else 0
    style = f"background: color-mix(in srgb, var(--lost) {percent}%, transparent)"
    title = f"step {moment.step}: {effect.value:+.3g} ± {effect.half_width:.2g}{label}"
    return f'<div class="heat" style="{style}" title="{escape(title)}">{text}</div>'
