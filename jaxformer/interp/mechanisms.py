"""Mechanisms of parts together, named only where two scores and two ablations agree.

One number, such as the loss without two heads beyond the sum of their single losses, does not say
how the heads work together. The log probability saturates, so that two heads that simply add up
look as if each could replace the other. And a part that is replaced by its mean may keep another
one switched off. So a group is measured in the log probability and in the logit difference, by
mean, resample and zero ablation, and a mechanism is named if it is the same in both scores, by
mean and by one of the others:

    replace each other       nothing is lost without one, much without all
    are needed for one thing all is lost without any one of them

Three more kinds are statements about logits, where effects of independent parts add up. A log
probability can only hide them:

    offset each other        each alone changes the prompts' scores, all together do not
    add up                   what is lost without all is the sum of what is lost without each
    work on different prompts the same, and hardly any prompt needs two of them

Where the views disagree, the numbers are given with the reason, and no mechanism.

Shapes: B pairs of prompts.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from jaxformer.interp.groups import MARGIN, Interval, Removes, smallest_loss
from jaxformer.stats.differences import LEVEL, mean_and_sem, quantile

LOG, LOGITS = "log probability", "logit difference"
SCORES = (LOG, LOGITS)
MEAN, OTHERS = "mean", ("resample", "zero")
REPLACE, ONE_THING, OFFSET = "replace each other", "are needed for one thing", "offset each other"
ADD_UP, DIFFERENT = "add up", "work on different prompts"
OF_BOTH_SCORES, OF_LOGITS = (REPLACE, ONE_THING), (OFFSET, DIFFERENT, ADD_UP)
NEGLIGIBLE = 0.2  # of single changes: parts that offset each other change less than this together
# Parts that work on different prompts: the share of prompts that may need two of them, the prompts
# that each needs at least, and the share of its largest losses that counts on a prompt.
FEW, LEAST_PROMPTS, FAIR_SHARE = 0.05, 3, 0.25
MAX_SET = 6  # parts that replace each other, beyond pairs
View = Callable[[str, str], Removes]  # of an ablation and a score


class Numbers(NamedTuple):
    """The worth of a group in one view: an ablation and a score."""

    together: Interval
    singles: tuple[Interval, ...]
    margin: float  # the loss that counts as none
    kind: str  # "" if no kind is decided
    prompts: tuple[int, ...]  # on how many prompts each part is worth more than the margin
    on_them: tuple[float, ...]  # the mean loss there
    n_prompts: int
    change: float  # of a prompt's score without all parts, in absolute value
    least_change: float  # without the one part that changes least

    @property
    def in_sum(self) -> float:
        return sum(single.mean for single in self.singles)


@dataclasses.dataclass(frozen=True)
class Group:
    """Parts that were measured together in several views.

    Attributes:
        parts: the parts.
        views: {(ablation, score): what they are worth}.
        kind: the mechanism that the views agree on; "" if they do not agree on any.
        main: of two parts that replace each other, the one that does the work while it is there;
            "" if neither is the backup of the other.
    """

    parts: tuple[str, ...]
    views: Mapping[tuple[str, str], Numbers]
    kind: str
    main: str = ""

    @property
    def disagreement(self) -> str:
        """The reason why no mechanism is named although one view shows one; "" without such."""
        if self.kind:
            return ""
        by_mean = [self.views[MEAN, score].kind for score in SCORES]
        if not any(by_mean):
            return ""
        if by_mean[0] != by_mean[1]:
            return (
                "the two scores disagree, since a log probability saturates where the answer is "
                "nearly certain or nearly lost"
            )
        return "only mean ablation shows it, which keeps a part at a value that others rely on"


def find(
    view: View,
    parts: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    *,
    primary: str = LOGITS,
    level: float = LEVEL,
) -> list[Group]:
    """The groups of parts that do something together, and pairs whose views disagree.

    Args:
        view: returns the network whose parts are removed by an ablation ("mean", "resample",
            "zero") and scored by a score of `SCORES`.
        parts: the parts.
        pairs: the pairs that are measured.
        primary: the score of the report. Pairs that show nothing in it by mean ablation are not
            measured in other views.
        level: of all intervals together; each pair has its share of the error.
    """
    level_of_each = 1 - (1 - level) / max(len(pairs), 1)
    tables = {}

    def measured(groups: Sequence[tuple[str, ...]], ablation: str, score: str) -> list[Numbers]:
        table = tables.setdefault((ablation, score), _Table(view(ablation, score)))
        return table.numbers(groups, level_of_each)

    # A pair that shows nothing by mean ablation in the report's score is no candidate.
    shown = measured(pairs, MEAN, primary)
    candidates = [pair for pair, found in zip(pairs, shown, strict=True) if found.kind]
    groups = _in_all_views(candidates, measured)
    named = [group for group in groups if group.kind]
    unclear = [group for group in groups if group.disagreement]

    # Pairs that are needed for one thing, or add up, belong to larger groups of the same kind.
    for kind in (ONE_THING, ADD_UP):
        cliques = _cliques([group.parts for group in named if group.kind == kind])
        larger = _in_all_views([clique for clique in cliques if len(clique) > 2], measured)
        for group in larger:
            if group.kind == kind:
                named = [
                    other
                    for other in named
                    if other.kind != kind or not set(other.parts) <= set(group.parts)
                ]
                named.append(group)

    # Three or more that replace each other: none of their pairs loses anything.
    in_pairs = {part for group in named if group.kind == REPLACE for part in group.parts}
    free = [part for part in parts if part not in in_pairs]
    hidden = _hidden_set(free, lambda ablation: _table(tables, view, ablation))
    if hidden:
        named += [group for group in _in_all_views([hidden], measured) if group.kind == REPLACE]
    return [*named, *unclear]


def _table(tables: dict, view: View, ablation: str) -> "_Table":
    return tables.setdefault((ablation, LOGITS), _Table(view(ablation, LOGITS)))


class _Table:
    """The losses of groups in one view; each is measured once."""

    def __init__(self, network: Removes):
        self.network = network
        self.margin = smallest_loss(network, MARGIN)
        self.known: dict[frozenset[str], np.ndarray] = {}

    def losses(self, groups: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """The loss of each prompt without each group, (B,) each."""
        keys = [frozenset(group) for group in groups]
        missing = [key for key in dict.fromkeys(keys) if key not in self.known]
        if missing:
            scores_CxB = self.network.without([sorted(key) for key in missing])
            for key, score_B in zip(missing, scores_CxB, strict=True):
                self.known[key] = np.asarray(self.network.whole_B - score_B, float)
        return [self.known[key] for key in keys]

    def numbers(self, groups: Sequence[tuple[str, ...]], level: float) -> list[Numbers]:
        every = [*groups, *((part,) for group in groups for part in group)]
        self.losses(every)
        found = []
        for group in groups:
            together_B, *single_CxB = self.losses([group, *((part,) for part in group)])
            found.append(numbers_of(together_B, np.array(single_CxB), self.margin, level))
        return found


def numbers_of(
    together_B: np.ndarray, single_CxB: np.ndarray, margin: float, level: float = LEVEL
) -> Numbers:
    """The worth of a group, and the kind that its numbers show.

    Args:
        together_B: what each prompt loses without all parts.
        single_CxB: what it loses without each of them.
        margin: the loss that counts as none.
        level: of the intervals.
    """
    matters_CxB = _matters(single_CxB, margin)
    on_them = [
        float(loss_B[is_in_B].mean()) if is_in_B.any() else 0.0
        for loss_B, is_in_B in zip(single_CxB, matters_CxB, strict=True)
    ]
    return Numbers(
        together=_interval(together_B),
        singles=tuple(_interval(loss_B) for loss_B in single_CxB),
        margin=margin,
        kind=_kind(together_B, single_CxB, margin, level),
        prompts=tuple(int(n) for n in matters_CxB.sum(1)),
        on_them=tuple(on_them),
        n_prompts=len(together_B),
        change=float(np.abs(together_B).mean()),
        least_change=float(np.abs(single_CxB).mean(1).min()),
    )


def _kind(together_B: np.ndarray, single_CxB: np.ndarray, margin: float, level: float) -> str:
    """The kind of a group in one view, or "" if its intervals decide none."""
    together = _interval(together_B, level)
    surplus = _interval(together_B - single_CxB.sum(0), level)
    singles = [_interval(loss_B, level) for loss_B in single_CxB]
    largest = max(single.mean for single in singles)
    is_missed = _low(together) > margin
    is_each_missed = all(_low(single) > margin for single in singles)

    # Per prompt, because parts may offset each other in both directions.
    change_B, single_change_CxB = np.abs(together_B), np.abs(single_CxB)
    least_change = float(single_change_CxB.mean(1).min())
    is_offset = least_change > margin and change_B.mean() < NEGLIGIBLE * least_change
    if is_offset and all(_low(_interval(x_B - change_B, level)) > 0 for x_B in single_change_CxB):
        return OFFSET
    if _is_on_different_prompts(together_B, single_CxB, margin):
        return DIFFERENT
    if is_missed and _low(surplus) > margin and together.mean > largest + margin:
        return REPLACE
    if not is_each_missed:
        return ""
    if _high(surplus) < -margin and together.mean > largest - margin:
        return ONE_THING
    return ADD_UP if abs(surplus.mean) + surplus.half_width < margin else ""


def _is_on_different_prompts(together_B: np.ndarray, single_CxB: np.ndarray, margin: float) -> bool:
    """Whether each part is needed on some prompts, on which no other part is."""
    matters_CxB = _matters(single_CxB, margin)
    is_sum_B = np.abs(together_B - single_CxB.sum(0)) < 2 * margin
    return bool(
        (matters_CxB.sum(1) >= LEAST_PROMPTS).all()
        and (matters_CxB.sum(0) > 1).mean() < FEW
        and is_sum_B.mean() > 1 - FEW
        and all(
            loss_B[matters_B].mean() > margin
            for loss_B, matters_B in zip(single_CxB, matters_CxB, strict=True)
        )
    )


def _matters(single_CxB: np.ndarray, margin: float) -> np.ndarray:
    """Whether each part matters on each prompt: a fair share of what it does anywhere.

    A part that hurts an answer matters for it as well.
    """
    change_CxB = np.abs(single_CxB)
    most_Cx1 = np.quantile(change_CxB, 0.95, axis=1, keepdims=True)
    return change_CxB > np.maximum(margin, FAIR_SHARE * most_Cx1)


def _in_all_views(groups: Sequence[tuple[str, ...]], measured: Callable) -> list[Group]:
    """Measures groups in all views and names what the views agree on."""
    if not groups:
        return []
    views = [(ablation, score) for ablation in (MEAN, *OTHERS) for score in SCORES]
    numbers = {key: measured(groups, *key) for key in views}
    found = []
    for i, parts in enumerate(groups):
        of_group = {key: numbers[key][i] for key in views}
        kind = agreed_kind({key: x.kind for key, x in of_group.items()})
        main = _main(parts, of_group) if kind == REPLACE else ""
        found.append(Group(tuple(parts), of_group, kind, main))
    return found


def agreed_kind(kinds: Mapping[tuple[str, str], str]) -> str:
    """The kind that holds by mean and by one other ablation, in the scores that it is about."""
    for kind in (*OF_BOTH_SCORES, *OF_LOGITS):
        scores = SCORES if kind in OF_BOTH_SCORES else (LOGITS,)
        holds = [
            ablation
            for ablation in (MEAN, *OTHERS)
            if all(kinds[ablation, score] == kind for score in scores)
        ]
        if MEAN in holds and len(holds) > 1:
            return kind
    return ""


def _main(parts: Sequence[str], views: Mapping[tuple[str, str], Numbers]) -> str:
    """The one of two parts that works while both are there, or "".

    Resampling takes a part's value from another prompt. That hurts if the part works, and not if it
    is silent, because its backup is not missed.
    """
    found = views["resample", LOGITS]
    if len(parts) != 2:
        return ""
    works = [abs(single.mean) - single.half_width > found.margin for single in found.singles]
    silent = [abs(single.mean) + single.half_width < found.margin for single in found.singles]
    for number in (0, 1):
        if works[number] and silent[1 - number]:
            return parts[number]
    return ""


def _cliques(pairs: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sets of parts all of whose pairs are given, the first pairs first."""
    known = {frozenset(pair) for pair in pairs}
    cliques: list[list[str]] = []
    for part in dict.fromkeys(part for pair in pairs for part in pair):
        for clique in cliques:
            if all(frozenset((part, other)) in known for other in clique):
                clique.append(part)
                break
        else:
            cliques.append([part])
    return [tuple(clique) for clique in cliques]


