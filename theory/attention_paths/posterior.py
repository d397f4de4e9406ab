"""Draws from the exact finite-width posterior, and expectations over them.

xi^pi is the attentioned input of path pi, an array `attentioned` of shape (P, D, n). theta are the
Bartlett coordinates of `theory.attention_paths.bartlett`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.attention_paths import bartlett, multiple_outputs
from theory.attention_paths.argument_checks import check_attentioned
from theory.attention_paths.arviz_export import inference_data
from theory.attention_paths.diagnostics import doubts
from theory.attention_paths.kernel import (
    energy,
    energy_gradient,
    fit_labels,
    kernel_of_factor,
    store_examples,
)
from theory.attention_paths.predictor import mean_weights, psd_factor, variances
from theory.attention_paths.reconstruction import reconstruct
from theory.numerics import Array, in_float64, one_lapack_thread


@dataclasses.dataclass(frozen=True)
class Problem:
    """The data and the network that the posterior is conditioned on.

    attentioned: xi, (P, D, n). labels: Y, (P,). widths: (N_1 .. N_{L+1}). heads: (H_1 .. H_L).
    With several outputs `attentioned` is the result of `multiple_outputs.expand`, and `labels` are
    flattened to one for each pair (example, output).
    """

    attentioned: jax.Array
    labels: jax.Array
    widths: tuple[int, ...]
    temperature: float
    heads: tuple[int, ...]
    outputs: int = 1

    @property
    def layout(self) -> bartlett.Layout:
        """The layout of theta, whose matrices have the ranks that the widths allow."""
        return bartlett.ranked_layout(self.heads, self.widths, self.outputs)

    def by_output(self, values_P: Any) -> Any:
        """Reshapes values of test inputs to (B,) for one output and to (B, m) for m outputs."""
        return values_P if self.outputs == 1 else values_P.reshape(-1, self.outputs)

    @property
    def data(self) -> tuple[jax.Array, jax.Array, float]:
        """xi, Y and T."""
        return self.attentioned, self.labels, self.temperature


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Posterior draws, one Markov chain after the other along the first axis of every array.

    U: order parameter U^(1) of each draw, (S, D, D).
    linear: predictor of each draw, (S, D, n), with f = sum_pi linear^pi . xi^pi. For "collapsed" it
        is the mean predictor given U (Rao-Blackwell), for "weights" it is V_eff / sqrt(D n).
    theta: Bartlett coordinates, (S, size); None for "weights".
    diagnostics: numbers of `diagnostics.diagnose`, such as r_hat, ess, divergences and bfmi.
    statistics: arrays of NUTS, (chains, draws) each: energy, diverging, num_steps, ..

    Test inputs are attentioned inputs, (B, D, n). Results have the shape (B,), or (B, m) for m
    outputs.
    """

    problem: Problem
    method: str
    U: np.ndarray
    linear: np.ndarray
    theta: np.ndarray | None
    diagnostics: dict
    statistics: dict

    def inference_data(self):
        """Returns the draws as ArviZ's InferenceData, for az.summary and az.plot_trace."""
        return inference_data(self.U, self.theta, self.statistics)

    @property
    def doubts(self) -> list[str]:
        """The diagnostics beyond their limits, a phrase each; empty if the draws are trusted."""
        return doubts(self.diagnostics)

    @property
    @in_float64
    def chain(self) -> list[np.ndarray]:
        """Order parameters [u, U^(L), .., U^(1)] of each draw; needs method "collapsed"."""
        theta = jnp.asarray(self._theta_for("order parameters of all layers"))
        chain = jax.vmap(lambda t: bartlett.order_parameters(self.problem.layout, t))(theta)
        return [np.asarray(U) for U in chain]

    @in_float64
    def mean(self, attentioned_test: Array) -> np.ndarray:
        """Returns the mean E[f] on the test inputs."""
        test_BxDxn = self._expanded(attentioned_test)
        return self.problem.by_output(np.asarray(jnp.tensordot(test_BxDxn, self.linear.mean(0), 2)))

    @in_float64
    def variance(self, attentioned_test: Array) -> np.ndarray:
        """Returns the variance Var[f] on the test inputs.

        For "collapsed" it is E_U[variance given U] + Var_U[mean given U].
        """
        test_BxDxn = self._expanded(attentioned_test)
        means_SxB = np.einsum("bdn,sdn->sb", np.asarray(test_BxDxn), self.linear, optimize=True)
        between_B = means_SxB.var(0)
        if self.theta is None:
            return between_B  # method "weights" allows one output only: the shape is (B,)
        layout, theta_Sxp = self.problem.layout, jnp.asarray(self.theta)
        with one_lapack_thread():
            within_B = np.asarray(_mean_variance(layout, theta_Sxp, *self.problem.data, test_BxDxn))
        return self.problem.by_output(between_B + within_B)

    def gram_hidden(self) -> np.ndarray:
        """Returns E[U] = E[v^(1) v^(1)T] / N_1, which excludes the input projection."""
        return self.U.mean(0)

    @in_float64
    def gram_effective(self) -> np.ndarray:
        """Returns E[V_eff V_eff^T] / n, which includes the input projection.

        For "collapsed" it is E[U - U G U / n] with G of `gradients`, exact at every width.
        """
        n, paths = self.problem.attentioned.shape[2], self.U.shape[1]
        if self.method == "weights":
            grams = np.einsum("sdn,sen->de", self.linear, self.linear, optimize=True)
            return grams * paths / len(self.linear)  # linear is V_eff / sqrt(D n)
        return (self.U - self.U @ self.gradients() @ self.U / n).mean(0)

    @in_float64
    def energies(self) -> np.ndarray:
        """Returns ln det(K + T) + Y^T (K + T)^-1 Y at the U of each draw, (S,)."""
        return self._over_draws(energy)

    @in_float64
    def gradients(self) -> np.ndarray:
        """Returns G = d energy / dU at the U of each draw, (S, D, D)."""
        return self._over_draws(energy_gradient)

    @in_float64
    def weights(self, key: jax.Array, index: int) -> dict:
        """Draws all weights of the network given draw `index`.

        Returns:
            Parameters of `jaxformer.models.attention_paths.AttentionPaths`.
        """
        p = self.problem
        if p.outputs > 1:
            raise UserError(f"weights are reconstructed for one output, got {p.outputs}.")
        theta = jnp.asarray(self._theta_for("weights")[index])
        return _reconstruct(key, p.layout, theta, p.widths, *p.data)

    def _theta_for(self, quantity: str) -> np.ndarray:
        if self.theta is None:
            raise UserError(f"{quantity} need method='collapsed', got method='weights'.")
        return self.theta

    def _over_draws(self, function) -> np.ndarray:
        attentioned, labels, temperature = self.problem.data
        stored, U = store_examples(attentioned), jnp.asarray(self.U)
        with one_lapack_thread():
            return np.asarray(_map_draws(function, stored, labels, temperature, U))

    def _expanded(self, attentioned_test) -> jax.Array:
        heads, n = self.problem.heads, self.problem.attentioned.shape[2]
        attentioned_test = check_attentioned("attentioned_test", attentioned_test, heads, n)
        return multiple_outputs.expand(attentioned_test, self.problem.outputs)


