"""The sentence that states the verdict of a litmus test with its numbers."""

import math
from collections.abc import Mapping

from jaxformer.core.text_format import counted
from jaxformer.core.variants import label
from jaxformer.stats.differences import Number

# Outcome of the litmus test -> sentence. rule.py groups the outcomes to
# verdicts.
NEEDED = "{task} needs attention that looks at the content"
LITMUS = {
    "no interval": "{task} cannot be told: Standard has no interval, which takes two seeds or more "
    "and none that diverged",
    "at chance": "{task} cannot be told at this scale: Standard does not beat the trivial "
    "predictor ({guess})",
    "wide errors": "{task} cannot be told: the error bars hide a difference; take more seeds",
    "not trained": "{task} cannot be told: MixiT scores less than Standard and is {control}",
    "not needed": "{task} does not need attention that looks at the content",
    "helps": "attention that looks at the content helps {task}: MixiT gets {way:.0f} % of the way "
    "from the trivial predictor ({guess}) to Standard",
    "needed": NEEDED,
    "needed, random is enough": f"{NEEDED}, and random queries and keys are enough",
    "needed, random helps": f"{NEEDED}, and random queries and keys go part of the way",
    "needed, must be learned": f"{NEEDED}, and queries and keys must be learned",
}


def litmus(
    task: str,
    outcome: str,
    accuracies: Mapping[str, Number],
    trivial: tuple[str, float],
    seeds: int,
    control: str,
) -> str:
    """Returns the sentence of a litmus test.

    Args:
        task: the name of the task.
        outcome: a key of LITMUS.
        accuracies: the accuracy of each variant.
        trivial: the name and the accuracy of the best trivial predictor.
        seeds: the seeds of Standard.
        control: how MixiT compares with Standard, in the words of `jaxformer.stats.controls`.
    """
    guess, chance = trivial[0].replace("_", " "), trivial[1]
    lead = accuracies["standard"].mean - chance
    way = 100 * (accuracies["mixit"].mean - chance) / lead if lead else 0.0
    sentence = LITMUS[outcome].format(task=task, guess=guess, way=way, control=control)
    scores = ", ".join(
        f"{label(variant)} {100 * score.mean:.1f}{_error(score)} %"
        for variant, score in accuracies.items()
    )
    seeds_text = counted(seeds, "seed")
    return f"{sentence} ({scores}; {guess} {100 * chance:.1f} %; {seeds_text})."


def _error(score: Number) -> str:
    """The standard error in percent; "" if it is unknown, as that of a single seed is."""
    return f" ± {100 * score.error:.1f}" if math.isfinite(score.error) else ""
