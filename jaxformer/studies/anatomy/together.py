"""Parts together: effects of groups, what their parts do together, and which of them can go.

Each of two heads that do the same thing can go. So a report of single parts calls both useless,
although the network needs one of them. For every group the table has the loss without all its
parts (mean ablation), and by how much it exceeds the sum of single losses. These two numbers are no
mechanism yet: `jaxformer.interp.mechanisms` names one where two scores and two ablations agree, and
names it by the parts that matter.

Groups are the heads of each block, each block, all heads, all MLPs, and pairs of parts.
"""

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp import groups, mechanisms
from jaxformer.interp.answers import Answers
from jaxformer.interp.components import Measured
from jaxformer.interp.groups import Interval, Spare
from jaxformer.interp.mechanisms import MEAN, Group
from jaxformer.interp.one_block import read
from jaxformer.interp.removal import Removal
from jaxformer.models.model import take_positions
from jaxformer.stats.differences import LEVEL
from jaxformer.studies.anatomy.effects import Changes, Effect, effects_of, interval

TOGETHER, SURPLUS = "together", "together beyond the sum"
MAX_PAIRS = 300  # with more, only pairs of the strongest parts
MAX_PAIRED = 12  # so many parts
MAX_SENTENCES = 3  # about which parts can go, and about each kind of mechanism
MAX_UNCLEAR = 2  # about groups whose scores or ablations disagree
MAX_SPARE, MAX_EXACT = 4, 8  # groups of which all choices are tried; their largest size


@dataclasses.dataclass(frozen=True)
class Together:
    """The groups of one network.

    Attributes:
        groups: the changes of groups that every training of the network has: blocks, all heads.
        pairs: the changes of pairs, whose heads exist in this network only.
        spares: {group: how many of its parts can go}.
        smallest: the loss that counts as none: 5 % of what the network knows about its prompts.
        mechanisms: what parts do together, in this network only.
    """

    groups: Changes
    pairs: Changes
    spares: dict[str, Spare]
    smallest: float
    mechanisms: tuple[Group, ...] = ()


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
    found: list[Group] = []
    if not first:
        chosen = mechanisms.strongest_pairs(
            removal.parts, _strength(singles), MAX_PAIRS, MAX_PAIRED
        )
        by_name = {pair_name(pair): pair for pair in chosen if pair not in groups_by_name.values()}
        pairs = _changes(removal, by_name, alone)
        found = mechanisms.find(
            views_of(removal.measured),
            removal.parts,
            chosen,
            primary=primary_score(removal.measured),
        )
    smallest = groups.smallest_loss(removal)
    candidates: dict[str, tuple[str, ...]] = {}
    for name, parts in groups_by_name.items():
        is_heads = all("/head_" in part for part in parts)
        if is_heads and parts not in candidates.values():  # a block without MLP is its heads
            candidates[name] = parts
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
    return Together(changes, pairs, spares, smallest, tuple(found))


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


def views_of(measured: Measured) -> mechanisms.View:
    """A network by the ablation that removes its parts and by the score that it gets.

    Where the prompts have no wrong answer, the logit difference is that to the wrong token with the
    highest logit in the clean prompt.
    """

    @functools.cache
    def answers_of(score: str) -> Answers:
        answers = measured.answers
        if score == mechanisms.LOG:
            return answers._replace(against_BxK=-jnp.ones_like(answers.against_BxK))
        if bool((answers.against_BxK >= 0).all()):
            return answers
        return answers._replace(against_BxK=_strongest_wrong(measured))

    @functools.cache
    def view(ablation: str, score: str) -> Removal:
        scored = copy.copy(measured)
        scored.answers = answers_of(score)
        return Removal(scored, ablation)

    return view


def _strongest_wrong(measured: Measured) -> jax.Array:
    """The token other than the right one with the highest logit at each scored position, (B, K)."""
    position_BxK, target_BxK, *_ = measured.answers
    states_BxKxN = take_positions(measured.clean.states[-1], position_BxK)
    last_block = measured.blocks.of_block(measured.n_blocks - 1)
    logits_BxKxV = read(*last_block, states_BxKxN)
    is_right_BxKxV = jax.nn.one_hot(target_BxK, logits_BxKxV.shape[-1], dtype=bool)
    return jnp.where(is_right_BxKxV, -jnp.inf, logits_BxKxV).argmax(-1)


def primary_score(measured: Measured) -> str:
    """The score of the report: the log probability where prompts have no wrong answer."""
    has_wrong = bool((measured.answers.against_BxK >= 0).all())
    return mechanisms.LOGITS if has_wrong else mechanisms.LOG


