"""Several outputs as one: an output is one more step of every path, and an example one for each.

f_c(x) = sum_pi V_eff^(pi c) . xi^pi(x) / sqrt(D n). With rows (x, c) and paths (pi, c), c fastest,

    xi^(pi c')((x, c)) = sqrt(m) 1{c = c'} xi^pi(x),      K = (1/(D m)) sum U^(pi c, pi' c') C

is the kernel of all outputs together, and nothing else of the theory changes.
"""

from typing import Any

import jax
import jax.numpy as jnp

from theory.numerics import Array


def count(labels: Array) -> int:
    """m of labels (P,) or (P, m)."""
    return 1 if labels.ndim == 1 else labels.shape[1]


def expand(attentioned_PxDxn: Array, outputs: int) -> jax.Array:
    """(P m, D m, n); itself for one output."""
    attentioned = jnp.asarray(attentioned_PxDxn)
    if outputs == 1:
        return attentioned
    P, D, n = attentioned.shape
    same_mxm = outputs**0.5 * jnp.eye(outputs, dtype=attentioned.dtype)
    return jnp.einsum("pdn,ce->pcden", attentioned, same_mxm).reshape(P * outputs, D * outputs, n)


def contract(expanded_PxDxn: jax.Array, outputs: int) -> jax.Array:
    """The inverse."""
    return expanded_PxDxn[::outputs, ::outputs] / outputs**0.5


def by_output(values_P: Any, labels: Array) -> Any:
    """(P m,) as (P, m) where the labels have outputs."""
    return values_P if labels.ndim == 1 else values_P.reshape(-1, labels.shape[1])
