"""The coefficients of the covariance SDE and the exact moments of one layer.

**One layer.** MixiT without skips, norms and MLPs is (arXiv 2506.01115)

    h' = W^v h (I + A),     A = s (W - Wbar),     s^2 = 1/(n m)

with h of shape (n, m), W^v iid N(0, 1/n), W iid N(0, 1), and Wbar the mean of each column of W. For
the covariance Phi = h^T h / n this means in law

    Phi' | G ~ Wishart_m(n, G)/n,     G = (I + A)^T Phi (I + A).

**Limit.** For n -> inf at tau = l/n (Theorem 2.1, Ito)

    dPhi = b(Phi) I_m dtau + [Sigma^v(Phi) + Sigma^M(Phi)]^{1/2} dB.

`drift` returns b I_m and `covariance` the sum of the Sigmas. The paper's (2.4) omits the identity
after b, and its (A.7) has I_n instead of I_m.

**Variants.** A variant is described by one projection for each token: column a of A is s P_a w_a,
where w_a is column a of W and P_a = I - 11^T/m. With causal masking P_a is I - 11^T/a on the first
a entries and 0 elsewhere.

`Mixing` selects the variant. All functions accept leading axes, (.., m, m).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.covariance_sde.mixing import UNMASKED, Mixing, check_width
from theory.numerics import check_range, in_float64, is_concrete


@in_float64
def drift(phi: jax.Array, mixing: Mixing = UNMASKED, width: int | None = None) -> jax.Array:
    """Returns the drift of the SDE, diag_a(kappa tr(P_a Phi)/m), (.., m, m).

    Without masking it is kappa b I with (Equation (2.4), corrected)

        b = Tr(Phi)/m - (1/m^2) sum_ab Phi^ab.

    With causal masking token a has (kappa/m) [Tr(Phi_{<=a}) - sum(Phi_{<=a})/a], which is 0 for the
    first token. Phi_{<=a} is the block of the first a tokens. The output projection does not change
    the drift.

    Args:
        phi: covariance, (.., m, m).
        mixing: variant of MixiT.
        width: n, needed if the scale of `mixing` is a number.

    Example:
        >>> drift(jnp.eye(2))
        Array([[0.5, 0. ],
               [0. , 0.5]], dtype=float64)
    """
    phi = check_covariance("phi", phi)
    kappa = mixing.kappa(phi.shape[-1], width)
    diagonal = kappa * mean_quadratic(phi, mixing.causal) / phi.shape[-1]
    return jnp.where(
        _with_leading_axes(np.eye(phi.shape[-1], dtype=bool), phi), diagonal[..., None], 0
    )


@in_float64
def covariance(phi: jax.Array, mixing: Mixing = UNMASKED, width: int | None = None) -> jax.Array:
    """Returns the covariance of the noise of the SDE, c Sigma^v + (kappa/H) Sigma^M, (.., p, p).

    c is 2 with the output projection and 1 without. Rows and columns are the upper triangle of Phi
    in the order of np.triu_indices(m). With the Kronecker delta d (Equations (A.8) to (A.12))

        Sigma^v_{ab,cd} = Phi^ac Phi^bd + Phi^ad Phi^bc
        Sigma^M_{ab,cd} = d_ac C_a(b,d) + d_ad C_a(b,c) + d_bc C_b(a,d) + d_bd C_b(a,c)
        C_a(b,d) = (1/m) Phi^{.b T} P_a Phi^{.d}.

    Args as in `drift`.
    """
    phi = check_covariance("phi", phi)
    a, b, c, d = upper_triangle_pairs(phi.shape[-1])
    value = phi[..., a, c] * phi[..., b, d] + phi[..., a, d] * phi[..., b, c]
    rate = mixing.kappa(phi.shape[-1], width) / mixing.heads
    mixed = _mixing_covariance(mixing_kernel(phi, mixing.causal), a, b, c, d)
    return (2.0 if mixing.output_projection else 1.0) * value + rate * mixed


@in_float64
def one_step_mean(phi: jax.Array, width: int, mixing: Mixing = UNMASKED) -> jax.Array:
    """Returns the mean of one layer, E[Phi'] = Phi + drift(Phi)/n, exact at every width n.

    Args:
        phi: the covariance of m tokens, (.., m, m).
        width: n.
        mixing: the kind of random mixing.
    """
    check_width(width, mixing)
    return jnp.asarray(phi) + drift(phi, mixing, width) / width


@in_float64
def one_step_covariance(phi: jax.Array, width: int, mixing: Mixing = UNMASKED) -> jax.Array:
    """Returns the covariance Cov(Phi') of one layer, exact at every width n, (.., p, p).

    With E = E[Phi'] and K the covariance of G for one head,

        K_{ab,cd} = kappa Sigma^M_{ab,cd}/n
                    + (d_ac d_bd + d_ad d_bc) (kappa/(n m))^2 tr(P_a Phi P_b Phi)
        Cov_{ab,cd} = [E^ac E^bd + E^ad E^bc + K_{ac,bd} + K_{ad,bc}]/n + K_{ab,cd}/H,

    so n Cov = Sigma^v + (kappa/H) Sigma^M + O(1/n). The output projection applies the Wishart map
    again. With C the covariance above, the result is

        [E^ac E^bd + E^ad E^bc + C_{ac,bd} + C_{ad,bc}]/n + C_{ab,cd}.

    Args:
        phi, width, mixing: as in `one_step_mean`.
    """
    phi = check_covariance("phi", phi)
    check_width(width, mixing)
    n, m = width, phi.shape[-1]
    kappa = mixing.kappa(m, width)
    mean = one_step_mean(phi, width, mixing)
    kernel = mixing_kernel(phi, mixing.causal)
    projections = _projections(m, mixing.causal, phi.dtype)
    product_AxMxM = jnp.einsum("aij,...jk->...aik", projections, phi)
    trace_AxB = jnp.einsum("...aij,...bji->...ab", product_AxMxM, product_AxMxM)

    def one_head(a, b, c, d):
        linear = kappa / n * _mixing_covariance(kernel, a, b, c, d)
        matches = ((a == c) & (b == d)).astype(int) + ((a == d) & (b == c)).astype(int)
        matches = _with_leading_axes(matches, linear)
        return linear + matches * (kappa / (n * m)) ** 2 * trace_AxB[..., a, b]

    # Returns the covariance of Wishart(n, G)/n given G, averaged over a G with mean E and
    # covariance `cov`.
    def wishart(cov, a, b, c, d):
        value = mean[..., a, c] * mean[..., b, d] + mean[..., a, d] * mean[..., b, c]
        return (value + cov(a, c, b, d) + cov(a, d, b, c)) / n

    def mixed_heads(a, b, c, d):
        return wishart(one_head, a, b, c, d) + one_head(a, b, c, d) / mixing.heads

    abcd = upper_triangle_pairs(m)
    mixed = mixed_heads(*abcd)
    return wishart(mixed_heads, *abcd) + mixed if mixing.output_projection else mixed


@in_float64
def mean(
    phi0: jax.Array, tau: float | jax.Array, mixing: Mixing = UNMASKED, width: int | None = None
) -> jax.Array:
    """Returns the mean E[Phi_tau] of the SDE, (m, m).

    Off-diagonal means are constant and the diagonal obeys a linear ODE, solved by a matrix
    exponential. Without masking every diagonal entry gains (t0 - M0)(e^{kappa f tau} - 1)/f, with
    t = Tr(Phi)/m, M the mean of all entries and f = 1 - 1/m.

    Args:
        phi0: covariance at tau = 0, (m, m).
        tau: depth divided by width.
        mixing: variant of MixiT.
        width: n, needed if the scale of `mixing` is a number.
    """
    phi = check_covariance("phi0", phi0)
    check_range("tau", tau, 0.0)
    m = phi.shape[-1]
    rate = mixing.kappa(m, width) / m
    projections = _projections(m, mixing.causal, phi.dtype)
    weights_AxM = rate * jnp.diagonal(projections, axis1=-2, axis2=-1)
    diagonal = jnp.diagonal(phi)
    source = rate * mean_quadratic(phi, mixing.causal) - weights_AxM @ diagonal
    # With a constant last entry the ODE diagonal' = weights diagonal + source is homogeneous.
    generator = jnp.zeros((m + 1, m + 1), phi.dtype).at[:m, :m].set(weights_AxM)
    flow = jax.scipy.linalg.expm(tau * generator.at[:m, m].set(source))
    return phi + jnp.diag(flow[:m] @ jnp.append(diagonal, 1.0) - diagonal)


@in_float64
def mean_trace(
    phi0: jax.Array, tau: float | jax.Array, width: int | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns E[t] and E[M] in closed form, for no masking and the theory's scale.

    t = Tr(Phi)/m and M is the mean of all entries of Phi. With f = 1 - 1/m,

        SDE                            t - M = (t0 - M0) e^{f tau}
        l = tau n layers of width n    t - M = (t0 - M0) (1 + f/n)^l,

    and M increases by 1/m of the increase of t.

    Args:
        phi0: covariance at tau = 0, (m, m).
        tau: depth divided by width, of any shape.
        width: n for layers of finite width; the SDE if it is left out.
    """
    phi = check_covariance("phi0", phi0)
    m = phi.shape[-1]
    t0, M0, f = jnp.trace(phi) / m, phi.mean(), 1 - 1 / m
    tau = jnp.asarray(tau, phi.dtype)
    growth = jnp.exp(f * tau) if width is None else (1 + f / width) ** (tau * width)
    gain = (t0 - M0) * (growth - 1) / f
    return t0 + gain, M0 + gain / m


def mean_quadratic(phi: jax.Array, causal: bool) -> jax.Array:
    """Returns tr(P_a Phi) for each token a, (.., m)."""
    projections = _projections(phi.shape[-1], causal, phi.dtype)
    return jnp.einsum("aij,...ij->...a", projections, phi)


def mixing_kernel(phi: jax.Array, causal: bool) -> jax.Array:
    """Returns C_a(b, d) = (1/m) Phi^{.b T} P_a Phi^{.d}, (.., m, m, m)."""
    m = phi.shape[-1]
    projections = _projections(m, causal, phi.dtype)
    return jnp.einsum("...ib,aij,...jd->...abd", phi, projections, phi) / m


def upper_triangle_pairs(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the indices a, b of each row and c, d of each column of a (p, p) covariance."""
    first, second = np.triu_indices(m)
    shape = (len(first), len(first))
    a, b = (np.broadcast_to(x[:, None], shape) for x in (first, second))
    return a, b, a.T, b.T


@in_float64
def square_root(phi: jax.Array) -> jax.Array:
    """Returns H with H^T H = Phi for a positive semi-definite Phi of any rank."""
    eigenvalues, vectors = jnp.linalg.eigh(phi)
    return jnp.sqrt(jnp.maximum(eigenvalues, 0))[..., :, None] * jnp.swapaxes(vectors, -1, -2)


def check_covariance(name: str, phi: Any) -> jax.Array:
    """Returns `phi` as floats after checking shape, m >= 2, finiteness, symmetry and positivity."""
    if is_concrete(phi):
        phi = np.asarray(phi, float)
    shape = phi.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        raise UserError(f"{name} must be (m, m) with m of at least 2 tokens, got shape {shape}.")
    if is_concrete(phi):
        if not np.isfinite(phi).all():
            raise UserError(f"{name} must be finite, got {phi[~np.isfinite(phi)].flat[0]}.")
        # Allow the round-off of the working precision.
        slack = np.sqrt(jnp.finfo(jnp.result_type(float)).eps) * max(np.abs(phi).max(), 1e-300)
        asymmetry = np.abs(phi - np.swapaxes(phi, -1, -2)).max()
        if asymmetry > slack:
            raise UserError(f"{name} must be symmetric, got |phi - phi^T| up to {asymmetry:.3g}.")
        smallest = np.linalg.eigvalsh(phi).min()
        if smallest < -slack:
            raise UserError(
                f"{name} must be positive semi-definite, got a smallest eigenvalue {smallest:.3g}."
            )
    return jnp.asarray(phi, jnp.result_type(float))


def _projections(m: int, causal: bool, dtype) -> jax.Array:
    """Returns P_a, (m, m, m): the identity minus the mean over the entries that token a sees."""
    visible = np.tril(np.ones((m, m))) if causal else np.ones((m, m))
    outer = visible[:, :, None] * visible[:, None, :]
    p_AxMxM = np.eye(m)[None] * visible[:, :, None] - outer / visible.sum(-1)[:, None, None]
    return jnp.asarray(p_AxMxM, dtype)


def _mixing_covariance(kernel, a, b, c, d) -> jax.Array:
    """Returns Sigma^M_{ab,cd} from C, whose subscript is the shared index."""
    terms = ((a == c, a, b, d), (a == d, a, b, c), (b == c, b, a, d), (b == d, b, a, c))
    total = 0.0
    for same, i, j, k in terms:
        value = kernel[..., i, j, k]
        total += jnp.where(_with_leading_axes(same, value), value, 0)
    return jnp.asarray(total)


def _with_leading_axes(index: np.ndarray, like: jax.Array) -> np.ndarray:
    """Adds axes of length 1 in front of `index` until it has as many axes as `like`."""
    return np.reshape(index, (1,) * (like.ndim - index.ndim) + index.shape)
