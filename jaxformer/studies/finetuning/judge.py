"""Decides whether an update is enough, by the share of the gain that it keeps.

    share = (b - v) / (b - w)    b  score of the model as it was loaded, in bits per byte
                                 v  after the update
                                 w  after the full update of everything

All three are scored on the same texts, and v and w have the same seeds, so everything is compared
seed by seed and text by text. The contrast (b - v) - r (b - w) is linear in the scores and has the
mean 0 at the true share r. Its error has two parts, between the seeds and between the texts. The
update is enough ("no worse") if the interval of the contrast at r = 1 - margin is above 0, and not
enough ("worse") if it is below. The p values are corrected as in `anatomy.judge`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.stats.differences import ABOVE, Number, difference, mean_and_sem, p_value
from jaxformer.studies.anatomy import judge
from jaxformer.studies.finetuning.updates import Update

EXACT_ZERO = Number(0.0)


class Cell(NamedTuple):
    """The members of an update at its learning rate."""

    update: Update
    texts_by_seed: Mapping[int, Sequence[float]]  # what each text adds to the score
    rate: float
    is_edge: bool = False  # whether the rate is the lowest or highest that was tried

    @property
    def score(self) -> Number:
        return number_of(self.texts_by_seed)


class Row(NamedTuple):
    """An update with the share of the gain that it keeps."""

    cell: Cell
    share: float
    half_width: float  # of the share's 95 % interval; nan with one seed
    p: float  # two-sided p value of share = 1 - margin, corrected for repeated looks
    q: float  # corrected for the number of updates too
    outcome: str


class Table(NamedTuple):
    """All updates of a study."""

    before_texts: Sequence[float]  # what each text adds to the score of the model as loaded
    whole: Cell  # the full update of everything
    gain: Number
    margin: float
    rows: tuple[Row, ...]

    @property
    def before(self) -> Number:
        """The score of the model as it was loaded, whose only error is that of the texts."""
        return number_of({0: self.before_texts})._replace(n=0, sem=0.0, by_seed={})

    @property
    def is_decided(self) -> bool:
        return all(row.outcome != judge.OPEN for row in self.rows)


def judged(before: Sequence[float], whole: Cell, cells: Sequence[Cell], margin: float) -> Table:
    """The table of all updates.

    Args:
        before: what each text adds to the score of the model as it was loaded.
        whole: the full update of everything.
        cells: the other updates.
        margin: the share of the gain that an update which is enough may lose.
    """
    gain = contrast(before, whole, whole, 0.0)
    is_learned = difference(gain, EXACT_ZERO).verdict() == ABOVE
    shares, intervals, contrasts, p_values = [], [], [], []
    for cell in cells:
        own_gain = contrast(before, cell, whole, 0.0).mean
        lead = contrast(before, on_seeds_of(whole, cell), whole, 0.0).mean
        share = own_gain / lead if lead > 0 else math.nan
        half = difference(contrast(before, cell, whole, share), EXACT_ZERO).half
        shares.append(share)
        intervals.append(half / lead if lead > 0 and math.isfinite(half) else math.nan)
        at_margin = contrast(before, cell, whole, 1 - margin)
        contrasts.append(difference(at_margin, EXACT_ZERO))
        p = p_value(at_margin, EXACT_ZERO, 0.0) if is_learned else math.nan
        p_values.append(judge.at_any_look(p))
    rows = tuple(
        Row(cell, share, half, p, q, judge.outcome(compared, q, 0.0))
        for cell, share, half, compared, p, q in zip(
            cells, shares, intervals, contrasts, p_values, judge.corrected(p_values), strict=True
        )
    )
    return Table(before, whole, gain, margin, rows)


def contrast(before: Sequence[float], cell: Cell, whole: Cell, share: float) -> Number:
    """The mean of (b - v) - share (b - w) over seeds and texts, with both errors."""
    b = np.asarray(before)
    whole = on_seeds_of(whole, cell)
    return number_of(
        {
            seed: (b - np.asarray(cell.texts_by_seed[seed])) - share * (b - np.asarray(w))
            for seed, w in whole.texts_by_seed.items()
        }
    )


def on_seeds_of(whole: Cell, cell: Cell) -> Cell:
    """The whole with the seeds only that another update has too."""
    shared = {s: x for s, x in whole.texts_by_seed.items() if s in cell.texts_by_seed}
    return whole._replace(texts_by_seed=shared)


def number_of(texts_by_seed: Mapping[int, Any]) -> Number:
    """The mean over seeds and texts, with the errors between seeds and between texts."""
    values_SxD = np.asarray([*texts_by_seed.values()], np.float64)
    by_seed = {seed: float(np.mean(texts)) for seed, texts in texts_by_seed.items()}
    mean, sem = mean_and_sem([*by_seed.values()])
    _, of_texts = mean_and_sem([*values_SxD.mean(0)])
    return Number(mean, sem, len(by_seed), of_texts, by_seed=by_seed)
