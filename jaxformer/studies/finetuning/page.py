"""The HTML page of a fine-tuning study: one file without scripts and without other resources."""

from html import escape
from pathlib import Path
from typing import Any

from jaxformer.core.text_format import counted, duration
from jaxformer.report.html import document
from jaxformer.report.html import table as html_table
from jaxformer.studies.anatomy import drawing
from jaxformer.studies.anatomy import page as anatomy_page
from jaxformer.studies.anatomy.sentences import unbroken

STYLE = Path(anatomy_page.__file__).with_name("page.css")


def page(report: Any) -> str:
    """The page of a `FinetuningReport`."""
    title = f"Which parts need an update? {report.name}"
    items = [
        f'<li class="{"worse" if " is not enough" in text else "no-worse"}">{escape(text)}</li>'
        for text in report.sentences
    ]
    nothing = "<li>Nothing is decided yet: more seeds or texts are needed.</li>"
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(report.opening)}</p>",
        f'<ul class="sentences">{"".join(items) or nothing}</ul>',
        "<h2>All updates</h2>",
        _method(report),
        _table(report),
        "<h2>How it was made</h2>",
        _costs(report),
    ]
    style = drawing.STYLE + STYLE.read_text()
    return document(title, f"<main>\n{unbroken(chr(10).join(sections))}\n</main>", style)


def _method(report: Any) -> str:
    margin = report.comparisons.margin
    return (
        '<p class="small soft">The share is 1 for the full update of everything and 0 for the '
        "model as it was loaded, seed by seed and text by text, with 95 % intervals over both. No "
        f"worse: the share lies above {1 - margin:g}, the dashed line. Worse: it lies below. All "
        f"{len(report.comparisons.rows)} comparisons are corrected together, so that at most 5 % "
        "of the decided are expected to be wrong. Memory: all weights, and gradients and moments "
        "of the trained ones in float32, without activations.</p>"
    )


def _table(report: Any) -> str:
    table = report.comparisons
    heads = ("part", "update", "trained", "memory", "share of the gain", "")
    heads = (*heads, "bits per byte", "seeds", "outcome")
    whole, *others = report.lines()
    bars = [anatomy_page.bar(row.share, row.half_width, table.margin) for row in table.rows]
    rows = [
        [*map(escape, texts[:5]), drawn, *map(escape, texts[5:])]
        for texts, drawn in zip([whole, *others], ["", *bars], strict=True)
    ]
    return f'<div class="scroll">{html_table(heads, rows, right=("trained",))}</div>'


def _costs(report: Any) -> str:
    settings = report.settings
    texts = [
        f"{settings[name]} {name}" for name in ("steps", "texts in a batch") if name in settings
    ]
    if trainings := report.costs.get("trainings"):
        texts.append(counted(int(trainings), "training"))
    if seconds := report.costs.get("seconds"):
        texts.append(f"{duration(seconds)} of training")
    texts.append("learning rates chosen on validation texts")
    command = settings.get("command", "")
    shell = f"<pre>{escape(command)}</pre>" if command else ""
    return f"<p>{escape('; '.join(texts))}.</p>{shell}"