def _hidden_set(parts: Sequence[str], table: Callable[[str], "_Table"]) -> tuple[str, ...]:
    """Three or more parts of which each alone is not missed, while all are; () without such.

    They are pruned, by mean and by zero ablation, to those that the loss needs, so that a part
    which does nothing, or which only keeps another one switched off, is not among them.
    """
    by_mean, by_zero = table(MEAN), table("zero")

    def is_lost(chosen: Sequence[str]) -> bool:
        of_both = [x.losses([chosen])[0].mean() > x.margin for x in (by_mean, by_zero)]
        return all(of_both)

    by_mean.losses([(part,) for part in parts])
    single = {part: float(by_mean.losses([(part,)])[0].mean()) for part in parts}
    chosen = [part for part in parts if abs(single[part]) < by_mean.margin]
    if len(chosen) < 3 or not is_lost(chosen):
        return ()
    # The parts that are missed least go first, those of one block after each other.
    for part in sorted(chosen, key=lambda part: single[part]):
        rest = [other for other in chosen if other != part]
        if len(rest) > 1 and is_lost(rest):
            chosen = rest
    return tuple(chosen) if 2 < len(chosen) <= MAX_SET else ()


def _low(interval: Interval) -> float:
    return interval.mean - interval.half_width


def _high(interval: Interval) -> float:
    return interval.mean + interval.half_width


def _interval(loss_B: np.ndarray, level: float = LEVEL) -> Interval:
    """The mean loss with its interval; infinite for one prompt, which decides nothing."""
    mean, sem = mean_and_sem([float(x) for x in loss_B])
    if len(loss_B) < 2:
        return Interval(mean, math.inf)
    return Interval(mean, quantile(len(loss_B) - 1, level) * sem)


def strongest_pairs(
    parts: Sequence[str], strength: Mapping[str, float], most: int, paired: int
) -> list[tuple[str, str]]:
    """All pairs of parts, or those of the strongest parts if there are too many.

    Args:
        parts: the parts.
        strength: the largest effect of each part by any method.
        most: the largest number of pairs.
        paired: the number of the strongest parts.
    """
    if len(parts) * (len(parts) - 1) // 2 > most:
        strongest = sorted(parts, key=lambda part: -strength.get(part, 0.0))[:paired]
        parts = [part for part in parts if part in strongest]
    return [*combinations(parts, 2)]
