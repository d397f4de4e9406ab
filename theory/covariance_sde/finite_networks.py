"""The hidden covariance of finite random mixing networks, to compare with the covariance SDE.

    h_{l+1} = W^v_l h_l (I + A_l)        Phi_l = h_l^T h_l / n

* `Network` computes this recursion with the mixing functions of the MixiT model.
* `Wishart` has the same law and needs no h. With G = (I + A)^T Phi (I + A) it draws
  Phi' ~ Wishart_m(n, G)/n, and stores only the m x m factor of Phi.
* `Decoder` is the MixiT decoder at initialisation (`theory.covariance_sde.decoder`).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.models.attention import mix, mixing_matrix, mixing_std
from theory.covariance_sde.coefficients import check_covariance, square_root
from theory.covariance_sde.decoder import Decoder
from theory.covariance_sde.ensemble import Ensemble, check_at_least_m_wide, networks_at_once
from theory.covariance_sde.mixing import UNMASKED, Mixing, check_width
from theory.numerics import check_count, check_range, in_float64, states_at


@dataclass(frozen=True)
class Wishart:
    """Networks simulated by a factor of Phi, without h.

    Any width is allowed, also below m. A layer costs O(m^3).
    """

    def sample(self, ensemble: Ensemble) -> jax.Array:
        """Returns Phi at each recorded depth, (samples, layers, m, m)."""
        m = ensemble.phi0.shape[-1]
        return _recursion(ensemble, m, _wishart_layer, ensemble.mixing.heads * m * m)


@dataclass(frozen=True)
class Network:
    """Networks simulated by their hidden states h, which start as sqrt(n) [Phi0^{1/2}; 0].

    The width n must be at least m. A layer costs O(n^2 m).
    """

    def sample(self, ensemble: Ensemble) -> jax.Array:
        """Returns Phi at each recorded depth, (samples, layers, m, m)."""
        check_at_least_m_wide("a network", ensemble)
        width = ensemble.width
        return _recursion(ensemble, width, _network_layer, width * width)


WISHART = Wishart()


@in_float64
def measure(
    key: jax.Array,
    phi0: jax.Array,
    width: int,
    depth: int,
    samples: int,
    layers: Sequence[int] | None = None,
    mixing: Mixing = UNMASKED,
    network: Wishart | Network | Decoder = WISHART,
) -> jax.Array:
    """Samples the covariance of independent finite networks at tau = depth/width.

    Args:
        key: PRNG key.
        phi0: covariance of the input tokens, (m, m).
        width: n, a multiple of the heads.
        depth: number of layers.
        samples: number of networks.
        layers: increasing depths in [0, depth] at which to record; only `depth` by default.
        mixing: variant of MixiT.
        network: `Wishart`, `Network` or `Decoder`.

    Returns:
        Phi after `depth` layers, (samples, m, m), or (samples, len(layers), m, m) with `layers`.

    Example:
        >>> phi0 = jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> measure(jax.random.key(0), phi0, width=50, depth=25, samples=1000).shape
        (1000, 2, 2)
    """
    phi0 = check_covariance("phi0", phi0)
    check_width(width, mixing)
    check_count("depth", depth, 0)
    check_count("samples", samples)
    stops = _check_layers(layers, depth)
    phi = network.sample(Ensemble(key, phi0, width, stops, samples, mixing))
    return phi[:, 0] if layers is None else phi


def _recursion(ensemble: Ensemble, rows: int, layer: Callable, weights: int) -> jax.Array:
    """Runs `layer` repeatedly on a state of shape (rows, m).

    A layer draws `weights` random numbers, which limits how many networks fit in memory at once.
    """
    key, phi0, width, layers, samples, mixing = ensemble
    std = None
    # A numeric scale becomes a traced array, so that a new value needs no compilation.
    if not isinstance(mixing.scale, str):
        check_range("the scale of mixing", mixing.scale, 0.0)
        std = jnp.full((mixing.heads,), mixing.scale, phi0.dtype)
        mixing = mixing.without_scale()
    batch = networks_at_once(samples, weights)
    stops = jnp.asarray(layers, int)
    return _run(key, phi0, stops, width, std, samples, mixing, rows, layer, batch)


@functools.partial(jax.jit, static_argnums=(5, 6, 7, 8, 9))
def _run(key, phi0, stops, width, std, samples, mixing: Mixing, rows, layer: Callable, batch):
    # `width` is traced, so one compilation serves the Wishart recursion at every width.
    m = phi0.shape[-1]
    start_RxM = jnp.zeros((rows, m), phi0.dtype).at[:m].set(square_root(phi0))

    def one_sample(sample_key):
        def advance(l, h_RxM):
            std_key, layer_key = jax.random.split(jax.random.fold_in(sample_key, l))
            std_H = std
            if std is None:
                std_H = mixing_std(std_key, mixing.scale, mixing.heads, m, width)
                std_H = std_H.astype(phi0.dtype)
            return layer(layer_key, h_RxM, width, std_H, mixing)

        return states_at(stops, advance, start_RxM, lambda h_RxM: h_RxM.T @ h_RxM)

    return jax.lax.map(one_sample, jax.random.split(key, samples), batch_size=batch)


def _network_layer(key, h_NxM, width, std_H, mixing: Mixing):
    """Returns the next h: W^v h (I + A) of each head, concatenated, then times W^o if there is one.

    Here h is divided by sqrt(n), so that Phi = h^T h.
    """
    key_v, key_a, key_o = jax.random.split(key, 3)
    heads = len(std_H)
    width, m = h_NxM.shape  # the argument `width` is traced; a shape needs this constant
    w_v_NxN = jax.random.normal(key_v, (width, width), h_NxM.dtype) / width**0.5
    v_MxHxD = (w_v_NxN @ h_NxM).T.reshape(m, heads, width // heads)
    mixed_MxHxD = mix(mixing_matrix(key_a, heads, m, std_H, mixing.causal), v_MxHxD)
    h_NxM = mixed_MxHxD.reshape(m, width).T
    if mixing.output_projection:
        h_NxM = jax.random.normal(key_o, (width, width), h_NxM.dtype) @ h_NxM / width**0.5
    return h_NxM


def _wishart_layer(key, f_MxM, width, std_H, mixing: Mixing):
    """Returns F' with F'^T F' ~ sum_h Wishart_m(n/H, G_h)/n, G_h = (F (I + A_h))^T F (I + A_h)."""
    key_b, key_a, key_o = jax.random.split(key, 3)
    heads, m = len(std_H), f_MxM.shape[-1]
    # The model's A acts on rows of tokens; here tokens are columns.
    a_HxMxM = jnp.swapaxes(mixing_matrix(key_a, heads, m, std_H, mixing.causal), -1, -2)
    b_HxMxM = _bartlett(key_b, heads, m, width // heads, f_MxM.dtype)
    f_HxMxM = b_HxMxM @ (f_MxM @ a_HxMxM) / width**0.5
    f_MxM = f_HxMxM[0]
    if heads > 1:  # R of the QR decomposition has R^T R = sum_h F_h^T F_h
        f_MxM = jnp.linalg.qr(f_HxMxM.reshape(heads * m, m), mode="r")
    if mixing.output_projection:
        f_MxM = _bartlett(key_o, 1, m, width, f_MxM.dtype)[0] @ f_MxM / width**0.5
    return f_MxM


def _bartlett(key, heads: int, m: int, n, dtype) -> jax.Array:
    """Returns B with B^T B ~ Wishart_m(n, I): upper triangular if n >= m, else n Gaussian rows."""
    key_normal, key_chi = jax.random.split(key)
    normal_HxMxM = jax.random.normal(key_normal, (heads, m, m), dtype)
    index_M = jnp.arange(m)
    degrees_M = jnp.maximum(n - index_M, 1)
    chi_HxM = jnp.sqrt(jax.random.chisquare(key_chi, degrees_M[None], (heads, m), dtype))
    bartlett = jnp.triu(normal_HxMxM, 1) + chi_HxM[:, :, None] * jnp.eye(m, dtype=dtype)[None]
    few_rows = jnp.where((index_M < n)[None, :, None], normal_HxMxM, 0)
    return jnp.where(n < m, few_rows, bartlett)


def _check_layers(layers: Sequence[int] | None, depth: int) -> tuple[int, ...]:
    stops = np.asarray([depth] if layers is None else layers)
    ordered = stops.ndim == 1 and len(stops) and (np.diff(stops) > 0).all()
    if not ordered or (stops != stops.astype(int)).any() or stops[0] < 0 or stops[-1] > depth:
        raise UserError(
            f"layers must be increasing whole numbers in [0, {depth}], got {stops.tolist()}."
        )
    return tuple(int(stop) for stop in stops)
