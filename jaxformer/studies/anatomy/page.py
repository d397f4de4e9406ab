"""The HTML page of a report: one file without scripts and without other resources."""

import math
from html import escape
from pathlib import Path

from jaxformer.core.text_format import duration
from jaxformer.report import svg
from jaxformer.report.html import document, folded, views
from jaxformer.report.html import table as html_table
from jaxformer.studies.anatomy import drawing, page_during, page_inside
from jaxformer.studies.anatomy.content import Content
from jaxformer.studies.anatomy.inside import Inside
from jaxformer.studies.anatomy.judge import Table
from jaxformer.studies.anatomy.parts import FROZEN, ONLY
from jaxformer.studies.anatomy.sentences import score_text, unbroken
from jaxformer.studies.anatomy.smallest import Elimination
from jaxformer.studies.anatomy.text_tables import columns, elimination_rows

NOTHING_DECIDED = "Nothing is decided yet: more seeds or prompts are needed."
MAX_CURVES = 7  # the number of colours in the style sheet
BAR_WIDTH = 220  # pixels
TRAINED = "Trained with one part changed: test score ± standard error"
CHANGED = "Changed after training, one part at a time: mean ± 95 % interval"
TOGETHER = "Several parts removed at once after training: mean ± 95 % interval"
COMPARED = "Compared with networks that cannot know the answer"
SMALLEST = "Trained with parts leaving one after the other, each step on fresh seeds"
VIEW_NAMES = {ONLY: "only it trained"}


def page(report: Content) -> str:
    """Returns the page of a report."""
    title = f"Anatomy of {report.name}"
    sections = [f"<h1>{escape(title)}</h1>", _sizes_and_scores(report), _first_screen(report)]
    if report.training is not None and report.training.rows:
        sections += ["<h2>What must be trained</h2>", _method(report.training), _table(report)]
        sections += [_curves(report)]
    if report.smallest:
        sections += ["<h2>The smallest that is no worse</h2>", *map(_elimination, report.smallest)]
    if report.inside is not None:
        sections += _inside(report)
    if report.during is not None:
        sections.append(page_during.during_section(report.during))
    if report.theory:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.theory)
        sections += ["<h2>What theory predicts</h2>", f"<ul>{lines}</ul>"]
    if report.next_steps:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.next_steps)
        sections += ["<h2>What to do next</h2>", f"<ul>{lines}</ul>"]
    sections += ["<h2>How it was made</h2>"]
    main = unbroken("\n".join(filter(None, sections)))
    style = drawing.STYLE + Path(__file__).with_name("page.css").read_text()
    return document(title, f"<main>\n{main}{_costs(report)}\n</main>", style)


def _sizes_and_scores(report: Content) -> str:
    """Returns the sizes, the score of the whole network and the score of guessing."""
    table, lines = report.training, []
    if count := report.settings.get("parameters"):
        lines.append(f"{count:,} parameters")
    if steps := report.settings.get("steps"):
        lines.append(f"{steps} training steps")
    if table is not None:
        metric = report.settings.get("metric", "score")
        lines.append(f"{metric} of the whole network {score_text(table.whole.score)}")
        trivial = table.whole.score._replace(mean=table.trivial, sem=0.0, test=0.0)
        name = table.trivial_name.replace("_", " ")
        name = name if name.startswith("guessing") else f"guessing ({name})"
        lines.append(f"{name} {score_text(trivial)}")
    if (inside := report.inside) is not None:
        lines.append(f"mean {inside.unit} {inside.score:.3g} on {inside.samples} prompts")
    return f'<p class="soft">{escape("; ".join(lines))}.</p>'


