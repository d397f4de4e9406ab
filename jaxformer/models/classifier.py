"""The decoder that names the class of a whole text instead of its next token.

    logits_C = Whead pool(RMSNorm(h))

pool "last" is the last token that is no padding (the authors of the MixiT papers), "first" the
first one, "mean" the mean over all that are no padding. Paths: those of the decoder, with
head/kernel in place of unembed/kernel.
"""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import check_choice, check_range
from jaxformer.models.decoder import Decoder, DecoderSpec
from jaxformer.models.layers import normal
from jaxformer.models.model import take_positions

POOLS = ("last", "first", "mean")


@dataclass(frozen=True, kw_only=True)
class ClassifierSpec(DecoderSpec):
    """The numbers of a decoder, and how many classes there are."""

    classes: int
    pool: str = "last"

    def __post_init__(self):
        super().__post_init__()
        check_range("classes", self.classes, 2, 10**6)
        check_choice("pool", self.pool, POOLS)


class Classifier(Decoder):
    """tokens (B, T) -> logits (B, 1, C); there is one answer whatever the positions."""

    spec: ClassifierSpec

    @nn.compact
    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        h_BxTxN = super().__call__(tokens_BxT, None, head=False)
        return nn.Dense(
            spec.classes,
            use_bias=False,
            kernel_init=normal(spec.init_std),
            name="head",
            **spec.dtypes,
        )(pooled(h_BxTxN, tokens_BxT != spec.pad, spec.pool))


def pooled(h_BxTxN: jax.Array, seen_BxT: jax.Array, pool: str) -> jax.Array:
    """(B, 1, N) of the tokens that are seen; of an empty text its first token."""
    if pool == "first":
        return h_BxTxN[:, :1]
    n_B = jnp.maximum(seen_BxT.sum(-1), 1)
    if pool == "last":
        return take_positions(h_BxTxN, n_B[:, None] - 1)
    seen = seen_BxT.at[:, 0].set(True)[..., None].astype(h_BxTxN.dtype)
    return (h_BxTxN * seen).sum(1, keepdims=True) / n_B[:, None, None].astype(h_BxTxN.dtype)


def classifier(**numbers) -> Classifier:
    """The classifier with the numbers of a `ClassifierSpec`."""
    return Classifier(ClassifierSpec(**numbers))
