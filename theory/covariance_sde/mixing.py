"""The variants of MixiT that the covariance SDE describes."""

from dataclasses import dataclass, replace
from typing import Any

import jax

from jaxformer.core.errors import UserError, unknown
from theory.numerics import check_count, check_range


@dataclass(frozen=True)
class Mixing:
    """The variant of MixiT: how a layer mixes its tokens.

    causal: whether a token sees only itself and earlier tokens. heads: number H of blocks of n/H
    rows of W^v h that are mixed independently. output_projection: whether W^o multiplies after
    mixing. scale: standard deviation s of the mixing, as in
    `jaxformer.models.attention.mixing_std`. It enters the SDE as kappa = m n s^2, which is 1 for
    "theory" and H for "head". A number is s itself, and then the SDE needs the width n too.
    """

    causal: bool = False
    heads: int = 1
    output_projection: bool = False
    scale: str | Any = "theory"

    def __post_init__(self) -> None:
        check_count("heads", self.heads)

    def kappa(self, length: int, width: int | None) -> float | jax.Array:
        """Returns kappa = m n s^2, the mixing variance in units of the theory's 1/(n m)."""
        if isinstance(self.scale, str):
            if self.scale not in ("theory", "head"):
                raise unknown("mixing scale of the SDE", self.scale, ("theory", "head", "a number"))
            return 1.0 if self.scale == "theory" else float(self.heads)
        if width is None:
            raise UserError(
                f"scale={self.scale!r} is a standard deviation: the SDE needs the width n too "
                "(kappa = m n s^2); give width=, or scale='theory' or 'head'."
            )
        check_range("the scale of mixing", self.scale, 0.0)
        return length * width * self.scale**2

    def without_scale(self) -> "Mixing":
        """Returns the variant with the default scale, for jitted functions that trace the scale.

        The variant itself is a static argument of jit: a new scale in it would compile again.
        """
        return replace(self, scale="theory")


UNMASKED = Mixing()


def check_width(width: int, mixing: Mixing) -> None:
    """Raises a UserError unless the heads divide the width, which is at least 2."""
    check_count("width", width, 2)
    if width % mixing.heads:
        raise UserError(
            f"the width must be a multiple of the heads, got {width} and {mixing.heads}."
        )
