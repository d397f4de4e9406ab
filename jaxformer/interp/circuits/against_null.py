"""The effect of all edges together, in a network and in its nulls: is there anything to explain?

Two questions come before the first circuit. Do all edges together change the score at all? And do
they change it more than those of a network that cannot know the answer? If not, a circuit can
restore nothing, and the ratio that says how much it restores is noise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp import nulls as null_models
from jaxformer.interp.circuits.measured import Wiring
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.stats.differences import quantile
from jaxformer.stats.ratios import Spread, rounded, spread

# An effect that is no larger than those of nulls must be so many times its interval.
RELIABLE = 3
Nulls = int | Sequence[Mapping[str, Any]] | None  # draws, parameters of nulls, or the default


class Changes(Protocol):
    """Scores of prompts with everything and with nothing of what is to be explained."""

    @property
    def whole_B(self) -> np.ndarray: ...
    @property
    def nothing_B(self) -> np.ndarray: ...


class Total(NamedTuple):
    """The effect of all edges together, in a network and in its nulls.

    Attributes:
        network: the change of the score by all edges.
        nulls: the same in each null network.
        null_name: what the nulls are, such as "block weights drawn anew".
        sentence: why there is nothing to explain; "" if there is something.
    """

    network: Spread
    nulls: tuple[Spread, ...]
    null_name: str
    sentence: str

    def __str__(self) -> str:
        if self.sentence:
            return self.sentence
        text = f"all edges together: {self.network}"
        if not self.nulls:
            return f"{text} (no null was measured)"
        return f"{text}; in networks with {self.null_name}: {over_draws(self.null_means)}"

    @property
    def null_means(self) -> list[float]:
        return [null.mean for null in self.nulls]


def null_params(model: Any, params: Mapping[str, Any], nulls: Nulls, seed: int) -> list[Any]:
    """The parameters of the null networks.

    Args:
        model: the model.
        params: its parameters.
        nulls: the number of draws of all block weights (by default eight, and two for published
            models), or the parameters of nulls.
        seed: of the draws.
    """
    if nulls is None:
        is_published = isinstance(model, Pretrained)
        nulls = null_models.DRAWS_OF_PUBLISHED if is_published else null_models.DRAWS
    if isinstance(nulls, int):
        check_range("nulls", nulls, 0, 1000)
        return null_models.drawn_anew(params, nulls, seed)
    if isinstance(nulls, Mapping) or not all(isinstance(null, Mapping) for null in nulls):
        raise UserError(
            "nulls must be a number of draws, or a list of parameters of networks such as "
            "[jaxformer.nulls.redraw(params, pattern, key)]."
        )
    return [*nulls]


def name_of(nulls: Nulls) -> str:
    """The nulls in words, for a table."""
    return "block weights drawn anew" if nulls is None or isinstance(nulls, int) else "given nulls"


def wirings_of(wiring: Wiring, params_of_nulls: Sequence[Any]) -> list[Wiring]:
    """The null networks on the prompts of a wiring.

    Raises:
        UserError: a null has other parameters than the network, or returns nan.
    """
    found = []
    for number, params in enumerate(params_of_nulls):
        try:
            found.append(wiring.with_params(params))
        except UserError as error:
            raise UserError(f"null network {number}: {error}") from None
    return found


def total(
    wiring: Changes,
    nulls: Sequence[Changes],
    null_name: str,
    clusters: Sequence[Any] | None = None,
    what: str = "all edges together change",
) -> Total:
    """Measures what all edges do, and says whether there is anything to explain.

    Args:
        wiring: the network, or anything with the scores `whole_B` and `nothing_B`.
        nulls: the same of null networks.
        null_name: what the nulls are.
        clusters: of the prompts.
        what: the beginning of the sentence, before "the score by ..".
    """
    changes_B = change(wiring)
    network = spread(changes_B, clusters)
    of_nulls = tuple(spread(change(null), clusters) for null in nulls)
    sentence = ""
    if len(changes_B) > 1 and not network.is_different_from_0:
        sentence = f"{what} the score by {network}: there is nothing to explain."
    elif len(changes_B) > 1 and nulls and not _is_more(changes_B, nulls, clusters):
        means = sorted(null.mean for null in of_nulls)
        sentence = (
            f"{what} the score by {network}, in networks with {null_name} by "
            f"{means[0]:.2g} to {means[-1]:.2g}: the network does no better than its null, so "
            "there is nothing to explain."
        )
    return Total(network, of_nulls, null_name, sentence)


def change(wiring: Changes) -> np.ndarray:
    """The effect of all edges on the score of each prompt, (B,)."""
    return wiring.whole_B.astype(float) - wiring.nothing_B.astype(float)


def over_draws(values: Sequence[float]) -> str:
    """Numbers of null networks as text: a mean with its interval over draws, or the numbers."""
    if len(values) < null_models.ENOUGH_FOR_INTERVAL:
        return ", ".join(f"{value:.2g}" for value in values)
    return str(spread(values))


def shares_over_draws(shares: Sequence[float]) -> str:
    """The same for shares of what a network does, which are printed with three decimals."""
    if len(shares) < null_models.ENOUGH_FOR_INTERVAL:
        return ", ".join(rounded(share) for share in shares)
    found = spread(shares)
    return f"{rounded(found.mean)} ± {found.half_width:.3f}"


def _is_more(changes_B: np.ndarray, nulls: Sequence[Changes], clusters: Any) -> bool:
    """Whether a network does more than its nulls: a larger effect, or a more reliable one.

    The size alone would fail where nulls have large scores at random, as those of hand-set weights
    without norms do, and the reliability alone where a null does next to nothing, but always.
    """
    of_nulls = [change(null) for null in nulls]
    if len(nulls) < null_models.ENOUGH_FOR_INTERVAL:
        return all(_is_larger(changes_B, null_B, clusters) for null_B in of_nulls)
    network = spread(changes_B, clusters)
    spreads = [spread(null_B, clusters) for null_B in of_nulls]
    size = abs(network.mean) - network.half_width
    if size > _largest_of_next_draw([abs(null.mean) for null in spreads]):
        return True
    reliability = _reliability(network)
    reliabilities = [_reliability(null) for null in spreads]
    return reliability > max(RELIABLE, _largest_of_next_draw(reliabilities))


def _is_larger(changes_B: np.ndarray, null_B: np.ndarray, clusters: Any) -> bool:
    """Whether the effect of a network is larger than that of one null, prompt by prompt.

    A null whose effect is no different from 0 does nothing, however much its prompts vary.
    """
    if not spread(null_B, clusters).is_different_from_0:
        return True
    difference_B = changes_B * np.sign(changes_B.mean()) - null_B * np.sign(null_B.mean())
    difference = spread(difference_B, clusters)
    return difference.mean > difference.half_width


def _largest_of_next_draw(values: Sequence[float]) -> float:
    """The end of the 95 % prediction interval of one more draw."""
    n = len(values)
    if not np.isfinite(values).all():
        return math.inf
    deviation = float(np.std(values, ddof=1))
    return float(np.mean(values)) + quantile(n - 1) * deviation * math.sqrt(1 + 1 / n)


def _reliability(effect: Spread) -> float:
    """The size of an effect in half widths of its interval; 0 for no effect."""
    if effect.mean == 0:
        return 0.0
    return abs(effect.mean) / effect.half_width if effect.half_width else math.inf
