"""The linear maps, norms and biases of `network`, with the dtypes of a `PretrainedSpec`."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.models import layers
from jaxformer.models.half_precision import add_to_all
from jaxformer.models.pretrained.spec import PretrainedSpec


class HeadNorms(nn.Module):
    """A norm without bias for each head of (B, T, H, D): head_0 to head_{H-1}."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxHxD: jax.Array) -> jax.Array:
        normed = [
            norm(self.spec, f"head_{h}", has_bias=False)(x_BxTxHxD[:, :, h])
            for h in range(x_BxTxHxD.shape[2])
        ]
        return jnp.stack(normed, 2)


class Bias(nn.Module):
    """Adds a learned vector, the bias of a tied unembedding."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxV: jax.Array) -> jax.Array:
        shape = x_BxTxV.shape[-1:]
        bias_V = self.param("bias", nn.initializers.zeros, shape, self.spec.param_dtype)
        return add_to_all(x_BxTxV, jnp.asarray(bias_V))


def dense(spec: PretrainedSpec, features: int, name: str, bias: bool) -> layers.Dense:
    """Returns a linear map with the initial standard deviation and dtypes of a spec."""
    return layers.dense(features, name, spec.init_std, bias, **spec.dtypes)


def norm(spec: PretrainedSpec, name: str, has_bias: bool = True) -> layers.Norm:
    """Returns the norm of a spec; its statistics are computed in float32 or float64."""
    is_centred = spec.norm == "layer"
    return layers.Norm(
        eps=spec.eps,
        centred=is_centred,
        has_gain=spec.norm_params,
        has_bias=spec.norm_params and is_centred and has_bias,
        gain_offset=spec.gain_offset,
        statistics_dtype=jnp.result_type(float),
        name=name,
        **spec.dtypes,
    )


def capped(x: jax.Array, cap: float) -> jax.Array:
    """Returns cap tanh(x / cap), or x without a cap."""
    return cap * jnp.tanh(x / cap) if cap else x
