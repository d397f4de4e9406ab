"""The ranges in which a layer's signal counts as healthy.

    cosine      between two tokens: above 1 - COLLAPSE_DISTANCE all tokens are nearly equal
    keys        exp of the entropy of an attention row: below MIN_KEYS a query sees few tokens
    gradient    relative to the gradient after the last block: outside a factor of
                MAX_GRADIENT_RATIO it vanishes or explodes

These are conventions: a trained network may leave them for good reasons. The module does not import
jax, because the advisor (`theory.advise`) starts without it.
"""

import math
from collections.abc import Sequence

COLLAPSE_DISTANCE = 0.01  # 1 - cosine
MIN_KEYS = 8.0  # in short sequences a quarter of the length (`least_keys`)
MAX_GRADIENT_RATIO = 100.0


def least_keys(length: int) -> float:
    """Returns the lower end of the range of keys for sequences of `length` tokens."""
    return min(MIN_KEYS, length / 4)


def outside(
    cosine: Sequence[float], keys: Sequence[float], gradient: Sequence[float], length: int
) -> dict[str, str]:
    """Returns {problem: its worst value, block and range}; empty if all values are in range.

    Values that are not finite are left out: the loss shows them.

    Args:
      cosine: (L+1,) values, of the input of block 0 and after each of L blocks.
      keys: (L,) values of the blocks.
      gradient: (L+1,) values, as `cosine`.
      length: tokens of a sequence.
    """
    problems = {}
    highest, layer = max(_finite_values(cosine[1:], -math.inf))
    if highest > 1 - COLLAPSE_DISTANCE:
        problems["tokens are alike"] = (
            f"cosine {highest:.4f} after block {layer}; range: at most {1 - COLLAPSE_DISTANCE:g}"
        )
    fewest, layer = min(_finite_values(keys, math.inf))
    if fewest < least_keys(length):
        problems["queries see few keys"] = (
            f"{fewest:.2f} keys in block {layer}; range: at least {least_keys(length):g}"
        )
    gradient_text = (
        "{:.3g} of the last block's after block {}; "
        + f"range: {1 / MAX_GRADIENT_RATIO:g} to {MAX_GRADIENT_RATIO:g}"
    )
    low, layer = min(_finite_values(gradient[1:], math.inf))
    if low < 1 / MAX_GRADIENT_RATIO:
        problems["gradients vanish"] = gradient_text.format(low, layer)
    high, layer = max(_finite_values(gradient[1:], -math.inf))
    if high > MAX_GRADIENT_RATIO:
        problems["gradients explode"] = gradient_text.format(high, layer)
    return problems


def _finite_values(values: Sequence[float], missing: float) -> list[tuple[float, int]]:
    """Returns (value, number of the block) of finite values, or (missing, 0) if there are none."""
    finite = ((float(v), i) for i, v in enumerate(values) if math.isfinite(v))
    return [*finite] or [(missing, 0)]
