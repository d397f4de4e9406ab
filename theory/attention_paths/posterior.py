"""Draws from the exact finite-width posterior, and expectations over them."""

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
from theory.attention_paths.kernel import energy, energy_gradient, fit_labels, gram, path_kernel
from theory.attention_paths.predictor import mean_weights, psd_factor, variances
from theory.attention_paths.reconstruction import reconstruct
from theory.numerics import Array, one_lapack_thread


@dataclasses.dataclass(frozen=True)
class Problem:
    """What the posterior is conditioned on; widths (N_1 .. N_{L+1}). Of several outputs the inputs
    and the labels are those of `multiple_outputs.expand`."""

    attentioned: jax.Array
    labels: jax.Array
    widths: tuple[int, ...]
    temperature: float
    heads: tuple[int, ...]
    outputs: int = 1

    @property
    def layout(self) -> bartlett.Layout:
        return bartlett.ranked_layout(self.heads, self.widths, self.outputs)

    def by_output(self, values_P: Any) -> Any:
        """(P*,) of one output, (P*, m) of m."""
        return values_P if self.outputs == 1 else values_P.reshape(-1, self.outputs)

    @property
    def data(self) -> tuple[jax.Array, jax.Array, float]:
        return self.attentioned, self.labels, self.temperature


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Draws over the chains, one chain after the other; every array has them as its first axis.

    U (draws, D, D)      the order parameter U^(1) of each draw
    linear (draws, D, n) the predictor of each draw is sum_pi linear^pi . xi^pi: for "collapsed" its
                         mean given U (Rao-Blackwell), for "weights" f itself, V_eff / sqrt(D n)
    theta                Bartlett coordinates ("collapsed" only)
    diagnostics          those of `diagnostics.py`: r_hat, ess, divergences, bfmi, ..
    """

    problem: Problem
    method: str
    U: np.ndarray
    linear: np.ndarray
    theta: np.ndarray | None
    diagnostics: dict
    statistics: dict  # NUTS's own numbers, (chains, draws) each: energy, diverging, num_steps, ..

    def inference_data(self):
        """The draws for ArviZ, which is imported here: `az.summary(posterior.inference_data())`."""
        return inference_data(self.U, self.theta, self.statistics)

    @property
    def doubts(self) -> list[str]:
        """What speaks against the chains; empty if they are to be trusted."""
        return doubts(self.diagnostics)

    @property
    def chain(self) -> list[np.ndarray]:
        """[u, U^(L), .., U^(1)] of every draw ("collapsed" only)."""
        theta = jnp.asarray(self._collapsed("chains"))
        chain = jax.vmap(lambda t: bartlett.order_parameters(self.problem.layout, t))(theta)
        return [np.asarray(U) for U in chain]

    def mean(self, attentioned_test: Array) -> np.ndarray:
        """E[f*], (P*,), or (P*, m) of m outputs."""
        test_BxDxn = self._check(attentioned_test)
        return self.problem.by_output(np.asarray(jnp.tensordot(test_BxDxn, self.linear.mean(0), 2)))

    def variance(self, attentioned_test: Array) -> np.ndarray:
        """Var[f*], (P*,); collapsed: E_U[var given U] + Var_U[mean given U]."""
        test_BxDxn = self._check(attentioned_test)
        means_SxB = np.einsum("bdn,sdn->sb", np.asarray(test_BxDxn), self.linear, optimize=True)
        between_B = means_SxB.var(0)
        if self.theta is None:
            return between_B  # of one output
        layout, theta_Sxp = self.problem.layout, jnp.asarray(self.theta)
        with one_lapack_thread():
            within_B = np.asarray(_mean_variance(layout, theta_Sxp, *self.problem.data, test_BxDxn))
        return self.problem.by_output(between_B + within_B)

    def gram_hidden(self) -> np.ndarray:
        """E[v^(1) v^(1)T] / N_1 = E[U], the input projection left out."""
        return self.U.mean(0)

    def gram_effective(self) -> np.ndarray:
        """E[V_eff V_eff^T] / n; collapsed: E[U - U G U / n], exact at every width."""
        n, paths = self.problem.attentioned.shape[2], self.U.shape[1]
        if self.method == "weights":
            grams = np.einsum("sdn,sen->de", self.linear, self.linear, optimize=True)
            return grams * paths / len(self.linear)
        return (self.U - self.U @ self.gradients() @ self.U / n).mean(0)

    def energies(self) -> np.ndarray:
        """ln det(K + T) + Y^T (K + T)^-1 Y at each draw's U, (draws,)."""
        return self._over_draws(energy)

    def gradients(self) -> np.ndarray:
        """G = d energy / dU at each draw's U, (draws, D, D)."""
        return self._over_draws(energy_gradient)

    def weights(self, key: jax.Array, index: int) -> dict:
        """All weights behind draw `index`: parameters for models.attention_paths.AttentionPaths."""
        p = self.problem
        if p.outputs > 1:
            raise UserError(f"weights are reconstructed for one output, got {p.outputs}.")
        theta = jnp.asarray(self._collapsed("weights")[index])
        return _reconstruct(key, p.layout, theta, p.widths, *p.data)

    def _collapsed(self, what: str) -> np.ndarray:
        if self.theta is None:
            raise UserError(
                f"{what} come from collapsed draws: sample with method='collapsed', "
                "got method='weights'."
            )
        return self.theta

    def _over_draws(self, function) -> np.ndarray:
        attentioned, *given = self.problem.data
        kernel = path_kernel(attentioned)
        with one_lapack_thread():
            return np.asarray(_map_draws(function, kernel, *given, jnp.asarray(self.U)))

    def _check(self, attentioned_test) -> jax.Array:
        heads, n = self.problem.heads, self.problem.attentioned.shape[2]
        attentioned_test = check_attentioned("attentioned_test", attentioned_test, heads, n)
        return multiple_outputs.expand(attentioned_test, self.problem.outputs)


