"""Networks with several outputs, written as networks with one output.

Output c is f_c(x) = sum_pi V_eff^(pi c) . xi^pi(x) / sqrt(D n). It equals the only output of a
network whose examples are the pairs (x, c) and whose paths are the pairs (pi, c), with c fastest:

    xi^(pi c')((x, c)) = sqrt(m) 1{c = c'} xi^pi(x)
    K = (1/(D m)) sum U^(pi c, pi' c') C_{pi c, pi' c'},     C of these paths as in `kernel`

K is the kernel of all outputs together. The rest of the theory is unchanged.
"""

from typing import Any

import jax
import jax.numpy as jnp

from theory.numerics import Array


def count(labels: Array) -> int:
    """Returns the number of outputs of labels (P,) or (P, m)."""
    return 1 if labels.ndim == 1 else labels.shape[1]


def expand(attentioned_PxDxn: Array, outputs: int) -> jax.Array:
    """Returns the inputs of the network with one output, (P m, D m, n)."""
    attentioned = jnp.asarray(attentioned_PxDxn)
    if outputs == 1:
        return attentioned
    P, D, n = attentioned.shape
    identity_mxm = outputs**0.5 * jnp.eye(outputs, dtype=attentioned.dtype)
    return jnp.einsum("pdn,ce->pcden", attentioned, identity_mxm).reshape(
        P * outputs, D * outputs, n
    )


def contract(expanded_PxDxn: jax.Array, outputs: int) -> jax.Array:
    """Returns the inputs of the network with several outputs: the inverse of `expand`."""
    return expanded_PxDxn[::outputs, ::outputs] / outputs**0.5


def by_output(values_P: Any, labels: Array) -> Any:
    """Reshapes values of (example, output) pairs to (P, m) if the labels have an output axis."""
    return values_P if labels.ndim == 1 else values_P.reshape(-1, labels.shape[1])
