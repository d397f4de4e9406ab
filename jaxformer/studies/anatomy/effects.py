"""The effect of a part on the score, with its error over prompts and over trained networks.

An effect has two sources of error: the prompts, which are a sample, and the training, since another
seed gives another network. With several networks both count,

    value ± hypot(t s_n / sqrt(n), t s_B / sqrt(B))

with the spread s_n between the means of n networks, the spread s_B between the means of B prompts,
and Welch and Satterthwaite's degrees of freedom. Heads have no counterpart in another network, so
their effects are those of one.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxformer.stats.differences import half_width, mean_and_sem

# What each pair of prompts loses, {(part or group, method): (B,)}, in one network.
Changes = dict[tuple[str, str], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Effect:
    """The change of a score that one method attributes to one part, with its error over samples.

    Attributes:
        part: the address of the part, such as "block_1/mlp", "block_0/attn",
            "block_0/attn/head_2", or a group such as "queries and keys".
        method: the intervention, such as "mean ablation", "resampling", "patching",
            "path patching", "attribution", "rank 1 %", "rank 10 %", "direct", "together".
        value: the change in the unit of the score; a positive value means that the part helps.
        half_width: the half width of the 95 % interval over samples (Student's t); nan for one.
        samples: the number of prompts.
        p_value: two-sided, of the hypothesis "no effect"; nan for one sample.
        networks: the number of networks, trained with different seeds.
    """

    part: str
    method: str
    value: float
    half_width: float
    samples: int
    p_value: float
    networks: int = 1


def effects_of(networks: Sequence[Changes], tolerance: float) -> list[Effect]:
    """The effects of parts that all networks have."""
    return [
        effect_of(*key, np.stack([changes[key] for changes in networks]), tolerance)
        for key in networks[0]
    ]


def effect_of(part: str, method: str, changes: np.ndarray, tolerance: float = 0.0) -> Effect:
    """Returns the mean change as an effect.

    Args:
        part: the name of the part.
        method: the name of the method.
        changes: the change of the score of each pair, (B,), or by network, (n, B).
        tolerance: changes up to this size are rounding errors and count as 0.
    """
    changes_NxB = np.atleast_2d(np.where(np.abs(changes) <= tolerance, 0.0, changes))
    n_networks, n_pairs = changes_NxB.shape
    mean, half, p_value = interval(changes_NxB)
    return Effect(part, method, mean, half, n_pairs, p_value, n_networks)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Returns mean, half width of the 95 % interval, and p value of "the mean is 0" (Student's t).

    Half width and p value are nan for a single value. If all values are equal, the half width is 0,
    and the p value is 1 for zeros and 0 otherwise.

    Args:
        values: one for each prompt, (B,), or one for each network and prompt, (n, B).
    """
    from scipy.special import stdtr  # scipy.stats takes seconds to import

    values_NxB = np.atleast_2d(values)
    sources = [_mean_and_sem(values_NxB.mean(0))]
    if len(values_NxB) > 1:
        sources.append(_mean_and_sem(values_NxB.mean(1)))
    mean, parts = sources[0][0], [(sem, n) for _, sem, n in sources]
    sem = math.hypot(*(sem for sem, _ in parts))
    if math.isnan(sem):
        return mean, math.nan, math.nan
    if sem == 0:
        return mean, 0.0, float(mean == 0)
    freedom = sem**4 / sum(part**4 / (n - 1) for part, n in parts)  # Welch and Satterthwaite
    return mean, half_width(parts, 0.0), float(2 * stdtr(freedom, -abs(mean) / sem))


def _mean_and_sem(values: Sequence[float] | np.ndarray) -> tuple[float, float, int]:
    return *mean_and_sem([float(value) for value in values]), len(values)