def sentences(
    groups_found: Sequence[Group],
    spares: Sequence[Spare],
    *,
    score: str,
    n_networks: int = 1,
) -> list[str]:
    """Sentences about which parts can go, then about what parts do together.

    Args:
        groups_found: the groups of `mechanisms.find`, of the first network.
        spares: how many parts of a group can go.
        score: the score of the report, "log probability" or "logit difference".
        n_networks: the trainings of the network over which `spares` were combined.
    """
    texts = [_in_each(spare.sentence, n_networks) for spare in _worth_saying(spares)]
    texts = texts[:MAX_SENTENCES]
    for kind in (mechanisms.REPLACE, mechanisms.OFFSET, mechanisms.DIFFERENT, mechanisms.ONE_THING):
        texts += _largest_of_kind(groups_found, kind, score)
    texts += _largest_of_kind(groups_found, mechanisms.ADD_UP, score)
    unclear = [group for group in groups_found if group.disagreement]
    unclear.sort(key=lambda group: -abs(group.views[MEAN, score].together.mean))
    return [*texts, *(_numbers_alone(group) for group in unclear[:MAX_UNCLEAR])]


def _largest_of_kind(groups_found: Sequence[Group], kind: str, score: str) -> list[str]:
    of_kind = [group for group in groups_found if group.kind == kind]
    of_kind.sort(key=lambda group: -abs(group.views[MEAN, score].together.mean))
    return [group_sentence(group, score) for group in of_kind[:MAX_SENTENCES]]


def _worth_saying(spares: Sequence[Spare]) -> list[Spare]:
    """Leaves out what sentences about single heads and single blocks already say."""
    useful = [spare for spare in spares if spare.sentence and (spare.spare or spare.is_each_needed)]
    of_blocks = [spare for spare in useful if spare.name != groups.ALL_HEADS]
    return of_blocks or useful


def group_sentence(group: Group, score: str) -> str:
    """A sentence on the parts of a group together, with the numbers of the report's score."""
    names = _and([part_phrase(part) for part in group.parts])
    subject = names[0].upper() + names[1:]
    unit = " nats" if score == mechanisms.LOG else ""
    found = group.views[MEAN, score]
    everything = "both" if len(group.parts) == 2 else "all of them"
    loss = str(found.together)
    begin = f"{subject} {group.kind}"
    if group.kind == mechanisms.REPLACE:
        alone = "but not without one of them"
        if found.in_sum >= found.margin:
            begin = f"{subject} partly {group.kind}"
            alone = f"but only by {found.in_sum:.2g} in sum without each alone"
        text = f"{begin}: without {everything} the score falls by {loss}{unit}, {alone}"
        if group.main:
            (other,) = (part for part in group.parts if part != group.main)
            text += f". {_capital(part_phrase(group.main))} does the work, and "
            text += f"{part_phrase(other)} steps in where it is gone"
        return f"{text}."
    if group.kind == mechanisms.ONE_THING:
        return (
            f"{begin}: without {everything} the score falls by {loss}{unit}, not by "
            f"{found.in_sum:.2g} in sum without each alone."
        )
    if group.kind == mechanisms.OFFSET:
        return (
            f"{begin}: each alone changes the score of a prompt by {found.least_change:.2g}{unit} "
            f"or more on average, {everything} by {found.change:.2g}."
        )
    # Effects add up in logits only.
    found = group.views[MEAN, mechanisms.LOGITS]
    if group.kind == mechanisms.ADD_UP:
        each = _and([f"{single.mean:.2g}" for single in found.singles])
        return (
            f"{subject} add up: without {everything} the logit difference falls by "
            f"{found.together.mean:.2g}, without each alone by {each}."
        )
    each = [
        f"{part_phrase(part)} is worth {size:.2g} on {n} of {found.n_prompts} prompts"
        for part, size, n in zip(group.parts, found.on_them, found.prompts, strict=True)
    ]
    return f"{begin}: in logits, {_and(each)}."


def _numbers_alone(group: Group) -> str:
    """The numbers of a group whose views disagree, and why they do."""
    names = _capital(_and([part_phrase(part) for part in group.parts]))
    everything = "both" if len(group.parts) == 2 else "all of them"
    numbers = []
    for score, unit in ((mechanisms.LOG, " nats"), (mechanisms.LOGITS, "")):
        found = group.views[MEAN, score]
        numbers.append(
            f"the {score} falls by {found.together.mean:.2g}{unit} ({found.in_sum:.2g} in sum "
            "without each alone)"
        )
    return f"{names}: without {everything} {' and '.join(numbers)}; {group.disagreement}."


def _and(texts: Sequence[str]) -> str:
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


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


def pair_name(pair: Sequence[str]) -> str:
    return " and ".join(map(part_phrase, pair))


def part_phrase(address: str) -> str:
    """Returns a name in the middle of a sentence, such as "head 2 of block 1"."""
    block, kind, *head = address.split("/")
    place = f"of block {block.removeprefix('block_')}"
    if head:
        return f"head {head[0].removeprefix('head_')} {place}"
    return f"{'attention' if kind == 'attn' else 'the MLP'} {place}"
