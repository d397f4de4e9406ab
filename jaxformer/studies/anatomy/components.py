"""Decides which effects inside a trained network are real, and states the largest of them.

An effect is decided if its corrected p value is below 5 % and its 95 % interval excludes 0. The
correction is for the number of all comparisons of the report. Sentences state the decided effects
of one method, the most direct one that was used. A sentence also gives a decided effect of the
other sign that another method found for the same part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.core.text_format import with_error
from jaxformer.interp.mechanisms import REPLACE
from jaxformer.stats.differences import LEVEL
from jaxformer.stats.multiplicity import benjamini_hochberg
from jaxformer.studies.anatomy.effects import Effect
from jaxformer.studies.anatomy.inside import METHODS, Inside

# Sentences state effects of these methods only. The most direct method is first.
STATED = ("mean ablation", "resampling", "patching", "direct")
VERBS = {
    "mean ablation": "replaced by its mean",
    "resampling": "taken from another prompt",
    "patching": "patched into the corrupted prompt",
    "direct": "read at the output",
    "zero ablation": "set to zero",
}
# Methods that may notice a part that mean ablation does not, and what that says about it.
OTHERS_NOTICE = {
    "resampling": "its mean does as well, or something steps in",
    "zero ablation": "its mean is all that the network needs of it",
}
FEW_PROMPTS = 0.5  # a part that matters on fewer of the prompts is said to
LEAST_PROMPTS, FAIR_SHARE = 3, 0.25  # the prompts that it takes, and what counts on one
FAR = 0.2  # a number below this share of another differs much from it
MAX_PROMPTS = 6  # the prompts whose attention is shown
MAX_PARTS = 3  # at most so many components, and so many heads, get a sentence


class DecidedEffect(NamedTuple):
    """An effect with its corrected p value."""

    effect: Effect
    q: float  # the p value after correction

    @property
    def is_decided(self) -> bool:
        return self.q < 1 - LEVEL and abs(self.effect.value) > self.effect.half_width


def decide(effects: Sequence[Effect], other_p_values: Sequence[float] = ()) -> list[DecidedEffect]:
    """Returns the effects with their corrected p values.

    Args:
      effects: the effects; a nan p value, of a single prompt, decides nothing.
      other_p_values: p values of the other comparisons of the report, which are corrected too.
    """
    tested = [i for i, effect in enumerate(effects) if not math.isnan(effect.p_value)]
    others = [p for p in other_p_values if not math.isnan(p)]
    corrected = benjamini_hochberg([*(effects[i].p_value for i in tested), *others])
    q_values = [math.nan] * len(effects)
    for i, q in zip(tested, corrected[: len(tested)], strict=True):
        q_values[i] = q
    return [DecidedEffect(effect, q) for effect, q in zip(effects, q_values, strict=True)]


def sentences(inside: Inside, decided: Sequence[DecidedEffect]) -> list[tuple[str, Effect]]:
    """Returns a sentence for each of the parts with the largest decided effects.

    Parts whose effects may all be smaller than `inside.smallest` get none: with many prompts a
    ten-thousandth of a nat differs from 0, but it is nothing that the network does. A part that
    only another method notices keeps its sentence, which names that method.

    Returns:
      (sentence, the effect that it states)
    """
    effects = [d.effect for d in decided if d.effect.method in METHODS]
    used_methods = {effect.method for effect in effects}
    method = next((name for name in STATED if name in used_methods), None)
    shown = [d.effect for d in decided if d.is_decided and d.effect.method == method]
    noticed = {
        d.effect.part
        for d in decided
        if d.is_decided and abs(d.effect.value) - d.effect.half_width > inside.smallest
    }
    shown = [effect for effect in shown if effect.part in noticed]
    if method == "mean ablation":  # a part that does as much in a null says nothing
        shown = [
            effect
            for effect in shown
            if abs(effect.value) - effect.half_width > inside.certain_null(effect.part)
        ]
    largest = _largest_by_sign([d.effect for d in decided if d.is_decided])
    by_method = {(effect.part, effect.method): effect for effect in effects}
    stated: list[Effect] = []
    for is_head in (False, True):
        chosen = [effect for effect in shown if ("head_" in effect.part) == is_head]
        chosen.sort(key=lambda effect: -abs(effect.value))
        stated += chosen[:MAX_PARTS]
    found = []
    for effect in stated:
        text = _sentence(effect, inside, largest) + _on_few_prompts(effect, inside)
        found.append((f"{text}{_other_methods(effect, inside, by_method)}.", effect))
    said = {effect.part for effect in stated}
    if method == "mean ablation":
        found += _unnoticed(inside, decided, by_method, said)
    return found


def _on_few_prompts(effect: Effect, inside: Inside) -> str:
    """Which prompts carry an effect, if they are few; "" otherwise."""
    change_B = inside.changes.of_first(effect.part, effect.method)
    if change_B is None:
        return ""
    is_carried_B = _carried(change_B, inside.smallest)
    n_prompts = int(is_carried_B.sum())
    if not LEAST_PROMPTS <= n_prompts < FEW_PROMPTS * len(change_B):
        return ""
    size = float(np.abs(change_B[is_carried_B].mean()))
    return f" (on {n_prompts} of {len(change_B)} prompts, {size:.2g} each)"


def _carried(change_B: np.ndarray, smallest: float) -> np.ndarray:
    """The prompts on which a part matters: a fair share of what it does anywhere."""
    most = float(np.quantile(np.abs(change_B), 0.95))
    return np.abs(change_B) > max(smallest, FAIR_SHARE * most)


def _unnoticed(
    inside: Inside,
    decided: Sequence[DecidedEffect],
    by_method: Mapping[tuple[str, str], Effect],
    said: set[str],
) -> list[tuple[str, Effect]]:
    """Sentences about parts that the mean over prompts of mean ablation does not notice.

    Either few prompts carry the effect, or only another method has one.
    """
    found: list[tuple[str, Effect]] = []
    for effect in [d.effect for d in decided if d.effect.method == "mean ablation"]:
        change_B = inside.changes.of_first(effect.part, effect.method)
        if effect.part in said or change_B is None:
            continue
        is_carried_B = _carried(change_B, inside.smallest)
        is_few = LEAST_PROMPTS <= is_carried_B.sum() < FEW_PROMPTS * len(change_B)
        is_one_sign = (change_B[is_carried_B] > 0).all()
        is_quiet = np.abs(change_B[~is_carried_B]).max(initial=0.0) < inside.smallest
        if is_few and is_one_sign and is_quiet:
            said = said | {effect.part}
            found.append(
                (_sentence(effect, inside, {}) + _on_few_prompts(effect, inside) + ".", effect)
            )
    for row in decided:
        effect = row.effect
        by_mean = by_method.get((effect.part, "mean ablation"))
        if effect.method not in OTHERS_NOTICE or effect.part in said or by_mean is None:
            continue
        is_noticed = row.is_decided and abs(effect.value) - effect.half_width > inside.smallest
        if is_noticed and abs(by_mean.value) + by_mean.half_width < inside.smallest:
            said = said | {effect.part}
            reason = f"; mean ablation {_signed(by_mean)}: {OTHERS_NOTICE[effect.method]}"
            found.append((f"{_sentence(effect, inside, {})}{reason}.", effect))
    found.sort(key=lambda item: -abs(item[1].value))
    return found[:MAX_PARTS]


def _largest_by_sign(effects: Sequence[Effect]) -> dict[tuple[str, bool], Effect]:
    """Returns {(part, whether negative): the largest effect of this sign}."""
    by_size = sorted(effects, key=lambda effect: abs(effect.value))
    # Of several effects with one key, the dict keeps the last, which is the largest.
    return {(effect.part, effect.value < 0): effect for effect in by_size}


def _sentence(effect: Effect, inside: Inside, largest: Mapping[tuple[str, bool], Effect]) -> str:
    # Patching and the direct contribution add the part, the other methods take it away.
    adds_part = effect.method in ("patching", "direct")
    verb = "raises" if (effect.value > 0) == adds_part else "lowers"
    # The unit is "log probability (nats)" or "logit of right - wrong".
    score, _, nats = inside.unit.partition(" (")
    if score == "log probability":
        score += " of the right answer"
    size = f"{_size(abs(effect.value), effect)} {nats.removesuffix(')')}".strip()
    name = part_name(effect.part)
    known = []
    if effect.part in inside.labels:
        label, share = inside.labels[effect.part]
        known.append(f"{label}: {share:.0%} of its attention")
    if effect.part in inside.writes:
        label, share = inside.writes[effect.part]
        known.append(f"{label}: {share:.0%} of the tokens that it attends to")
    name += f" ({'; '.join(known)})" if known else ""
    text = f"{name}, {VERBS[effect.method]}, {verb} the {score} by {size}"
    opposite = largest.get((effect.part, effect.value > 0))
    if opposite is not None:
        text += f"; {opposite.method} has the other sign: {_signed(opposite)}"
    return text


def _other_methods(
    effect: Effect, inside: Inside, by_method: Mapping[tuple[str, str], Effect]
) -> str:
    """Names methods whose number differs much from that of mean ablation, with the likely reason.

    The part may do the same in both prompts of a pair, so that an exchange changes nothing; others
    may replace it, so that only a patch shows it, and then they are named; or zero is far from all
    that the network knows.
    """
    if effect.method != "mean ablation":
        return ""
    others = [by_method.get((effect.part, x)) for x in ("resampling", "patching", "zero ablation")]
    resampled, patched, zeroed = others
    size = abs(effect.value)

    def text(other: Effect) -> str:
        return f"{other.method} {_signed(other)}"

    if resampled and patched:
        if all(abs(x.value) + x.half_width < FAR * size for x in (resampled, patched)):
            return (
                f"; {text(resampled)} and {text(patched)}, probably because it does the same in "
                "both prompts of a pair"
            )
        if size + effect.half_width < FAR * (abs(patched.value) - patched.half_width):
            others = [part_name(part) for part in _replacements(effect.part, inside)]
            names = " and ".join(name[0].lower() + name[1:] for name in others)
            because = f", because {names} can replace it" if others else ""
            return f"; {text(patched)}{because}"
    if zeroed and abs(zeroed.value - effect.value) - zeroed.half_width > max(size, inside.smallest):
        return f"; {text(zeroed)}, because the network relies on its mean"
    return ""


def _replacements(part: str, inside: Inside) -> list[str]:
    """The parts that were found to replace a part (`jaxformer.interp.mechanisms`)."""
    for group in inside.mechanisms:
        if group.kind == REPLACE and part in group.parts:
            return [other for other in group.parts if other != part]
    return []


def _size(value: float, effect: Effect) -> str:
    return with_error(value, effect.half_width or None)  # all prompts may be changed equally


def _signed(effect: Effect) -> str:
    return "+" * (effect.value > 0) + _size(effect.value, effect)


def part_name(address: str) -> str:
    """Returns a name for an address, such as "Head 2 of block 1" for "block_1/attn/head_2"."""
    words = address.split("/")
    block = words[0].removeprefix("block_")
    if words[-1].startswith("head_"):
        return f"Head {words[-1].removeprefix('head_')} of block {block}"
    kind = {"attn": "Attention", "mlp": "The MLP"}.get(words[-1], words[-1])
    return f"{kind} of block {block}"
