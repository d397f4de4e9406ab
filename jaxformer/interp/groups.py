"""Groups of heads and MLPs that are removed at once: the work that parts do together.

Each of two heads that do the same thing can go, so the effects of single heads say that neither
matters. Only their joint removal shows what they are worth:

    wiring = circuits.Wiring(model, params, clean, corrupted, answers, ablation="mean")
    for joint in groups.joint_effects(wiring):
        print(joint)                           together, and the sum of single effects
    groups.spare(wiring, heads).sentence       "Any three of .. can go, but not all four; .."

A part is removed by replacing its output by its mean, by its value in another prompt, or by zero.
A `removal.Removal` does the same with less work, and for more models. All intervals are over
prompts of one network.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from jaxformer.core.errors import UserError, check_range, did_you_mean
from jaxformer.core.text_format import with_error
from jaxformer.stats.differences import LEVEL, mean_and_sem, quantile

# Of what all parts together are worth: a smaller effect does not count as a loss.
MARGIN = 0.05
ROUNDING = 1e-5  # of a mean: smaller errors are those of the arithmetic
BUDGET = 500  # runs of the network for one group
ALL_HEADS, ALL_MLPS = "the heads of all blocks", "all MLPs"
HOW_REMOVED = {"resample": "resampled", "mean": "replaced by their means", "zero": "set to zero"}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Removes(Protocol):
    """A network on pairs of prompts that can run without groups of its parts, as `Wiring` can."""

    @property
    def parts(self) -> Sequence[str]: ...
    @property
    def ablation(self) -> str: ...
    @property
    def whole_B(self) -> np.ndarray: ...
    @property
    def nothing_B(self) -> np.ndarray: ...
    def without(self, groups: Sequence[Sequence[str]], /) -> np.ndarray: ...


class Interval(NamedTuple):
    """A mean over prompts with the half width of its interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        is_rounding = self.half_width <= ROUNDING * abs(self.mean)
        return with_error(self.mean, None if is_rounding else self.half_width)


class Joint(NamedTuple):
    """The effect of removing a group at once, beside those of its parts.

    Attributes:
        name: the name of the group.
        parts: its parts.
        together: what the score loses without all of them.
        singles: the sum of what it loses without each of them alone.
        surplus: together - singles, of each prompt. Above 0 the parts replace each other
            (redundancy); below 0 they are needed for one thing, which is lost without any of them,
            or they offset each other, if `together` is small.
    """

    name: str
    parts: tuple[str, ...]
    together: Interval
    singles: Interval
    surplus: Interval

    def __str__(self) -> str:
        return f"{self.name}: together {self.together}, one by one {self.singles} in sum"


