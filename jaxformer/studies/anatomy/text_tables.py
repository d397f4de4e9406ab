"""The comparisons of a report as lines of text."""

import math
from collections.abc import Mapping, Sequence

from jaxformer.interp.circuits.against_null import over_draws
from jaxformer.stats.ratios import Spread
from jaxformer.studies.anatomy import sentences
from jaxformer.studies.anatomy.components import DecidedEffect
from jaxformer.studies.anatomy.judge import Judged, Table
from jaxformer.studies.anatomy.parts import FROZEN, ONLY
from jaxformer.studies.anatomy.smallest import Elimination

MAX_EFFECTS = 12  # lines of the largest effects
COLUMNS = (
    "part",
    "what was done",
    "share of the way",
    "score",
    "seeds",
    "rate",
    "steps",
    "compared with the whole",
)


def text_table(table: Table) -> str:
    """Returns the comparisons as aligned lines."""
    return aligned([COLUMNS, whole_columns(table), *(columns(table, row) for row in table.rows)])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts as lines with aligned columns; the first row has the headings."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def effects_text(
    effects: Sequence[DecidedEffect], null_effects: Mapping[str, Sequence[Spread]]
) -> str:
    """Returns the largest decided effects as aligned lines.

    Args:
        effects: all effects.
        null_effects: {part: what its mean ablation does in each null network}.
    """
    decided = [row for row in effects if row.is_decided]
    decided.sort(key=lambda row: -abs(row.effect.value))
    # Mean ablation comes first, because it is what null networks are asked for.
    by_mean = [row for row in decided if row.effect.method == "mean ablation"][: MAX_EFFECTS // 2]
    decided = by_mean + [row for row in decided if row not in by_mean]
    rows = [("component", "method", "helps the score by", "in null networks")]
    for effect, _ in decided[:MAX_EFFECTS]:
        of_nulls = null_effects.get(effect.part, ()) if effect.method == "mean ablation" else ()
        null = over_draws([null.mean for null in of_nulls]) if of_nulls else ""
        size = f"{effect.value:+.3g} ± {effect.half_width:.2g}"
        rows.append((effect.part, effect.method, size, null))
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    return aligned(rows)


def elimination_rows(found: Elimination) -> list[tuple[str, ...]]:
    """Returns the heads and the steps of a search for the smallest network."""
    verb = "still trained" if found.method == FROZEN else "parameters left"
    rows = [(f"{found.method}, one after the other", verb, "score", "seeds", "looked as good")]
    for step in found.steps:
        share = f"{step.parameters / found.total:.1%}"
        score = sentences.score_text(step.score)
        n_seeds = str(step.score.n)
        rows.append((step.gone or "whole network", share, score, n_seeds, ", ".join(step.ties)))
    return rows


def elimination_text(found: Elimination) -> str:
    """Returns the steps of a search as aligned lines."""
    return aligned(elimination_rows(found))


def whole_columns(table: Table) -> tuple[str, ...]:
    """Returns the texts of the whole network's row."""
    score, cell = table.whole.score, table.whole
    tries = f"{cell.rate:g}", str(cell.steps)
    return ("whole network", "trained", "1", sentences.score_text(score), str(score.n), *tries, "")


def columns(table: Table, row: Judged) -> tuple[str, ...]:
    """Returns the texts of one comparison's row."""
    variant, score = row.cell.variant, row.cell.score
    part = variant.part if variant.layer is None else f"{variant.part} of block {variant.layer}"
    return (
        part,
        variant.method if variant.method != ONLY else "only this trained",
        share_text(table.share(row), table.share_half_width(row)),
        sentences.score_text(score),
        str(score.n),
        f"{row.cell.rate:g}",
        str(row.cell.steps),
        row.word,
    )


def share_text(share: float, half_width: float) -> str:
    """Returns a share with the half width of its interval, such as "0.98 ± 0.02"."""
    if not math.isfinite(half_width):
        return f"{share:.2f}"
    digits = 2 if half_width >= 0.005 else 3
    return f"{share:.{digits}f} ± {half_width:.{digits}f}"
