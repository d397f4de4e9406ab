"""The cosine map of one post-norm encoder block at initialisation (arXiv 2505.24333).

    X <- LN(SA(X) + alpha_SA X),   X <- LN(MLP(X) + alpha_MLP X),   LN(x) = x sqrt(d) / |x|

Any two tokens have cosine rho. One block maps rho to rho' (r0 is eq. 16, q2 and p2
are eqs. 17 and 18, rho' is eq. 19):

    r0  = (sV2 [rho + Y_p (1-rho)] + alpha_SA^2 rho) / (sV2 [rho + Y_q (1-rho)] + alpha_SA^2)
    q1  = sw2 + sb2,  p1 = sw2 r0 + sb2,  c = p1 / q1
    q2  = sw2 E phi(u)^2 + sb2,  p2 = sw2 E phi(u) phi(v) + sb2     (u, v ~ N(0, q1), corr. c)
    rho'= (p2 + alpha_MLP^2 r0) / (q2 + alpha_MLP^2)

r0 is the cosine after attention. q1 is the variance of the MLP's hidden units before the activation
phi, p1 their covariance for two tokens, and q2 and p2 are the same for the MLP's output.

Y_q and Y_p are the overlaps of `theory.rem`, by one of three theories:

    "limit"      the paper's, T -> infinity
    "heuristic"  the paper's finite-size rule
    "exact"      T tokens, width d -> infinity. A finite width adds a bias of order 1/d, of opposite
                 sign to the finite-T effect: compare with networks of d >= 600.

The paper's algebra sets sV2 = 1. With a residual sV2 must be kept: sV2 = 1 would predict collapse
for networks that the paper trains.

`theory.signal.propagation` (jax) and `theory.signal.phase_diagram` (NumPy) share this module, which
does not import jax.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import Any

import numpy as np

from theory.activation_moments import second_moments

OVERLAPS = ("exact", "limit", "heuristic")
MAX_ALPHA = 1000.0  # critical_alpha searches in [0, MAX_ALPHA]


@dataclass(frozen=True)
class Block:
    """One encoder block at initialisation. The fields are numbers or arrays that broadcast.

    Attributes:
      beta: score scale; scores have variance beta^2 ln T.
      alpha_sa: weight of the residual around attention.
      alpha_mlp: weight of the residual around the MLP.
      sigma_v2: variance times fan-in of the value matrix. With an output projection after
        attention, the product of both matrices' variances times fan-in.
      sigma_w2: variance times fan-in of both MLP matrices.
      sigma_b2: variance of the MLP biases.
      activation: a name in `theory.activation_moments.ACTIVATIONS`, or an elementwise function.
      sigma_u2: variance times fan-in of the second MLP matrix; None means sigma_w2.
    """

    beta: Any
    alpha_sa: Any
    alpha_mlp: Any
    sigma_v2: Any
    sigma_w2: Any
    sigma_b2: Any
    activation: str | Callable = field(default="relu", metadata={"static": True})
    sigma_u2: Any = None

    def replace(self, **changes: Any) -> "Block":
        """Returns a copy with some fields changed."""
        return Block(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)


def cosine_map(block: Block, overlap_pair: Callable, xp: ModuleType = np) -> Callable[[Any], Any]:
    """Returns the function rho -> rho' of one block, by the equations above.

    Quantities that do not depend on rho are computed once. Rounding can give rho' slightly above 1.

    Args:
      overlap_pair: function (beta, rho) -> (Y_q, Y_p).
      xp: array namespace, numpy or jax.numpy.
    """
    sigma_u2 = block.sigma_w2 if block.sigma_u2 is None else block.sigma_u2
    q1 = xp.asarray(block.sigma_w2 + block.sigma_b2, float)
    square, kernel = second_moments(block.activation, q1, xp)
    q2 = sigma_u2 * square + block.sigma_b2
    alpha_sa2, alpha_mlp2 = block.alpha_sa**2, block.alpha_mlp**2

    def next_cosine(rho):
        y_q, y_p = overlap_pair(block.beta, rho)
        q = block.sigma_v2 * attention_average(y_q, 1, rho) + alpha_sa2
        p = block.sigma_v2 * attention_average(y_p, 1, rho) + alpha_sa2 * rho
        r0 = ratio(p, q, xp)
        c = ratio(block.sigma_w2 * r0 + block.sigma_b2, q1, xp)
        p2 = sigma_u2 * kernel(c) + block.sigma_b2
        return ratio(p2 + alpha_mlp2 * r0, q2 + alpha_mlp2, xp)

    return next_cosine


def attention_average(overlap: Any, same: Any, other: Any) -> Any:
    """Returns sum_ss' E[A_ts A_us'] x_s.x_s' / d for two rows of attention.

    Args:
      overlap: E sum_s A_ts A_us, the weight of the terms s = s'.
      same: mean of x_s.x_s / d.
      other: mean of x_s.x_s' / d over s != s'.
    """
    return other + overlap * (same - other)


def ratio(p: Any, q: Any, xp: ModuleType = np) -> Any:
    """Returns p / q, and 1 where q is 0 (the paper's convention at rho = 0 without a residual)."""
    return xp.where(q > 0, p / xp.where(q > 0, q, 1.0), 1.0)