def _first_screen(report: Content) -> str:
    """Returns the sentences beside the drawing, or beside the effects of a published model."""
    items = "".join(
        f'<li class="{sentence.outcome.replace(" ", "-")}">{escape(sentence.text)}</li>'
        for sentence in report.decided
    )
    texts = [text for text, _ in report.effect_sentences]
    effects, groups = (
        "".join(f"<li>{escape(text)}</li>" for text in part)
        for part in (texts, report.group_sentences)
    )
    if not items + effects + groups and not report.null_sentences:
        items = "" if report.undecided else f"<li>{NOTHING_DECIDED}</li>"
    open_note = f"<p><b>{escape(report.undecided)}</b></p>" if report.undecided else ""
    source = f'<p class="small soft">{escape(report.sources_of_error)}</p>'
    sentences = open_note + _list(TRAINED, items) + _list(CHANGED, effects)
    found = "".join(f"<li>{escape(x.sentence)}</li>" for x in report.smallest)
    sentences += (
        _list(SMALLEST, found) + _list(TOGETHER, groups) + (source if effects + groups else "")
    )
    nulls = "".join(f"<li>{escape(text)}</li>" for text in report.null_sentences)
    sentences += _list(COMPARED, nulls)
    if report.training is not None and report.training.rows:
        picture = network(report.training, int(report.settings.get("layers", 1)))
        return f'<div class="first"><div>{picture}</div><div>{sentences}</div></div>'
    if report.inside is not None:
        tables = page_inside.effect_tables(report.effects)
        return (
            f'<div class="first model"><div>{sentences}</div>'
            f"<div>{tables}{_legend(report.inside)}</div></div>"
        )
    return f'<div class="first"><div>{sentences}</div></div>'


def _list(heading: str, items: str) -> str:
    """Returns sentences under their heading; "" without sentences."""
    if not items:
        return ""
    return f'<p class="small soft">{heading}</p><ul class="sentences">{items}</ul>'


def network(table: Table, layers: int) -> str:
    """Returns the drawing of the network with a choice of what was done to each part."""
    drawings = {
        VIEW_NAMES.get(view, view): drawing.svg(
            drawing.draw(table, view, layers), drawing.label_of(table, view)
        )
        for view in drawing.VIEWS
        if drawing.label_of(table, view)
    }
    caption = (
        '<p class="small soft">Orange: what is lost of the way from guessing to the whole network. '
        f"Green: at most {100 * table.margin:g} % is lost. Dashed: cannot tell yet. "
        "Grey: not trained, so nothing is said about the part.</p>"
    )
    return views("network", drawings) + caption


def _method(table: Table) -> str:
    return (
        f'<p class="small soft">The share is 1 for the whole network and 0 for '
        f"{escape(table.trivial_name.replace('_', ' '))}. No worse: the interval of the difference "
        f"lies above −{table.margin:g}, the dashed line. Worse: it lies below, and the "
        f"variant was trained: its best learning rate lies inside its grid, and twice the steps "
        f"score the same. All "
        f"{len(table.rows)} comparisons are corrected together, so that at most 5 % of the decided "
        "are expected to be wrong. Bars and shares have 95 % intervals over seeds; "
        "scores have standard errors.</p>"
    )


def _table(report: Content) -> str:
    table = report.training
    assert table is not None
    heads = (
        "part",
        "what was done",
        "share of the way",
        "",
        "score",
        "seeds",
        "rate",
        "steps",
        "outcome",
    )
    rows = []
    for row in table.rows:
        texts = [escape(text) for text in columns(table, row)]
        drawn = bar(table.share(row), table.share_half_width(row), table.margin)
        rows.append([*texts[:3], drawn, *texts[3:]])
    return f'<div class="scroll">{html_table(heads, rows)}</div>'


def bar(share: float, half_width: float, margin: float) -> str:
    """Returns a share with its interval as a small drawing; the dashed line is 1 - margin."""

    def x(value: float) -> float:
        """Returns the position of a share in pixels; the drawing spans shares of -0.1 to 1.1."""
        return 4 + (BAR_WIDTH - 8) * min(max(value + 0.1, 0.0), 1.2) / 1.2

    marks = [f'<path class="grid" d="M{x(0):.1f} 0V16M{x(1):.1f} 0V16"/>']
    marks.append(f'<path class="border" d="M{x(1 - margin):.1f} 0V16"/>')
    if math.isfinite(half_width):
        low, high = x(share - half_width), x(share + half_width)
        marks.append(f'<path class="interval" d="M{low:.1f} 8H{high:.1f}"/>')
    marks.append(f'<circle class="mean" cx="{x(share):.1f}" cy="8" r="4"/>')
    return (
        f'<svg viewBox="0 0 {BAR_WIDTH} 16" width="{BAR_WIDTH}" height="16">{"".join(marks)}</svg>'
    )


