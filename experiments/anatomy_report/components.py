"""Decides which effects inside a trained network are real, and states the largest of them.

An effect is decided if its p value, corrected for all comparisons of the report, is below 5 %.
Sentences state the decided effects of one method, the most direct one that was used. A sentence
also gives a decided effect of the other sign that another method found for the same part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.anatomy_report.effect import Effect
from experiments.anatomy_report.inside import Inside
from experiments.ledger.multiplicity import benjamini_hochberg
from experiments.ledger.statistics import LEVEL

# The methods whose effects sentences can state, the most direct first.
STATED = ("mean ablation", "resampling", "patching", "direct")
VERBS = {
    "mean ablation": "replaced by its mean",
    "resampling": "taken from another prompt",
    "patching": "patched into the corrupted prompt",
    "direct": "read at the output",
}
MAX_PROMPTS = 6  # the prompts whose attention is shown
MAX_PARTS = 3  # the components, and the heads, that get a sentence


class DecidedEffect(NamedTuple):
    """An effect with its corrected p value."""

    effect: Effect
    q: float

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

    Returns:
      (sentence, the effect that it states)
    """
    method = next((m for m in STATED if any(d.effect.method == m for d in decided)), None)
    shown = [d for d in decided if d.is_decided and d.effect.method == method]
    largest = _largest_by_sign([d.effect for d in decided if d.is_decided])
    stated: list[Effect] = []
    for is_head in (False, True):
        effects = [d.effect for d in shown if ("head_" in d.effect.part) == is_head]
        effects.sort(key=lambda effect: -abs(effect.value))
        stated += effects[:MAX_PARTS]
    return [(_sentence(effect, inside.unit, largest), effect) for effect in stated]


def _largest_by_sign(effects: Sequence[Effect]) -> dict[tuple[str, bool], Effect]:
    """Returns {(part, whether negative): the largest effect of this sign}."""
    by_size = sorted(effects, key=lambda effect: abs(effect.value))
    return {(effect.part, effect.value < 0): effect for effect in by_size}


def _sentence(effect: Effect, unit: str, largest: Mapping[tuple[str, bool], Effect]) -> str:
    # Patching and the direct contribution add the part, the other methods take it away.
    adds_part = effect.method in ("patching", "direct")
    verb = "raises" if (effect.value > 0) == adds_part else "lowers"
    score, _, nats = unit.partition(" (")
    if score == "log probability":
        score += " of the right answer"
    size = f"{abs(effect.value):.2g} ± {effect.half_width:.1g} {nats.removesuffix(')')}".strip()
    text = f"{part_name(effect.part)}, {VERBS[effect.method]}, {verb} the {score} by {size}"
    if (other := largest.get((effect.part, effect.value > 0))) is not None:
        text += f"; {other.method} has the other sign: {other.value:+.2g} ± {other.half_width:.1g}"
    return f"{text}."


def part_name(address: str) -> str:
    """Returns a name for an address, such as "Head 2 of block 1" for "block_1/attn/head_2"."""
    words = address.split("/")
    block = words[0].removeprefix("block_")
    if words[-1].startswith("head_"):
        return f"Head {words[-1].removeprefix('head_')} of block {block}"
    kind = {"attn": "Attention", "mlp": "The MLP"}.get(words[-1], words[-1])
    return f"{kind} of block {block}"
