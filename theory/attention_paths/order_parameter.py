"""The order parameter: the chain that minimises the action (arXiv 2405.15926, Equations 10-12).

    S = sum_{l=1}^{L+1} (N_l/N) [-ln det U^(l) + ln det Ut^(l) + Tr Ut^(l)-1 U^(l)]
        + (1/N) [ln det(K + T) + Y^T (K + T)^-1 Y]

Ut^(l) = I (x) U^(l+1) is the prior mean of U^(l) given U^(l+1) (`bartlett`). N is the largest
width, and p(chain | Y) ~ exp(-N S / 2). The theory assumes P, N -> infinity at fixed P/N;
`sampling` samples the exact law at finite N.

The minimum is found in Bartlett coordinates theta (`bartlett`). Every theta is a positive definite
chain, and the first line of S is a sum over its entries. With equal widths the Hessian of this line
at the GP limit theta = 0 is diagonal: 4 for the logarithms of diagonals and 2 for other entries.
L-BFGS then needs some tens of evaluations, where Adam on U needs thousands. The round-off of its
line search stops L-BFGS at a gradient of 1e-6. Newton steps then reduce the gradient to 1e-10,
measured with 14 and with 2117 coordinates. Conjugate gradients with Hessian-vector products solve
their linear systems.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxformer.core.errors import UserError
from theory.attention_paths import bartlett, multiple_outputs
from theory.attention_paths.argument_checks import check_problem, check_widths
from theory.attention_paths.kernel import StoredExamples, energy, store_compressed_examples
from theory.numerics import Array, Numbers, in_float64, is_concrete, one_lapack_thread


class OrderParameter(NamedTuple):
    """The minimum of the action.

    chain: [u, U^(L), .., U^(1)]. action: S at the minimum. gradient_norm: max |dS/dtheta|.
    width: (N_1 .. N_{L+1}). outputs: number m of outputs.
    """

    chain: list[jax.Array]
    action: jax.Array
    gradient_norm: jax.Array
    temperature: Numbers
    heads: tuple[int, ...]
    width: tuple
    outputs: int = 1

    @property
    def U(self) -> jax.Array:
        """U^(1), (D, D): which paths the network uses and how it combines them."""
        return jnp.atleast_2d(self.chain[-1])


@in_float64
def order_parameter(
    attentioned: Array,
    labels: Array,
    width: Numbers | Sequence[float],
    temperature: Numbers,
    heads: Sequence[int],
    start: Array | None = None,
) -> OrderParameter:
    """Minimises the action over the chain of order parameters.

    Args:
        attentioned: inputs xi, (P, D, n); the path index is row-major with h_1 slowest.
        labels: +1 and -1 or real numbers, (P,); or (P, m) for m outputs, where the rows of U are
            the pairs (path, output).
        width: N, or (N_1 .. N_{L+1}).
        temperature: T, above 0.
        heads: (H_1 .. H_L); () for a network without attention.
        start: Bartlett coordinates at which to start; the GP limit U = I by default.

    Example:
        >>> xi = jax.random.normal(jax.random.key(0), (20, 4, 50))
        >>> labels = jnp.sign(xi[:, 0, 0])
        >>> order_parameter(xi, labels, width=10, temperature=0.1, heads=(2, 2)).U.shape
        (4, 4)
    """
    heads = tuple(int(h) for h in heads)
    attentioned, labels = check_problem(attentioned, labels, temperature, heads)
    widths = check_widths(width, heads)
    m = multiple_outputs.count(labels)
    attentioned, labels = multiple_outputs.expand(attentioned, m), labels.reshape(-1)
    layout = bartlett.full_layout(heads, m)
    start = jnp.zeros(layout.size, labels.dtype) if start is None else jnp.asarray(start)
    stored = store_compressed_examples(attentioned)
    del attentioned  # the largest array for many paths; `stored` replaces it
    # Arrays of one type, so that 10 and 10.0 share a compiled program.
    width_arrays = [jnp.asarray(number, labels.dtype) for number in widths]
    T = jnp.asarray(temperature, labels.dtype)
    with one_lapack_thread():
        chain, value, norm = _minimise(layout, stored, labels, width_arrays, T, start)
        failed = is_concrete(norm) and not bool(norm <= _max_gradient_norm(labels.dtype))
    if failed:
        raise UserError(
            f"the order parameter did not converge: |gradient| {float(norm):.1e} of the action, "
            f"expected at most {_max_gradient_norm(labels.dtype):.0e}. Raise the temperature "
            f"({float(temperature):g})."
        )
    return OrderParameter(chain, value, norm, temperature, heads, widths, m)


def action(
    layout: bartlett.Layout,
    stored: StoredExamples,
    labels_P: jax.Array,
    widths: Sequence,
    temperature: Numbers,
    theta: jax.Array,
) -> jax.Array:
    """Returns the action S, which the order parameter U minimises.

    Args:
        layout: the shapes of the Bartlett factors.
        stored: the examples, as `store_examples` returns them.
        widths: (N_1 .. N_{L+1}).
        temperature: T > 0.
        theta: the Bartlett coordinates of U, a vector.
    """
    largest = functools.reduce(jnp.maximum, widths)
    ratios = [width / largest for width in widths]
    factor_DxD = bartlett.order_parameter_factors(layout, theta)[-1]
    fit = energy(stored, labels_P, temperature, factor_DxD)
    return bartlett.neg_entropy(layout, theta, ratios) + fit / largest


@functools.partial(jax.jit, static_argnums=0)
def _minimise(layout, stored, labels_P, widths, temperature, start):
    def loss(theta):
        return action(layout, stored, labels_P, widths, temperature, theta)

    theta = _lbfgs(loss, start)
    theta, norm = _newton(loss, theta)
    return bartlett.order_parameters(layout, theta), loss(theta), norm


def _lbfgs(loss, theta, memory: int = 20, steps: int = 500):
    """Runs L-BFGS until the gradient is small or two steps gain no more than round-off."""
    solver = optax.lbfgs(
        memory_size=memory, linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=20)
    )
    value_and_grad = optax.value_and_grad_from_state(loss)
    target = 1e-5 if theta.dtype == jnp.float64 else 1e-3

    def unfinished(carry):
        _, state, step, stalled = carry
        norm = jnp.abs(optax.tree.get(state, "grad")).max()
        return (step < steps) & (stalled < 2) & ((step == 0) | (norm > target))

    def iterate(carry):
        theta, state, step, stalled = carry
        value, grad = value_and_grad(theta, state=state)
        updates, state = solver.update(grad, state, theta, value=value, grad=grad, value_fn=loss)
        gain = value - optax.tree.get(state, "value")
        stalled = jnp.where(gain <= 1e-14 * jnp.abs(value), stalled + 1, 0)
        return theta + updates, state, step + 1, stalled

    zero = jnp.zeros((), int)
    return jax.lax.while_loop(unfinished, iterate, (theta, solver.init(theta), zero, zero))[0]


def _newton(loss, theta, steps: int = 8):
    """Takes Newton steps while the gradient shrinks. S itself decreases by less than round-off."""
    target = 1e-11 if theta.dtype == jnp.float64 else 1e-6

    def unfinished(carry):
        _, _, smallest, step, improved = carry
        return (step < steps) & improved & (smallest > target)

    def iterate(carry):
        theta, best, smallest, step, _ = carry
        gradient = jax.grad(loss)(theta)

        # jax.linearize would store copies of all the features.
        def hessian_times(vector):
            return jax.jvp(jax.grad(loss), (theta,), (vector,))[1]

        norm = jnp.abs(gradient).max()
        improved = norm < smallest

        def solve(right_side):
            # An inexact solution suffices: each step still divides the gradient by a thousand.
            return jax.scipy.sparse.linalg.cg(hessian_times, right_side, tol=1e-3, maxiter=200)[0]

        shift = jax.lax.cond(improved & (norm > target), solve, jnp.zeros_like, gradient)
        best = jnp.where(improved, theta, best)
        return theta - shift, best, jnp.where(improved, norm, smallest), step + 1, improved

    infinite = jnp.asarray(jnp.inf, theta.dtype)
    carry = (theta, theta, infinite, jnp.zeros((), int), jnp.asarray(True))
    _, best, smallest, _, _ = jax.lax.while_loop(unfinished, iterate, carry)
    return best, smallest


def _max_gradient_norm(dtype) -> float:
    return 1e-8 if np.dtype(dtype) == np.float64 else 1e-2
