"""Random encoders whose token cosines are measured, and their blocks."""

from typing import NamedTuple

import jax
import numpy as np

from theory.signal import Block, encoder


class Encoders(NamedTuple):
    """The random networks of a figure, one per seed."""

    length: int
    width: int
    seed: int
    n_seeds: int
    heads: int = 1

    def cosines(self, block: Block, layers: int) -> np.ndarray:
        """Measures mean cosines of tokens before and after each layer, (S, L + 1), in float32."""
        keys = jax.vmap(jax.random.key)(np.arange(self.seed, self.seed + self.n_seeds))
        sizes = (layers, self.length, self.width, self.heads)
        signal = encoder.measure(keys, block, *sizes, dtype=np.float32)
        return np.asarray(signal.cosine, float)


class Strengths(NamedTuple):
    """The MLP's residual weight and the variances that all blocks of a figure share."""

    alpha_mlp: float
    sigma2: float
    sigma_b2: float

    def block(self, beta, alpha_sa) -> Block:
        """Returns a block with sigma_V^2 = sigma_w^2 = sigma2.

        Args:
          beta: The standard deviation of the scores over sqrt(ln T).
          alpha_sa: The residual weight of attention.
        """
        return Block(beta, alpha_sa, self.alpha_mlp, self.sigma2, self.sigma2, self.sigma_b2)
