"""The hidden covariance of finite random mixing networks, to hold against the covariance SDE.

    h_{l+1} = W^v_l h_l (I + A_l)        Phi_l = h_l^T h_l / n

Recursions with the same law: "network" is the literal one, built from the mixing functions of the
MixiT model; "wishart" needs no h: Phi' | G ~ Wishart_m(n, G)/n, and only the m x m factor of Phi is
kept; "decoder" is the MixiT decoder itself at initialisation, which may keep its residuals, norms
and MLPs, and then no longer follows the SDE.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import UserError, unknown
from jaxformer.models.attention import mix, mixing_matrix, mixing_std
from theory.covariance_sde.coefficients import check_covariance
from theory.covariance_sde.decoder import decoder_covariance
from theory.numerics import check_count, check_range

METHODS = ("wishart", "network", "decoder")


def measure(
    key: jax.Array,
    phi0: jax.Array,
    width: int,
    depth: int,
    samples: int,
    layers=None,
    causal: bool = False,
    heads: int = 1,
    output_projection: bool = False,
    mixing_scale: str | float = "theory",
    method: str = "wishart",
    residual_scale: float = 0.0,
    branch_scale: float = 1.0,
    use_norm: bool = False,
    use_mlp: bool = False,
) -> jax.Array:
    """Phi after `depth` layers of independent networks, (samples, m, m), at tau = depth/width.

    With `layers`, an increasing list of depths in [0, depth]: (samples, len(layers), m, m).
    `mixing_scale` is that of attention.mixing_std. Methods "network" and "decoder" need width >= m,
    because h starts as sqrt(n) [Phi0^{1/2}; 0]. The decoder is causal and has an output projection;
    only it has residuals (h <- r h + b branch), norms and MLPs.
    """
    phi0 = check_covariance("phi0", phi0)
    m = phi0.shape[-1]
    check_count("width", width, 2)
    check_count("heads", heads)
    check_count("depth", depth, 0)
    check_count("samples", samples)
    if width % heads:
        raise UserError(f"the width must be a multiple of the heads, got {width} and {heads}.")
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if method != "wishart" and width < m:
        raise UserError(f"method {method!r} needs a width of at least m = {m}, got {width}.")
    stops = _check_layers(layers, depth)
    architecture = (residual_scale, branch_scale, use_norm, use_mlp)
    if method == "decoder":
        if not (causal and output_projection):
            raise UserError(
                "method 'decoder' is causal and has an output projection; say causal=True and "
                f"output_projection=True, got {causal} and {output_projection}."
            )
        start, wanted = square_root(phi0), tuple(stops.tolist())
        options = (heads, mixing_scale, *architecture)
        phi = decoder_covariance(key, start, width, wanted, samples, *options)
        return phi[:, 0] if layers is None else phi
    if architecture != (0.0, 1.0, False, False):
        raise UserError(
            "residual_scale, branch_scale, use_norm and use_mlp need method='decoder', got "
            f"{method!r}: the SDE describes networks without them."
        )
    named, std = mixing_scale, None
    if not isinstance(mixing_scale, str):  # traced, so that a new number compiles nothing
        check_range("mixing_scale", mixing_scale, 0.0)
        named, std = None, jnp.full((heads,), mixing_scale, phi0.dtype)
    rows = width if method == "network" else m
    options = (rows, samples, causal, heads, output_projection, named, method)
    phi = _run(key, phi0, stops, width, std, *options)
    return phi[:, 0] if layers is None else phi


def square_root(phi: jax.Array) -> jax.Array:
    """H with H^T H = Phi for a positive semi-definite Phi of any rank."""
    eigenvalues, vectors = jnp.linalg.eigh(phi)
    return jnp.sqrt(jnp.maximum(eigenvalues, 0))[..., :, None] * jnp.swapaxes(vectors, -1, -2)


@functools.partial(jax.jit, static_argnums=(5, 6, 7, 8, 9, 10, 11))
def _run(
    key,
    phi0,
    stops,
    width,
    std,
    rows,
    samples,
    causal,
    heads,
    output_projection,
    mixing_scale,
    method,
):
    # The width is static only as the shape of h: one compilation serves every Wishart recursion.
    m = phi0.shape[-1]
    layer = {"wishart": _wishart_layer, "network": _network_layer}[method]
    start_RxM = jnp.zeros((rows, m), phi0.dtype).at[:m].set(square_root(phi0))

    def one_sample(sample_key):
        def advance(l, h_RxM):
            std_key, layer_key = jax.random.split(jax.random.fold_in(sample_key, l))
            std_H = std
            if mixing_scale is not None:
                std_H = mixing_std(std_key, mixing_scale, heads, m, width).astype(phi0.dtype)
            return layer(layer_key, h_RxM, width, std_H, causal, output_projection)

        def until(h_RxM, segment):
            h_RxM = jax.lax.fori_loop(segment[0], segment[1], advance, h_RxM)
            return h_RxM, h_RxM.T @ h_RxM

        bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, int), stops[:-1]]), stops], axis=-1)
        return jax.lax.scan(until, start_RxM, bounds)[1]

    # A batch holds the weights of its networks: about 64 MB of them.
    weights = rows * rows if method == "network" else heads * m * m
    batch = max(1, min(samples, 2**23 // weights))
    return jax.lax.map(one_sample, jax.random.split(key, samples), batch_size=batch)


def _network_layer(key, h_NxM, width, std_H, causal, output_projection):
    """h' = [W^o] concat_h(W^v_h h (I + A_h)), h in units of sqrt(n) so that Phi = h^T h."""
    key_v, key_a, key_o = jax.random.split(key, 3)
    heads, (width, m) = len(std_H), h_NxM.shape  # the width as a shape
    w_v_NxN = jax.random.normal(key_v, (width, width), h_NxM.dtype) / width**0.5
    v_TxHxK = (w_v_NxN @ h_NxM).T.reshape(m, heads, width // heads)
    mixed_TxHxK = mix(mixing_matrix(key_a, heads, m, std_H, causal), v_TxHxK)
    h_NxM = mixed_TxHxK.reshape(m, width).T
    if output_projection:
        h_NxM = jax.random.normal(key_o, (width, width), h_NxM.dtype) @ h_NxM / width**0.5
    return h_NxM


def _wishart_layer(key, f_MxM, width, std_H, causal, output_projection):
    """F' with F'^T F' ~ sum_h Wishart_m(n_h, G_h)/n, G_h = (F (I + A_h))^T (F (I + A_h))."""
    key_b, key_a, key_o = jax.random.split(key, 3)
    heads, m = len(std_H), f_MxM.shape[-1]
    # The model's A acts on rows of tokens; here tokens are columns.
    a_HxMxM = jnp.swapaxes(mixing_matrix(key_a, heads, m, std_H, causal), -1, -2)
    b_HxMxM = _bartlett(key_b, heads, m, width // heads, f_MxM.dtype)
    f_HxMxM = b_HxMxM @ (f_MxM @ a_HxMxM) / width**0.5
    f_MxM = f_HxMxM[0]
    if heads > 1:
        f_MxM = jnp.linalg.qr(f_HxMxM.reshape(heads * m, m), mode="r")
    if output_projection:
        f_MxM = _bartlett(key_o, 1, m, width, f_MxM.dtype)[0] @ f_MxM / width**0.5
    return f_MxM


def _bartlett(key, heads: int, m: int, n, dtype) -> jax.Array:
    """B with B^T B ~ Wishart_m(n, I): upper triangular when n >= m, else n Gaussian rows."""
    key_normal, key_chi = jax.random.split(key)
    normal_HxMxM = jax.random.normal(key_normal, (heads, m, m), dtype)
    index_M = jnp.arange(m)
    degrees_M = jnp.maximum(n - index_M, 1)
    chi_HxM = jnp.sqrt(jax.random.chisquare(key_chi, degrees_M[None], (heads, m), dtype))
    bartlett = jnp.triu(normal_HxMxM, 1) + chi_HxM[:, :, None] * jnp.eye(m, dtype=dtype)[None]
    few_rows = jnp.where((index_M < n)[None, :, None], normal_HxMxM, 0)
    return jnp.where(n < m, few_rows, bartlett)


def _check_layers(layers, depth: int) -> jax.Array:
    stops = np.asarray([depth] if layers is None else layers)
    ordered = stops.ndim == 1 and len(stops) and (np.diff(stops) > 0).all()
    if not ordered or (stops != stops.astype(int)).any() or stops[0] < 0 or stops[-1] > depth:
        raise UserError(
            f"layers must be increasing whole numbers in [0, {depth}], got {stops.tolist()}."
        )
    return jnp.asarray(stops, int)
