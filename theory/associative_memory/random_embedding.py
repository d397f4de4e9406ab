"""Figure 18: the associative memory with random embeddings, whole and truncated to a low rank.

Labels are drawn as in `theory.associative_memory.flow`: y = x with probability 1 - alpha, else the
noise. The embeddings e of inputs and u of labels are random unit vectors, not orthonormal ones.
W is trained whole and truncated only to evaluate the loss on labels without noise. This loss ends
at -log(1 - alpha) for the whole W, and below it for rank n - 1.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.associative_memory.flow import cross_entropy
from theory.numerics import Array, check_count, check_range, states_at


def random_embedding(
    key: jax.Array,
    record: Array | Sequence[int],
    alpha: float = 0.03,
    n: int = 3,
    dimension: int = 12,
    learning_rate: float = 1.0,
    ranks: tuple[int, ...] = (1, 2, 3, 4),
) -> jax.Array:
    """Trains W by gradient descent and returns the loss of its truncations on noiseless labels.

    W(0) has iid entries N(0, 1/d). The paper gives neither the learning rate nor the number of
    steps. Use vmap over keys for seeds.

    Args:
        key: PRNG key of the embeddings and of W(0).
        record: increasing numbers of steps at which to evaluate.
        alpha: probability of the noise label in training.
        n: number of inputs.
        dimension: embedding dimension d.
        learning_rate: step size on the mean cross-entropy.
        ranks: ranks of the truncations.

    Returns:
        Losses, (len(record), len(ranks) + 1); the last column is the whole W.

    Example:
        >>> random_embedding(jax.random.key(0), [0, 2000]).shape
        (2, 5)
    """
    check_range("alpha", alpha, 0.0, 1.0)
    check_count("n", n, 2)
    check_count("dimension", dimension)
    record = np.asarray(record)
    if record.ndim != 1 or not len(record) or (np.diff(record) <= 0).any() or record[0] < 0:
        raise UserError(f"record must be an increasing list of steps, got {record.tolist()}.")
    return _random_embedding(
        key, jnp.asarray(record, int), alpha, n, dimension, learning_rate, ranks
    )


@functools.partial(jax.jit, static_argnums=(3, 4, 6))
def _random_embedding(key, record, alpha, n, d, learning_rate, ranks):
    key_e, key_u, key_w = jax.random.split(key, 3)
    e_NxD = jax.random.normal(key_e, (n, d))
    u_JxD = jax.random.normal(key_u, (n + 1, d))
    e_NxD /= jnp.linalg.norm(e_NxD, axis=1, keepdims=True)
    u_JxD /= jnp.linalg.norm(u_JxD, axis=1, keepdims=True)

    def loss(w_DxD, alpha):
        return cross_entropy(u_JxD @ w_DxD @ e_NxD.T, alpha)

    def descend(_, w_DxD):
        return w_DxD - learning_rate * jax.grad(loss)(w_DxD, alpha)

    def losses(w_DxD):
        left, sigma, right = jnp.linalg.svd(w_DxD)
        truncations = [(left[:, :k] * sigma[None, :k]) @ right[:k] for k in ranks]
        return jnp.stack([loss(w, 0.0) for w in (*truncations, w_DxD)])

    start = jax.random.normal(key_w, (d, d)) / d**0.5
    return states_at(record, descend, start, losses)
