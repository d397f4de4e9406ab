"""Measures what each block's attention, MLP and heads do in a network, on pairs of prompts.

    pairs = read_pairs("prompts.tsv", tokenizer)            or pairs_of_task(task)
    inside = measure(model, params, pairs)
    inside.effects                                          an `Effect` for each part and method

The effect of a method is the change of the score, with a positive sign if the part helps:

    mean ablation, resampling     score of the clean prompts - score with the part replaced
    rank 1 %, rank 10 %           score of the clean prompts - score with the part's matrices cut
                                  to this share of their rank
    patching, path patching       score with the clean part - score of the corrupted prompts
    attribution                   the first-order approximation of patching
    direct                        the contribution of the part's output to the score

`jaxformer.interp.components` and `contributions` define the methods.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, one_line
from jaxformer.interp import contributions
from jaxformer.interp.answers import Answers
from jaxformer.interp.blocks import count_blocks
from jaxformer.interp.components import Measured
from jaxformer.stats.differences import LEVEL, mean_and_sem, quantile
from jaxformer.studies.anatomy import layer_facts
from jaxformer.studies.anatomy.layer_facts import KernelFacts, LayerFacts
from jaxformer.studies.anatomy.pairs import PromptPairs

RANKS = {"rank 1 %": 0.01, "rank 10 %": 0.1}  # {method: the share of the rank that is kept}
REPLACING = ("mean ablation", "resampling", "patching", "path patching", "attribution")
METHODS = (*REPLACING, *RANKS, "direct")
# Changes below this share of the largest score are rounding errors.
ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True)
class Effect:
    """The change of a score that one method attributes to one part, with its error over samples.

    Attributes:
        part: the address of the part, such as "block_1/mlp", "block_0/attn",
            "block_0/attn/head_2", or a group such as "queries and keys".
        method: the intervention, such as "mean ablation", "resampling", "patching",
            "path patching", "attribution", "rank 1 %", "rank 10 %", "direct".
        value: the change in the unit of the score; a positive value means that the part helps.
        half_width: the half width of the 95 % interval over samples (Student's t); nan for one.
        samples: the number of prompts or seeds.
        p_value: two-sided, of the hypothesis "no effect"; nan for one sample.
    """

    part: str
    method: str
    value: float
    half_width: float
    samples: int
    p_value: float


@dataclasses.dataclass(frozen=True)
class Inside:
    """The effects of the parts of one network on pairs of prompts.

    Attributes:
        score: the mean score of the clean prompts.
        half_width: the half width of its 95 % interval over pairs; nan for one pair.
        corrupted: the mean score of the corrupted prompts, for the clean prompts' answers.
        corrupted_half_width: the half width of the interval of `corrupted`.
        unit: the name of the score.
        samples: the number of pairs.
        effects: the effect of each part by each method, sorted by method, then by part.
        layers: facts about each block.
        kernels: facts about each matrix, by path.
        left_out: {method: why it is missing}.
    """

    score: float
    half_width: float
    corrupted: float
    corrupted_half_width: float
    unit: str
    samples: int
    effects: tuple[Effect, ...]
    layers: tuple[LayerFacts, ...]
    kernels: dict[str, KernelFacts]
    left_out: dict[str, str]


def measure(
    model: Any,
    params: Any,
    pairs: PromptPairs,
    *,
    methods: Sequence[str] = METHODS,
    heads: bool = True,
    initial: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Inside:
    """Measures the effect of each part on the score, with its error over pairs.

    Args:
        model: a decoder, an encoder, a recall model or a published model.
        params: its parameters.
        pairs: clean and corrupted prompts with their answers.
        methods: some of METHODS.
        heads: whether each head is a part, besides attention and MLP of each block.
        initial: the parameters before training, for the distance from initialisation.
        progress: a function of the number of finished steps and of all steps.

    Raises:
        UserError: for a score that is not finite or that does not depend on the prompts.
    """
    for method in methods:
        check_choice("method", method, METHODS)
    ranks = [method for method in RANKS if method in methods]
    n_passes = len(methods) - len(ranks) + bool(ranks)  # all ranks are measured together
    n_steps = n_passes * count_blocks(model)
    finished = 0

    def advance() -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(min(finished, n_steps), n_steps)

    arrays = pairs.position, pairs.target, pairs.against, pairs.weight
    answers = Answers(*map(jnp.asarray, arrays))
    options = {"lengths": pairs.lengths, "heads": heads, "progress": advance}
    measured = Measured(model, params, pairs.clean, pairs.corrupted, answers, **options)
    clean_B, corrupted_B = (measured.scores(x) for x in (measured.clean, measured.corrupted))
    _check_scores(clean_B, corrupted_B, pairs)
    tolerance = ROUNDING * max(np.abs(clean_B).max(), np.abs(corrupted_B).max(), 1.0)
    effects: list[Effect] = []

    # L blocks, C components of a block (attention, MLP, then heads), B pairs.
    def add(method: str, change_LxCxB: np.ndarray) -> None:
        for block, change_CxB in enumerate(change_LxCxB):
            # Low rank is not measured for heads. Their names are last, so `zip` leaves them out.
            for name, change_B in zip(measured.names[block], change_CxB):
                if name:  # "" stands for the MLP of a block without MLP
                    effects.append(effect_of(name, method, change_B, tolerance))

    left_out = {}
    low_rank: dict[str, np.ndarray] = {}
    if ranks:
        shares = [RANKS[method] for method in ranks]
        low_rank = dict(zip(ranks, measured.low_rank(*shares)))
    for method in [method for method in METHODS if method in methods]:
        if method == "mean ablation":
            add(method, clean_B - measured.mean_ablation())
        elif method == "resampling":
            add(method, clean_B - measured.resampling())
        elif method == "patching":
            add(method, measured.patching() - corrupted_B)
        elif method == "path patching":
            add(method, measured.path_patching() - corrupted_B)
        elif method == "attribution":
            add(method, contributions.attribution(measured))
        elif method in RANKS:
            add(method, clean_B - low_rank[method])
        elif contributions.has_direct(model):
            add(method, contributions.direct(measured))
        else:
            left_out[method] = "the norms of this model have no scale that could be constant"
    return Inside(
        *interval(clean_B)[:2],
        *interval(corrupted_B)[:2],
        unit=pairs.unit,
        samples=len(pairs),
        effects=tuple(effects),
        layers=layer_facts.of_layers(measured, interval),
        kernels=layer_facts.of_kernels(params, initial),
        left_out=left_out,
    )


def effect_of(part: str, method: str, change_B: np.ndarray, tolerance: float = 0.0) -> Effect:
    """Returns the mean change over pairs as an effect.

    Args:
        part: the name of the part.
        method: the name of the method.
        change_B: the change of the score of each pair.
        tolerance: changes up to this size are rounding errors and count as 0.
    """
    change_B = np.where(np.abs(change_B) <= tolerance, 0.0, change_B)
    mean, half_width, p_value = interval(change_B)
    return Effect(part, method, mean, half_width, len(change_B), p_value)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Returns mean, half width of the 95 % interval, and p value of "the mean is 0" (Student's t).

    Half width and p value are nan for a single value. If all values are equal, the half width is 0,
    and the p value is 1 for zeros and 0 otherwise.
    """
    from scipy.special import stdtr  # scipy.stats takes seconds to import

    mean, sem = mean_and_sem([float(value) for value in values])
    if math.isnan(sem):
        return mean, math.nan, math.nan
    if sem == 0:
        return mean, 0.0, float(mean == 0)
    degrees = len(values) - 1  # of freedom
    return mean, quantile(degrees, LEVEL) * sem, float(2 * stdtr(degrees, -abs(mean) / sem))


def _check_scores(clean_B: np.ndarray, corrupted_B: np.ndarray, pairs: PromptPairs) -> None:
    """Raises for scores that are not finite, and for prompts that do not change the score."""
    finite = np.isfinite(clean_B) & np.isfinite(corrupted_B)
    if not finite.all():
        first = one_line(pairs.names[int(finite.argmin())], 80)
        raise UserError(
            f"the score of {int((~finite).sum())} of {len(pairs)} pairs is not finite, the first "
            f"is {first!r}: the network returns nan or infinity."
        )
    scale = max(np.abs(clean_B).max(), np.abs(corrupted_B).max(), 1.0)
    if np.abs(clean_B - corrupted_B).max() <= ROUNDING * scale:
        raise UserError(
            f"the score is {clean_B.mean():.4g} on the clean and on the corrupted prompts: nothing "
            "to explain. Give corrupted prompts that change the answer."
        )
