"""Parts together: effects of groups, and how many parts of a group can go at once.

Each of two heads that do the same thing can go. So a report of single parts calls both useless,
although the network needs one of them. For every group the report has the loss without all its
parts (mean ablation), and by how much it exceeds the sum of single losses:

    above 0    redundancy: the parts replace each other
    below 0    the parts do one thing, which is lost without any of them; a group that loses less
               together than one of its parts offsets itself instead, and gets no sentence

Groups are the heads of each block, each block, all heads, all MLPs, and pairs of parts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from jaxformer.core.text_format import with_error
from jaxformer.interp import groups
from jaxformer.interp.groups import Interval, Spare
from jaxformer.interp.removal import Removal
from jaxformer.stats.differences import LEVEL
from jaxformer.studies.anatomy.effects import Changes, Effect, effects_of, interval

TOGETHER, SURPLUS = "together", "together beyond the sum"
MAX_PAIRS = 300  # with more, only pairs of the strongest parts
MAX_PAIRED = 12  # so many parts
MAX_SENTENCES = 3  # about groups, and as many about pairs
MAX_SPARE, MAX_EXACT = 4, 8  # groups of which all choices are tried; their largest size


@dataclasses.dataclass(frozen=True)
class Together:
    """The groups of one network.

    Attributes:
        groups: the changes of groups that every training of the network has: blocks, all heads.
        pairs: the changes of pairs, whose heads exist in this network only.
        spares: {group: how many of its parts can go}.
        smallest: the loss that counts as none: 5 % of what the network knows about its prompts.
    """

    groups: Changes
    pairs: Changes
    spares: dict[str, Spare]
    smallest: float


def measure(removal: Removal, singles: Changes, first: Together | None) -> Together:
    """Measures the groups of a network.

    Args:
        removal: the network.
        singles: the changes of single parts. Pairs of the weakest may be left out, and where mean
            ablation was measured it is not repeated.
        first: the groups of the first network, if this is another one; it is asked for the same
            groups and no pairs, since its heads are others.
    """
    groups_by_name = groups.default_groups(removal)
    alone = {
        part: change_B for (part, method), change_B in singles.items() if method == "mean ablation"
    }
    changes = _changes(removal, groups_by_name, alone)
    pairs: Changes = {}
    if not first:
        by_name = _pairs(removal.parts, _strength(singles), groups_by_name)
        pairs = _changes(removal, by_name, alone)
    smallest = groups.smallest_loss(removal)
    candidates = {
        name: parts
        for name, parts in groups_by_name.items()
        if all("/head_" in part for part in parts)
    }
    if first:
        names: Sequence[str] = list(first.spares)
    else:
        losses = {name: changes[name, TOGETHER].mean() for name in candidates}
        # A group of many heads has too many choices, and its pairs say what a search would.
        small = [name for name, parts in candidates.items() if len(parts) <= MAX_EXACT]
        by_loss = sorted(small, key=lambda name: -losses[name])
        names = [name for name in by_loss if losses[name] > smallest][:MAX_SPARE]
    level = 1 - (1 - LEVEL) / max(len(candidates), 1)
    spares = {
        name: groups.spare(removal, candidates[name], name=name, level=level) for name in names
    }
    return Together(changes, pairs, spares, smallest)


def combined(networks: Sequence[Together], tolerance: float) -> tuple[list[Effect], list[Spare]]:
    """The effects of groups over several trainings, and what can go in each of them."""
    effects = effects_of([network.groups for network in networks], tolerance)
    effects += effects_of([networks[0].pairs], tolerance)
    spares = []
    for name, spare in networks[0].spares.items():
        numbers = {network.spares[name].spare for network in networks}
        together_NxB = np.stack([network.groups[name, TOGETHER] for network in networks])
        together = Interval(*interval(together_NxB)[:2])
        is_needed = all(network.spares[name].is_each_needed for network in networks)
        spares.append(
            spare._replace(
                spare=numbers.pop() if len(numbers) == 1 else None,
                is_each_needed=is_needed,
                together=together,
            )
        )
    return effects, spares


def sentences(
    effects: Sequence[Effect],
    spares: Sequence[Spare],
    *,
    smallest: float,
    unit: str,
    n_networks: int = 1,
) -> list[str]:
    """Sentences about groups, then about pairs, the largest numbers first.

    Args:
        effects: the decided effects, of groups and of single parts.
        spares: how many parts of a group can go.
        smallest: the loss that counts as none.
        unit: "nats", or "" for differences of logits.
        n_networks: the trainings of the network over which `spares` were combined.
    """
    together = {effect.part: effect for effect in effects if effect.method == TOGETHER}
    alone = {part_phrase(e.part): e.value for e in effects if e.method == "mean ablation"}
    stated = _worth_saying(spares)
    texts = [_in_each(spare.sentence, n_networks) for spare in stated]
    said = {spare.name for spare in stated}  # more exactly than a sum can
    found: dict[bool, list[str]] = {False: [], True: []}
    by_size = sorted(effects, key=lambda effect: -abs(effect.value))
    # All heads are the last resort: smaller groups say which of them it is.
    for effect in sorted(by_size, key=lambda effect: effect.part == groups.ALL_HEADS):
        group = effect.part
        if effect.method != SURPLUS or group in said or f"the heads of {group}" in said:
            continue
        if group == groups.ALL_HEADS and (texts or found[True]):
            continue
        whole = together.get(group)
        if whole is None or whole.value <= 0 or _explains(effect, whole, alone, smallest):
            continue  # neither do they replace each other, nor do they work for one thing
        if all(_is_beyond(x, smallest) for x in (effect, whole)):
            said.add(group)
            found[" and " in group].append(_sentence(effect, whole, unit))
    return [*texts, *found[False]][:MAX_SENTENCES] + found[True][:MAX_SENTENCES]


def _worth_saying(spares: Sequence[Spare]) -> list[Spare]:
    """Leaves out what sentences about single heads and single blocks already say."""
    useful = [spare for spare in spares if spare.sentence and (spare.spare or spare.is_each_needed)]
    of_blocks = [spare for spare in useful if spare.name != groups.ALL_HEADS]
    return of_blocks or useful


def _is_beyond(effect: Effect, smallest: float) -> bool:
    return abs(effect.value) - effect.half_width > smallest


def _explains(surplus: Effect, together: Effect, alone: Mapping[str, float], small: float) -> bool:
    """Whether one part of a group explains its numbers, so that the parts do nothing together.

    If the group is missed less than one part, the others take back what that one writes. If the sum
    is small because the others work against the answer, nothing replaces anything.

    Args:
        surplus, together: the effects of the group.
        alone: {part as in a sentence: what the score loses without it}, as far as it is decided.
        small: the loss that counts as none.
    """
    largest = max([0.0, *(alone[part] for part in alone if _is_in(part, surplus.part))])
    if surplus.value > 0:
        return together.value < largest + small
    if " and " in surplus.part:  # one of two is missed at least as much as both on average
        largest = max(largest, (together.value - surplus.value) / 2)
    return together.value + together.half_width < largest


def _is_in(part: str, group: str) -> bool:
    """Whether a part belongs to a group, both as in a sentence."""
    if " and " in group:
        return part in group.split(" and ")
    is_head = part.startswith("head ")
    if group in (groups.ALL_HEADS, groups.ALL_MLPS):
        return is_head == (group == groups.ALL_HEADS)
    block = group.removeprefix("the heads of ")
    return part.endswith(f" of {block}") and (is_head or block == group)


def _sentence(surplus: Effect, together: Effect, unit: str) -> str:
    """Says that parts replace each other, or that they do one thing."""
    name = f"the parts of {surplus.part}" if surplus.part.startswith("block ") else surplus.part
    name = name[0].upper() + name[1:]
    loss = with_error(together.value, together.half_width or None)
    single = together.value - surplus.value
    is_redundant = surplus.value > 0
    verb = "replace each other" if is_redundant else "are needed for one thing"
    everything = "both" if " and " in surplus.part else "all of them"
    not_only = "but only" if is_redundant else "not"
    text = f"{name} {verb}: without {everything} the score falls by {loss} {unit}".strip()
    return _in_each(
        f"{text}, {not_only} by {single:.2g} in sum without each alone.", together.networks
    )


def _in_each(sentence: str, n_networks: int) -> str:
    """Adds the number of networks to a sentence about several of them."""
    if n_networks < 2:
        return sentence
    return f"{sentence.removesuffix('.')}, over {n_networks} trained networks."


def _changes(
    removal: Removal, members: Mapping[str, Sequence[str]], alone: Mapping[str, np.ndarray]
) -> Changes:
    changes: Changes = {}
    for name, (together_B, sum_B) in groups.losses(removal, members, alone).items():
        changes[name, TOGETHER] = together_B
        changes[name, SURPLUS] = together_B - sum_B
    return changes


def _strength(singles: Changes) -> dict[str, float]:
    """Returns the largest effect of each part by any method.

    Patching counts, because a part that another one replaces has no effect when it is removed.
    """
    strength: dict[str, float] = {}
    for (part, _), change_B in singles.items():
        strength[part] = max(strength.get(part, 0.0), abs(float(change_B.mean())))
    return strength


def _pairs(
    parts: Sequence[str], strength: Mapping[str, float], others: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Returns all pairs that are no group already, or those of the strongest parts."""
    if len(parts) * (len(parts) - 1) // 2 > MAX_PAIRS:
        strongest = sorted(parts, key=lambda part: -strength.get(part, 0.0))[:MAX_PAIRED]
        parts = [part for part in parts if part in strongest]
    pairs = [pair for pair in combinations(parts, 2) if pair not in others.values()]
    return {pair_name(pair): pair for pair in pairs}


def pair_name(pair: Sequence[str]) -> str:
    return " and ".join(map(part_phrase, pair))


def part_phrase(address: str) -> str:
    """Returns a name in the middle of a sentence, such as "head 2 of block 1"."""
    block, kind, *head = address.split("/")
    place = f"of block {block.removeprefix('block_')}"
    if head:
        return f"head {head[0].removeprefix('head_')} {place}"
    return f"{'attention' if kind == 'attn' else 'the MLP'} {place}"
