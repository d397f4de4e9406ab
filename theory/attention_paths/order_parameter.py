"""The order parameter: the chain that minimises the action (arXiv 2405.15926, eqs. 10-12).

    S = sum_{l=1}^{L+1} (N_l/N) [-ln det U^(l) + ln det Ut^(l) + Tr Ut^(l)-1 U^(l)]
        + (1/N) [ln det(K + T) + Y^T (K + T)^-1 Y],        p(chain | Y) ~ exp(-N S / 2),

N the largest width. In Bartlett coordinates (bartlett.py) the entropy decouples, every theta is a
positive definite chain, and the Hessian at the GP limit theta = 0 is 4 and 2: L-BFGS needs some
tens of evaluations where Adam on U needs thousands. It stops at the round-off of its line search
(1e-6); Newton steps, their linear systems solved by conjugate gradients from Hessian-vector
products, polish the stationarity to 1e-10, for 14 parameters and for 2117 alike.

Limit assumed: P, N -> infinity at fixed P/N (the exact finite-N law is sampled in sampling.py).
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
from theory.attention_paths.kernel import PathKernel, energy, fixed_kernel
from theory.numerics import Array, Numbers, is_concrete, one_lapack_thread


class OrderParameter(NamedTuple):
    """chain [u, U^(L), .., U^(1)]; action S; gradient_norm max |dS/dtheta|; widths N_l."""

    chain: list[jax.Array]
    action: jax.Array
    gradient_norm: jax.Array
    temperature: Numbers
    heads: tuple[int, ...]
    width: tuple
    outputs: int = 1

    @property
    def U(self) -> jax.Array:
        """U^(1), (D, D): which paths the network uses, and how it combines them."""
        return jnp.atleast_2d(self.chain[-1])


def order_parameter(
    attentioned: Array,
    labels: Array,
    width: Numbers | Sequence[float],
    temperature: Numbers,
    heads: Sequence[int],
    start: Array | None = None,
) -> OrderParameter:
    """Minimises the action.

    attentioned (P, H^L, n), path index row-major with h_1 slowest; labels (P,) of +-1 or real, or
    (P, m) of m outputs, whose U has rows (path, output); heads (H_1 .. H_L), () for a network
    without attention; width a number or (N_1 .. N_{L+1}).
    start: Bartlett coordinates to begin at; default the GP limit U = I.
    """
    heads = tuple(int(h) for h in heads)
    attentioned, labels = check_problem(attentioned, labels, temperature, heads)
    widths = check_widths(width, heads)
    m = multiple_outputs.count(labels)
    attentioned, labels = multiple_outputs.expand(attentioned, m), labels.reshape(-1)
    layout = bartlett.full_layout(heads, m)
    start = jnp.zeros(layout.size, labels.dtype) if start is None else jnp.asarray(start)
    kernel = fixed_kernel(attentioned)
    del attentioned  # for many paths it is the largest array, and the kernel has its own
    # As arrays of one type: 10 and 10.0 share a compiled program.
    arrays = [jnp.asarray(number, labels.dtype) for number in (*widths, temperature)]
    with one_lapack_thread():
        chain, value, norm = _minimise(layout, kernel, labels, arrays[:-1], arrays[-1], start)
        failed = is_concrete(norm) and not bool(norm <= _accepted(labels.dtype))
    if failed:
        raise UserError(
            f"the order parameter did not converge: |gradient| {float(norm):.1e} of the action, "
            f"expected at most {_accepted(labels.dtype):.0e}. Raise the temperature "
            f"({float(temperature):g}), or use float64 (jax.enable_x64)."
        )
    return OrderParameter(chain, value, norm, temperature, heads, widths, m)


def action(
    layout: bartlett.Layout,
    kernel: PathKernel,
    labels_P: jax.Array,
    widths: Sequence,
    temperature: Numbers,
    theta: jax.Array,
) -> jax.Array:
    """S of the module docstring at the Bartlett coordinates theta; widths (N_1 .. N_{L+1})."""
    largest = functools.reduce(jnp.maximum, widths)
    ratios = [width / largest for width in widths]
    factor_DxD = bartlett.factors(layout, theta)[-1]
    fit = energy(kernel, labels_P, temperature, factor_DxD)
    return bartlett.neg_entropy(layout, theta, ratios) + fit / largest


@functools.partial(jax.jit, static_argnums=0)
def _minimise(layout, kernel, labels_P, widths, temperature, start):
    def loss(theta):
        return action(layout, kernel, labels_P, widths, temperature, theta)

    theta = _lbfgs(loss, start)
    theta, norm = _newton(loss, theta)
    return bartlett.order_parameters(layout, theta), loss(theta), norm


def _lbfgs(loss, theta, memory: int = 20, steps: int = 500):
    """Until the gradient is small or the line search finds no descent above round-off."""
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
    """Newton steps, accepted when the gradient shrinks: S itself is at round-off."""
    target = 1e-11 if theta.dtype == jnp.float64 else 1e-6

    def unfinished(carry):
        _, _, smallest, step, improved = carry
        return (step < steps) & improved & (smallest > target)

    def iterate(carry):
        theta, best, smallest, step, _ = carry
        gradient = jax.grad(loss)(theta)

        def hessian_times(vector):  # jax.linearize would keep copies of all the features
            return jax.jvp(jax.grad(loss), (theta,), (vector,))[1]

        norm = jnp.abs(gradient).max()
        improved = norm < smallest

        def solve(right_side):
            # An inexact step is enough: each still divides the gradient by a thousand.
            return jax.scipy.sparse.linalg.cg(hessian_times, right_side, tol=1e-3, maxiter=200)[0]

        shift = jax.lax.cond(improved & (norm > target), solve, jnp.zeros_like, gradient)
        best = jnp.where(improved, theta, best)
        return theta - shift, best, jnp.where(improved, norm, smallest), step + 1, improved

    infinite = jnp.asarray(jnp.inf, theta.dtype)
    carry = (theta, theta, infinite, jnp.zeros((), int), jnp.asarray(True))
    _, best, smallest, _, _ = jax.lax.while_loop(unfinished, iterate, carry)
    return best, smallest


def _accepted(dtype) -> float:
    return 1e-8 if np.dtype(dtype) == np.float64 else 1e-2