def _elimination(found: Elimination) -> str:
    """Returns the steps of a search, and the score against the parameters that are left."""
    heads, *rows = elimination_rows(found)
    steps = html_table(heads, [[escape(cell) for cell in row] for row in rows])
    if len(found.steps) < 2 or any(step.parameters <= 0 for step in found.steps):
        return f'<div class="scroll">{steps}</div>'
    ordered = sorted(found.steps, key=lambda step: step.parameters)
    means = [abs(step.score.mean) for step in ordered]
    errors = [step.score.error if step.score.error > 0 else 0.0 for step in ordered]
    line = svg.Series(
        "no worse, step by step",
        [step.parameters for step in ordered],
        means,
        low=[mean - error for mean, error in zip(means, errors, strict=True)],
        high=[mean + error for mean, error in zip(means, errors, strict=True)],
    )
    verb = "trained parameters" if found.method == FROZEN else "parameters"
    chart = svg.line_chart("Score against parameters", [line], svg.Axis(verb), svg.Axis("score"))
    return f'<div class="scroll">{steps}</div><div class="chart">{chart}</div>'


def _curves(report: Content) -> str:
    """Returns the training loss of the whole network and of the variants that lose most."""
    table = report.training
    assert table is not None
    worst = sorted(table.rows, key=lambda row: row.gap.gap)
    names = [
        "whole",
        *(row.cell.variant.name for row in worst if row.cell.variant.method != "only"),
    ]
    series = []
    for name in names:
        points = [(step, loss) for step, loss in report.curves.get(name, ()) if math.isfinite(loss)]
        if points and len(series) < MAX_CURVES:
            steps, losses = zip(*points, strict=True)
            series.append(svg.Series(name, steps, losses, low=losses, high=losses))  # no band
    if not series:
        return ""
    axes = svg.Axis("step"), svg.Axis("training loss (nats)")
    chart = svg.line_chart("Training loss", series, *axes)
    return f'<h2>Training loss</h2><div class="chart">{chart}</div>{svg.legend(series)}'


def _inside(report: Content) -> list[str]:
    """Returns the sections about the trained network."""
    inside = report.inside
    assert inside is not None
    sections = []
    # Without trained variants, the first screen has the tables of effects.
    if report.training is not None and report.training.rows:
        tables = page_inside.effect_tables(report.effects)
        sections = ["<h2>What each part of the trained network does</h2>", _legend(inside), tables]
    sections += [
        f"<p>Not measured: {escape(f'{m}: {why}')}.</p>" for m, why in inside.left_out.items()
    ]
    if report.maps:
        sections += ["<h2>Attention of the heads that matter</h2>"]
        sections += [page_inside.attention(report.maps, report.tokens)]
    sections += [f"<h2>Reading the answer in each block</h2>{page_inside.facts_table(inside)}"]
    matrices = page_inside.kernels_table(inside)
    return [
        *sections,
        folded("Norms and ranks of the matrices", matrices),
    ]


def _legend(inside: Inside) -> str:
    """Returns the meaning of numbers and colours in the tables of effects."""
    return (
        f'<p class="small soft">Change of the {escape(inside.unit)} over {inside.samples} prompts. '
        f"Sentences state effects above {inside.smallest:.2g}, 5 % of what the network knows about "
        "its prompts. Bold: decided, with all comparisons of the report corrected together. "
        "Orange: the part helps. Blue: it works against the answer. Point at a number for its "
        "interval.</p>"
    )


def _costs(report: Content) -> str:
    """Returns the trainings, their time, the learning rates and the command."""
    texts = []
    if trainings := report.costs.get("trainings"):
        texts.append(f"{trainings:.0f} training{'s' * (trainings != 1)}")
    if seconds := report.costs.get("seconds"):
        texts.append(f"{duration(seconds)} of training")
    if rates := report.settings.get("rates"):
        listed = ", ".join(f"{rate:g}" for rate in rates)
        texts.append(f"learning rates {listed}, chosen on validation data")
    command = report.settings.get("command", "")
    shell = f"<pre>{escape(command)}</pre>" if command else ""
    return f"<p>{escape('; '.join(texts))}</p>{shell}"