class Spare(NamedTuple):
    """The number of parts of a group that can go at once.

    Attributes:
        name: the name of the group.
        parts: its parts.
        spare: the largest number such that any so many parts can go; None if undecided, or if all
            can go together although fewer cannot, because they offset each other.
        is_exact: whether all choices were tried, or only those of a greedy search.
        is_each_needed: whether the score falls without any single one of them.
        together: what the score loses without all of them.
        ablation: how parts were removed.
        needed: the smallest sets of which one part is needed, if all choices are decided.
        is_which_known: whether they are.
    """

    name: str
    parts: tuple[str, ...]
    spare: int | None
    is_exact: bool
    is_each_needed: bool
    together: Interval
    ablation: str
    needed: tuple[tuple[str, ...], ...] = ()
    is_which_known: bool = False

    @property
    def not_needed(self) -> tuple[str, ...]:
        """The parts that can go whatever else goes, if all choices are decided."""
        if not self.is_which_known:
            return ()
        return tuple(part for part in self.parts if not any(part in s for s in self.needed))

    @property
    def sentence(self) -> str:
        """The finding in words, "" if undecided."""
        if self.is_which_known and self.needed and not self._is_symmetric:
            return self._which_sentence
        if self.spare is None:
            return ""
        name, n_parts = self.name, len(self.parts)
        everything = "both" if n_parts == 2 else f"all {_number(n_parts)}"
        if self.spare == n_parts:
            return f"{everything.capitalize()} of {name} can go together."
        how = HOW_REMOVED[self.ablation]
        lost = f"without {everything} ({how}) the score falls by {self.together}"
        which = "Any" if self.is_exact else "The least missed"
        if self.spare == 0:
            word = "Each" if self.is_each_needed else "At least one"
            return f"{word} of {name} is needed; {lost}."
        number = _number(self.spare)
        if self.spare == n_parts - 1:
            first = "Either" if self.is_exact and n_parts == 2 else f"{which} {number}"
            return f"{first} of {name} can go, but not {everything}; {lost}."
        no_more = "but no more"
        if not self.is_exact:
            no_more = f"and a greedy search found no {_number(self.spare + 1)} that can"
        return f"{which} {number} of {name} can go, {no_more}; {lost}."

    @property
    def _is_symmetric(self) -> bool:
        """Whether it is all the same which parts go, so that their number says everything."""
        size = len(self.needed[0])
        return len(self.needed) == math.comb(len(self.parts), size)

    @property
    def _which_sentence(self) -> str:
        """Which parts are needed, and of which sets one part is."""
        clauses = []
        if self.not_needed:
            verb = "is" if len(self.not_needed) == 1 else "are"
            clauses.append(f"{_named(self.not_needed)} {verb} not needed")
        alone = tuple(parts[0] for parts in self.needed if len(parts) == 1)
        if alone:
            clauses.append(f"{_named(alone)} {'is' if len(alone) == 1 else 'are'} needed")
        several = [parts for parts in self.needed if len(parts) > 1]
        members = tuple(part for part in self.parts if any(part in s for s in several))
        if several and len(several) == math.comb(len(members), len(several[0])):
            # Any choice of so many of them is one too many.
            n_needed = len(members) - len(several[0]) + 1
            clauses.append(f"of {_named(members)} {_number(n_needed)} {_is(n_needed)} needed")
        else:
            clauses += [f"of {_named(parts)} one is needed" for parts in several]
        how = HOW_REMOVED[self.ablation]
        everything = "both" if len(self.parts) == 2 else f"all {_number(len(self.parts))}"
        text = "; ".join(clauses)
        return (
            f"Of {self.name}, {text}; without {everything} ({how}) the score falls by "
            f"{self.together}."
        )


def _is(n: int) -> str:
    return "is" if n == 1 else "are"


def _named(parts: Sequence[str]) -> str:
    """Parts in a sentence: "heads 1 and 2", or addresses if they are not heads of one block."""
    found = [re.fullmatch(r"(.*)/head_(\d+)", part) for part in parts]
    names = [*parts]
    start = ""
    if all(found) and len({match[1] for match in found if match}) == 1:
        names = [match[2] for match in found if match]
        start = "head " if len(parts) == 1 else "heads "
    if len(names) == 1:
        return start + names[0]
    return f"{start}{', '.join(names[:-1])} and {names[-1]}"


def default_groups(network: Removes) -> dict[str, tuple[str, ...]]:
    """Returns the heads of each block, all heads, all MLPs, and each whole block, by name."""
    parts = network.parts
    heads = [part for part in parts if "/head_" in part]
    groups: dict[str, list[str]] = {}
    for part in parts:
        found = re.match(r"(?:.*/)?block_(\d+)/", part)
        if found is None:
            continue
        if part in heads:
            groups.setdefault(f"the heads of block {found[1]}", []).append(part)
        groups.setdefault(f"block {found[1]}", []).append(part)
    groups[ALL_HEADS] = heads
    groups[ALL_MLPS] = [part for part in parts if part not in heads and "mlp" in part]
    return {name: tuple(members) for name, members in groups.items() if len(members) > 1}