def collapsed_draws(problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U and the mean predictor's linear map for every theta of (draws, size)."""
    with one_lapack_thread():
        U, linear = _collapsed_draws(problem.layout, jnp.asarray(theta), *problem.data)
        return np.asarray(U), np.asarray(linear)


@functools.partial(jax.jit, static_argnums=0)
def _map_draws(function, kernel, labels, temperature, U_SxDxD):
    return jax.lax.map(lambda U: function(kernel, labels, temperature, psd_factor(U)), U_SxDxD)


@functools.partial(jax.jit, static_argnums=0)
def _collapsed_draws(layout, theta_Sxp, attentioned, labels, temperature):
    kernel = path_kernel(attentioned)

    def one(theta):
        factor_Dxr = bartlett.factors(layout, theta)[-1]
        U_DxD = factor_Dxr @ factor_Dxr.T
        fit = fit_labels(gram(kernel, factor_Dxr), labels, temperature)
        return U_DxD, mean_weights(attentioned, fit, U_DxD)

    return jax.lax.map(one, theta_Sxp)


@functools.partial(jax.jit, static_argnums=0)
def _mean_variance(layout, theta_Sxp, attentioned, labels, temperature, test_BxDxn):
    kernel = path_kernel(attentioned)

    def add(total_B, theta):
        factor_Dxr = bartlett.factors(layout, theta)[-1]
        fit = fit_labels(gram(kernel, factor_Dxr), labels, temperature)
        return total_B + variances(factor_Dxr, attentioned, fit.cholesky_PxP, test_BxDxn), None

    empty_B = jnp.zeros(len(test_BxDxn), test_BxDxn.dtype)
    return jax.lax.scan(add, empty_B, theta_Sxp)[0] / len(theta_Sxp)


_reconstruct = jax.jit(reconstruct, static_argnames=("layout", "widths"))
