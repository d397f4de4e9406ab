"""One random attention head: its map A_ts, and the cosines and second moments of its output.

T is the number of tokens, N the width, G the head dimension.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.models.attention import attention_scores, attention_weights
from jaxformer.models.layers import rms_normalise
from jaxformer.stats import standard_error

LARGE_T = 1e8  # a length at which the exact theory still differs from the limit
MIN_ROWS = 16  # for a standard error
BERT = (0.02, 768, 64, 512)  # standard deviation of weights, width, head dimension, length


class Heads(NamedTuple):
    """The random heads of a figure, one per seed."""

    length: int
    width: int
    seed: int
    n_seeds: int

    @property
    def keys(self) -> list[jax.Array]:
        return [jax.random.key(self.seed + i) for i in range(self.n_seeds)]

    def maps_and_outputs(self, beta, rho) -> list[tuple]:
        """Returns (A_TxT, out_TxN) of each head, for tokens with cosine rho."""
        layers = [_head(key, beta, rho, self.length, self.width) for key in self.keys]
        return [(np.asarray(A, float), np.asarray(out, float)) for A, out in layers]


@partial(jax.jit, static_argnames=("length", "width"))
def _head(key, beta, rho, length, width):
    """Returns A of one head, (T, T), and its output A x without a value matrix, (T, N)."""
    shared_key, token_key, q_key, k_key = jax.random.split(key, 4)
    normal = partial(jax.random.normal, dtype=jnp.float32)
    beta, rho = jnp.asarray(beta, jnp.float32), jnp.asarray(rho, jnp.float32)
    shared_1xN, token_TxN = normal(shared_key, (1, width)), normal(token_key, (length, width))
    x_TxN = rms_normalise(jnp.sqrt(rho) * shared_1xN + jnp.sqrt(1 - rho) * token_TxN)
    # The scores q.k / sqrt(width) then have variance beta^2 ln T.
    deviation = jnp.sqrt(beta * np.float32(np.log(length) ** 0.5) / width)

    def project(projection_key):
        weight_NxN = deviation * normal(projection_key, (width, width))
        return (x_TxN @ weight_NxN)[:, None]  # one head

    A_TxT = attention_weights(attention_scores(project(q_key), project(k_key)))[0]
    return A_TxT, A_TxT @ x_TxN


def mean_cosine(out_TxN: np.ndarray) -> float:
    """Returns the mean cosine over all pairs of different tokens."""
    T = len(out_TxN)
    out_TxN = out_TxN / np.linalg.norm(out_TxN, axis=1, keepdims=True)
    return float((np.sum(out_TxN.sum(0) ** 2) - T) / (T * (T - 1)))


def second_moments(out_TxN: np.ndarray) -> tuple[float, float]:
    """Returns SA(q) and SA(p): the means of |out_t|^2 / N and of out_s . out_t / N for s != t."""
    T, width = out_TxN.shape
    square = np.sum(out_TxN**2) / width
    pairs = np.sum(out_TxN.sum(0) ** 2) / width - square
    return square / T, pairs / (T * (T - 1))


def beta_of_bert(key) -> float:
    """Returns beta of one head of BERT at its usual initialisation: std of scores / sqrt(ln T)."""
    std, width, d_head, length = BERT
    shapes = ((length, width), (width, d_head), (width, d_head))
    tokens, *weights = map(jax.random.normal, jax.random.split(key, 3), shapes)
    query_TxG, key_TxG = (rms_normalise(tokens) @ (std * w) for w in weights)
    return float((query_TxG @ key_TxG.T / d_head**0.5).std() / np.log(length) ** 0.5)


def overlap_of_rows(rng, beta: float, T: int, rows: int) -> tuple[float, float]:
    """Returns mean and standard error of sum_s A_ts^2 over softmax rows of independent scores."""
    values = []
    for _ in range(max(rows, MIN_ROWS)):
        scores = beta * np.log(T) ** 0.5 * rng.standard_normal(T)
        a = np.exp(scores - scores.max())
        values.append(np.sum(a**2) / np.sum(a) ** 2)
    return float(np.mean(values)), float(standard_error(np.array(values)))


def entropy(A_TxT: np.ndarray) -> float:
    """Returns the mean entropy of the rows in nats."""
    return float(-np.sum(A_TxT * np.log(np.maximum(A_TxT, 1e-300)), -1).mean())
