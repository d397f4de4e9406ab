"""The random encoders that the figures of this paper measure, and their blocks."""

from typing import NamedTuple

import jax
import numpy as np

from theory.signal import Block, encoder


class Encoders(NamedTuple):
    """The random networks of a figure: one for each seed."""

    length: int
    width: int
    seed: int
    n_seeds: int
    heads: int = 1

    def cosines(self, block: Block, layers: int) -> np.ndarray:
        """(seeds, layers + 1) mean cosines, measured in float32 because that is faster."""
        keys = jax.vmap(jax.random.key)(np.arange(self.seed, self.seed + self.n_seeds))
        sizes = (layers, self.length, self.width, self.heads)
        signal = encoder.measure(keys, block, *sizes, dtype=np.float32)
        return np.asarray(signal.cosine, float)


class Strengths(NamedTuple):
    """The MLP's residual weight and the variances, which are the same in all blocks of a figure."""

    alpha_mlp: float
    sigma2: float
    sigma_b2: float

    def block(self, beta, alpha_sa) -> Block:
        return Block(beta, alpha_sa, self.alpha_mlp, self.sigma2, self.sigma2, self.sigma_b2)
