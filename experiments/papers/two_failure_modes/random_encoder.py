"""An untrained encoder whose inputs are vectors, for weight_laws.py and gradients.py."""

import jax.numpy as jnp

from jaxformer.models.encoder import EncoderSpec


def random_encoder(
    length: int,
    width: int,
    layers: int,
    heads: int,
    beta: float,
    alpha_sa: float,
    sigma2: float,
    sigma_b2: float,
) -> EncoderSpec:
    """Returns an encoder without a vocabulary, in float32.

    Args:
      length: The number of tokens.
      width: The width N.
      layers: The depth L.
      heads: The number of heads.
      beta: The standard deviation of the attention scores, divided by sqrt(ln T).
      alpha_sa: The strength of the residual connection around attention.
      sigma2: The variance of values and of the MLP's weights, times the fan-in.
      sigma_b2: The variance of the biases.
    """
    return EncoderSpec(
        vocab_size=0,
        length=length,
        width=width,
        layers=layers,
        heads=heads,
        beta=beta,
        alpha_sa=alpha_sa,
        sigma_v2=sigma2,
        sigma_w2=sigma2,
        sigma_b2=sigma_b2,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
    )