def collapsed_draws(problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns U and the linear map of the mean predictor for each theta of (S, size)."""
    with one_lapack_thread():
        U, linear = _collapsed_draws(problem.layout, jnp.asarray(theta), *problem.data)
        return np.asarray(U), np.asarray(linear)


@functools.partial(jax.jit, static_argnums=0)
def _map_draws(function, stored, labels, temperature, U_SxDxD):
    return jax.lax.map(lambda U: function(stored, labels, temperature, psd_factor(U)), U_SxDxD)


@functools.partial(jax.jit, static_argnums=0)
def _collapsed_draws(layout, theta_Sxp, attentioned, labels, temperature):
    stored = store_examples(attentioned)

    def of_draw(theta):
        factor_Dxr = bartlett.order_parameter_factors(layout, theta)[-1]
        U_DxD = factor_Dxr @ factor_Dxr.T
        fit = fit_labels(kernel_of_factor(stored, factor_Dxr), labels, temperature)
        return U_DxD, mean_weights(attentioned, fit, U_DxD)

    return jax.lax.map(of_draw, theta_Sxp)


@functools.partial(jax.jit, static_argnums=0)
def _mean_variance(layout, theta_Sxp, attentioned, labels, temperature, test_BxDxn):
    stored = store_examples(attentioned)

    def add_variance(total_B, theta):
        factor_Dxr = bartlett.order_parameter_factors(layout, theta)[-1]
        fit = fit_labels(kernel_of_factor(stored, factor_Dxr), labels, temperature)
        return total_B + variances(factor_Dxr, attentioned, fit.cholesky_PxP, test_BxDxn), None

    zero_B = jnp.zeros(len(test_BxDxn), test_BxDxn.dtype)
    return jax.lax.scan(add_variance, zero_B, theta_Sxp)[0] / len(theta_Sxp)


_reconstruct = jax.jit(reconstruct, static_argnames=("layout", "widths"))
