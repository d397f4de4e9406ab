"""Transformers that somebody else wrote, in Linen and in NNX, without a `tap`.

`Tagger` is examples/nlp_seq/models.py of Flax (Apache-2.0) without comments, dtypes and options.
"""

import flax.linen as nn
from flax import nnx


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        att = nn.MultiHeadDotProductAttention(2, name="att")
        x = x + att(nn.LayerNorm()(x), mask=mask, sow_weights=True)
        return x + nn.Dense(16, name="out")(nn.gelu(nn.Dense(32, name="in")(nn.LayerNorm()(x))))


class LinenTransformer(nn.Module):
    def setup(self):
        self.embed = nn.Embed(16, 16)
        self.positions = self.param("positions", nn.initializers.normal(0.1), (8, 16))
        self.blocks = [LinenBlock() for _ in range(2)]

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions[None]
        for block in self.blocks:
            x = block(x, nn.make_causal_mask(tokens))
        return self.embed.attend(x)


class TaggerBlock(nn.Module):
    @nn.compact
    def __call__(self, inputs, deterministic):
        x = nn.LayerNorm()(inputs)
        x = nn.MultiHeadDotProductAttention(
            num_heads=2, use_bias=False, broadcast_dropout=False, deterministic=deterministic
        )(x)
        x = nn.Dropout(rate=0.3)(x, deterministic=deterministic)
        x = x + inputs
        y = nn.Dense(32)(nn.LayerNorm()(x))
        y = nn.Dropout(rate=0.3)(nn.elu(y), deterministic=deterministic)
        y = nn.Dense(inputs.shape[-1])(y)
        return x + nn.Dropout(rate=0.3)(y, deterministic=deterministic)


class Tagger(nn.Module):
    @nn.compact
    def __call__(self, *, inputs, train):
        x = nn.Embed(num_embeddings=16, features=16, name="embed")(inputs.astype("int32"))
        x = nn.Dropout(rate=0.3)(x, deterministic=not train)
        for _ in range(2):
            x = TaggerBlock()(x, deterministic=not train)
        return nn.Dense(16)(nn.LayerNorm()(x))


class NNXBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.att = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(
            nnx.Linear(16, 32, rngs=rngs), nnx.gelu, nnx.Linear(32, 16, rngs=rngs)
        )

    def __call__(self, x, mask):
        x = x + self.att(self.norm(x), mask=mask)
        return x + self.mlp(x)


class NNXTransformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(16, 16, rngs=rngs)
        self.positions = nnx.Param(0.1 * rngs.normal((8, 16)))
        self.blocks = nnx.List([NNXBlock(rngs) for _ in range(2)])

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions[None]
        for block in self.blocks:
            x = block(x, nnx.make_causal_mask(tokens))
        return self.embed.attend(x)