def smallest_loss(network: Removes, margin: float = MARGIN) -> float:
    """The loss below which parts count as unnecessary, in the unit of the score."""
    return margin * abs(float((network.whole_B - network.nothing_B).mean()))


def joint_effects(
    network: Removes, groups: Mapping[str, Sequence[str]] | None = None
) -> tuple[Joint, ...]:
    """Measures groups of parts, by default those of `default_groups`.

    Costs one run of the network for each group and for each part.
    """
    groups = default_groups(network) if groups is None else groups
    return tuple(
        Joint(
            *(name, tuple(groups[name]), _interval(together_B), _interval(sum_B)),
            _interval(together_B - sum_B),
        )
        for name, (together_B, sum_B) in losses(network, groups).items()
    )


def losses(
    network: Removes,
    groups: Mapping[str, Sequence[str]],
    alone: Mapping[str, np.ndarray] | None = None,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns {group: (what each prompt loses without it, the sum of the losses without one part)}.

    Costs one run of the network for each group and for each part that `alone` does not have.

    Args:
        network: the network and the prompts.
        groups: the parts of each group.
        alone: {part: what each prompt loses without it}, as far as it is known.
    """
    alone = dict(alone or {})
    checked = {name: _parts(network, name, members) for name, members in groups.items()}
    unknown = sorted({part for members in checked.values() for part in members} - {*alone})
    losses_CxB = _losses(network, [*checked.values(), *((part,) for part in unknown)])
    alone |= dict(zip(unknown, losses_CxB[len(checked) :], strict=True))
    return {
        name: (together_B, np.sum([alone[part] for part in members], 0))
        for (name, members), together_B in zip(checked.items(), losses_CxB, strict=False)
    }


def spare(
    network: Removes,
    parts: Sequence[str],
    *,
    name: str = "the group",
    margin: float = MARGIN,
    budget: int = BUDGET,
    level: float = LEVEL,
) -> Spare:
    """Finds how many parts of a group can go at once, whichever they are.

    A choice can go if the interval of its loss lies below the margin, and cannot if it lies above.
    All choices are tried while the budget lasts: a group of n parts has 2^n. Beyond it the parts
    leave greedily, the least missed first, which finds some that can go but not that any can.

    Args:
        network: the network, the prompts and the ablation.
        parts: two or more parts, such as "block_1/attn/head_0".
        name: of the group, in the sentence.
        margin: the loss that does not count, as a share of what all edges add to the score.
        budget: the largest number of runs.
        level: of the intervals of all choices together. Several groups share 5 % of errors with
            1 - .05 / groups.
    """
    check_range("budget", budget, 1)
    check_range("margin", margin, 0, 1)
    parts = _parts(network, name, parts)
    border = smallest_loss(network, margin)
    sizes = range(1, len(parts) + 1)
    is_exact = 2 ** len(parts) - 1 <= budget
    choices = (
        {size: [*combinations(parts, size)] for size in sizes}
        if is_exact
        else _greedy(network, parts, budget)
    )
    error_of_size = (1 - level) / len(choices)
    every = [choice for members in choices.values() for choice in members]
    losses_of = iter(_losses(network, every))
    losses_CxB = {size: [next(losses_of) for _ in members] for size, members in choices.items()}
    found = {
        size: [_interval(loss_B, 1 - error_of_size) for loss_B in members]
        for size, members in losses_CxB.items()
    }
    together = _interval(_losses(network, [parts])[0])
    can_go = 0
    for size, losses_of_size in found.items():
        if not all(loss.mean + loss.half_width < border for loss in losses_of_size):
            break
        can_go = size
    is_each_needed = all(loss.mean - loss.half_width > border for loss in found[1])
    is_decided = can_go == len(parts)
    # Parts that offset each other are missed one by one, but not together.
    if can_go + 1 in found and together.mean - together.half_width > border:
        # The largest of so many losses counts, so each of them has its share of the error.
        more = losses_CxB[can_go + 1]
        worst = max(_interval(loss_B, 1 - error_of_size / len(more)) for loss_B in more)
        is_decided = worst.mean - worst.half_width > border
    needed = _smallest_needed(choices, losses_CxB, border, error_of_size) if is_exact else None
    if needed and not together.mean - together.half_width > border:
        needed = None  # parts that offset each other: some are missed, but not all together
    return Spare(
        name=name,
        parts=parts,
        spare=can_go if is_decided else None,
        is_exact=is_exact,
        is_each_needed=is_each_needed,
        together=together,
        ablation=network.ablation,
        needed=tuple(needed or ()),
        is_which_known=needed is not None,
    )


def _smallest_needed(
    choices: Mapping[int, Sequence[tuple[str, ...]]],
    losses_CxB: Mapping[int, Sequence[np.ndarray]],
    border: float,
    error_of_size: float,
) -> list[tuple[str, ...]] | None:
    """The smallest choices that cannot go, or None if an interval does not decide about one.

    Whatever contains such a choice is not asked for.
    """
    needed: list[tuple[str, ...]] = []
    for size, of_size in choices.items():
        for choice, loss_B in zip(of_size, losses_CxB[size], strict=True):
            if any(set(smaller) < set(choice) for smaller in needed):
                continue
            loss = _interval(loss_B, 1 - error_of_size)
            if loss.mean + loss.half_width < border:
                continue
            # Each choice that is said to be needed has its share of the error.
            loss = _interval(loss_B, 1 - error_of_size / len(of_size))
            if loss.mean - loss.half_width <= border:
                return None
            needed.append(choice)
    return needed


def _number(n: int) -> str:
    return NUMBERS[n] if n < len(NUMBERS) else str(n)


def _greedy(
    network: Removes, parts: Sequence[str], budget: int
) -> dict[int, list[tuple[str, ...]]]:
    """Returns for each number of parts the choice that a greedy search removes."""
    removed: tuple[str, ...] = ()
    choices: dict[int, list[tuple[str, ...]]] = {}
    runs = 0
    while len(removed) < len(parts):
        rest = [part for part in parts if part not in removed]
        runs += len(rest)
        if runs > budget:
            break
        losses_CxB = _losses(network, [(*removed, part) for part in rest])
        removed = (*removed, rest[int(losses_CxB.mean(1).argmin())])
        choices[len(removed)] = [removed]
    if not choices:
        raise UserError(
            f"a budget of {budget} runs is too small for {len(parts)} parts: give at least "
            f"{len(parts)}."
        )
    return choices


def _losses(network: Removes, removed: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns what the score loses without each of some groups, (C, B)."""
    return network.whole_B - network.without(removed)


def _parts(network: Removes, name: str, parts: Sequence[str]) -> tuple[str, ...]:
    """Returns the parts of a group after a check of their names."""
    known = network.parts
    if isinstance(parts, str):
        raise UserError(f"{name} must be a sequence of parts, got the string {parts!r}.")
    for part in parts:
        if part not in known:
            raise UserError(
                f"the network has no part {part!r}.{did_you_mean(part, known)} Its parts look "
                f"like: {', '.join(known[:2])}."
            )
    if twice := sorted({part for part in parts if list(parts).count(part) > 1}):
        raise UserError(f"{name} has {twice[0]} twice: name each part once.")
    if len(parts) < 2:
        raise UserError(f"{name} needs two parts or more, got {len(parts)}: no head is left.")
    return tuple(parts)


def _interval(loss_B: np.ndarray, level: float = LEVEL) -> Interval:
    mean, sem = mean_and_sem([float(x) for x in loss_B])
    if len(loss_B) < 2:
        raise UserError("an interval over prompts needs two pairs of prompts or more, got one.")
    return Interval(mean, quantile(len(loss_B) - 1, level) * sem)
