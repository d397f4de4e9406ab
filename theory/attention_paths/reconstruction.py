"""All weights of the network from one draw of the order parameters, exact and at a cost of O(N^2).

The likelihood depends on the weights only through the chain. Given a posterior draw of the chain,
all other weights are therefore drawn from the prior conditioned on the chain:

    v^(l)   = sqrt(N_l) C_l Q_l^T,  Q_l Haar, (N_l, r_l)                (LQ of a Gaussian matrix)
    V^(l)_h = sqrt(N_{l+1}) pinv(v^(l+1)) v^(l)_h + (1 - Q_{l+1} Q_{l+1}^T) Z
    V_eff   = C_1 Z + (D n)^(-1/2) U Xi (K + T)^-1 (Y - f_0 - sqrt(T) eps)        (Matheron's rule)
    V^(0)   = sqrt(N_1) pinv(v^(1)) V_eff + (1 - Q_1 Q_1^T) Z

v^(l) and C_l are defined in `bartlett`. V^(l)_h is the value matrix of head h and V^(0) the input
projection. Z and eps are standard normal, pinv is the pseudo-inverse, Xi are the training inputs,
and f_0 is the output of the network with V_eff = C_1 Z.

Suffixes of array names: I and O the widths N_l and N_{l+1}, r the rank of Q_{l+1}.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from theory.attention_paths import bartlett
from theory.attention_paths.kernel import fit_labels, kernel_of_factor, scale_inputs, store_examples
from theory.numerics import Numbers


def reconstruct(
    key: jax.Array,
    layout: bartlett.Layout,
    theta: jax.Array,
    widths: Sequence[int],
    attentioned_PxDxn: jax.Array,
    labels_P: jax.Array,
    temperature: Numbers,
) -> dict:
    """Draws all weights of a network whose order parameters have the coordinates theta.

    Args:
        key: PRNG key.
        layout: layout of theta.
        theta: Bartlett coordinates of a posterior draw.
        widths: (N_1 .. N_{L+1}).
        attentioned_PxDxn: training inputs xi.
        labels_P: training labels.
        temperature: T.

    Returns:
        Parameters of `jaxformer.models.attention_paths.AttentionPaths`.
    """
    C = bartlett.order_parameter_factors(layout, theta)[::-1]  # l = 1 .. L+1
    keys = jax.random.split(key, 2 * len(C) + 2)
    Q = [_haar(k, width, C_l.shape[1], C_l.dtype) for k, width, C_l in zip(keys, widths, C)]
    v = [width**0.5 * C_l @ Q_l.T for width, C_l, Q_l in zip(widths, C, Q)]

    params = {"readout": {"kernel": v[-1][0]}}
    for i, heads in enumerate(layout.heads):
        v_HxDxI = v[i].reshape(heads, -1, widths[i])
        products_HxrxI = jnp.linalg.pinv(C[i + 1])[None] @ v_HxDxI
        values_HxOxI = _draw_given_products(keys[len(C) + i], Q[i + 1], products_HxrxI)
        params[f"block_{i}"] = {"attn": {"value": {"kernel": values_HxOxI.transpose(2, 0, 1)}}}
    V_eff_Dxn = draw_effective_weights(keys[-1], C[0], attentioned_PxDxn, labels_P, temperature)
    V0_1xNxn = _draw_given_products(keys[-2], Q[0], (jnp.linalg.pinv(C[0]) @ V_eff_Dxn)[None])
    params["embed"] = {"kernel": V0_1xNxn[0].T}
    return {"params": params}


def draw_effective_weights(
    key: jax.Array,
    factor_Dxr: jax.Array,
    attentioned_PxDxn: jax.Array,
    labels_P: jax.Array,
    temperature: Numbers,
) -> jax.Array:
    """Draws the effective weights V_eff, (D, n), given U = F F^T and the labels.

    Args:
        key: a random key.
        factor_Dxr: a factor of the order parameter.
        attentioned_PxDxn: the path inputs of the training examples.
        temperature: T > 0.
    """
    scaled_PxDxn = scale_inputs(attentioned_PxDxn)
    z_key, noise_key = jax.random.split(key)
    shape = factor_Dxr.shape[1], scaled_PxDxn.shape[2]
    Z_rxn = jax.random.normal(z_key, shape, scaled_PxDxn.dtype)
    noise_P = jax.random.normal(noise_key, labels_P.shape, scaled_PxDxn.dtype)
    prior_Dxn = factor_Dxr @ Z_rxn
    residual_P = labels_P - jnp.tensordot(scaled_PxDxn, prior_Dxn, 2)
    residual_P = residual_P - jnp.sqrt(temperature) * noise_P
    kernel_PxP = kernel_of_factor(store_examples(attentioned_PxDxn), factor_Dxr)
    fit = fit_labels(kernel_PxP, residual_P, temperature)
    return prior_Dxn + factor_Dxr @ (factor_Dxr.T @ jnp.tensordot(fit.alpha_P, scaled_PxDxn, 1))


def _draw_given_products(key, Q_Oxr, products_HxrxI) -> jax.Array:
    """Draws Gaussian matrices V, (H, O, I), conditioned on Q^T V = `products`."""
    shape = (len(products_HxrxI), len(Q_Oxr), products_HxrxI.shape[2])
    Z_HxOxI = jax.random.normal(key, shape, Q_Oxr.dtype)
    return Z_HxOxI + Q_Oxr[None] @ (products_HxrxI - Q_Oxr.T[None] @ Z_HxOxI)


def _haar(key, rows: int, columns: int, dtype) -> jax.Array:
    Q, R = jnp.linalg.qr(jax.random.normal(key, (rows, columns), dtype))
    return Q * jnp.sign(jnp.diagonal(R))[None, :]
