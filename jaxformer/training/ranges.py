"""Which numbers of a layer count as healthy. Plain Python: the advisor needs them without jax.

    cosine      of two tokens: above 1 - EPSILON the tokens are all alike
    keys        that a query sees, e to the entropy of its row: below KEYS it sees single tokens
    gradient    of a block over that of the last block: within a factor of GRADIENT

They are conventions: a trained network may leave them for good reasons.
"""

import math
from collections.abc import Sequence

EPSILON = 0.01
KEYS = 8.0  # at most a quarter of the length
GRADIENT = 100.0


def least_keys(length: int) -> float:
    return min(KEYS, length / 4)


def outside(
    cosine: Sequence[float], keys: Sequence[float], gradient: Sequence[float], length: int
) -> dict[str, str]:
    """{what is wrong: its worst number, where and beside its range}; empty if all is in range.

    `cosine` and `gradient` begin with what enters block 0, `keys` with block 0. A number that is
    not finite is left out: the loss tells of it.
    """
    found = {}
    alike, layer = max(_places(cosine[1:], -math.inf))
    if alike > 1 - EPSILON:
        found["tokens are alike"] = (
            f"cosine {alike:.4f} after block {layer}; range: at most {1 - EPSILON:g}"
        )
    few, layer = min(_places(keys, math.inf))
    if few < least_keys(length):
        found["queries see few keys"] = (
            f"{few:.2f} keys in block {layer}; range: at least {least_keys(length):g}"
        )
    low, layer = min(_places(gradient[1:], math.inf))
    span = f"range: {1 / GRADIENT:g} to {GRADIENT:g}"
    if low < 1 / GRADIENT:
        found["gradients vanish"] = f"{low:.3g} of the last block's after block {layer}; {span}"
    high, layer = max(_places(gradient[1:], -math.inf))
    if high > GRADIENT:
        found["gradients explode"] = f"{high:.3g} of the last block's after block {layer}; {span}"
    return found


def _places(values: Sequence[float], missing: float) -> list[tuple[float, int]]:
    """(value, number of the block)."""
    finite = ((float(v), i) for i, v in enumerate(values) if math.isfinite(v))
    return [*finite] or [(missing, 0)]
