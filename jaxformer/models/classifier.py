"""A decoder with a classification head: logits of the classes C of a whole text.

    logits_C = Whead pool(RMSNorm(h))

The pool "last" takes the last token that is not padding, as the authors of the MixiT papers do;
"first" takes the first token; "mean" averages the tokens that are not padding. Paths are the
decoder's, with head/kernel in place of unembed/kernel.
"""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.models.decoder import Decoder, DecoderSpec
from jaxformer.models.model import take_positions

POOLS = ("last", "first", "mean")


@dataclass(frozen=True, kw_only=True)
class ClassifierSpec(DecoderSpec):
    """The hyperparameters of a decoder and of its classification head."""

    classes: int  # C, the number of classes
    pool: str = "last"  # the states that the head reads: last | first | mean

    def __post_init__(self):
        super().__post_init__()
        if self.outputs:
            raise UserError(
                f"a classifier has classes instead of outputs: set outputs=0, got {self.outputs}."
            )
        check_range("classes", self.classes, 2, 10**6)
        check_choice("pool", self.pool, POOLS)


class Classifier(Decoder):
    """The network: tokens (B, T) to logits (B, 1, C); `positions_BxK` has no effect."""

    spec: ClassifierSpec

    @nn.compact
    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        h_BxTxN = super().__call__(tokens_BxT, None, head=False)
        head = spec.linear(spec.classes, "head", spec.init_std, bias=False)
        return head(pooled(h_BxTxN, tokens_BxT != spec.pad, spec.pool))


def pooled(h_BxTxN: jax.Array, real_BxT: jax.Array, pool: str) -> jax.Array:
    """Returns the pooled states, (B, 1, N); the state of token 0 if a text is only padding.

    Args:
      h_BxTxN: the last states.
      real_BxT: booleans, false at padding.
      pool: one of POOLS.
    """
    if pool == "first":
        return h_BxTxN[:, :1]
    n_B = jnp.maximum(real_BxT.sum(-1), 1)  # the length of each text
    if pool == "last":
        return take_positions(h_BxTxN, n_B[:, None] - 1)
    real = real_BxT.at[:, 0].set(True)[..., None].astype(h_BxTxN.dtype)
    return (h_BxTxN * real).sum(1, keepdims=True) / n_B[:, None, None].astype(h_BxTxN.dtype)


def classifier(**numbers) -> Classifier:
    """Returns the classifier with the fields of a `ClassifierSpec`."""
    return Classifier(ClassifierSpec(**numbers))
