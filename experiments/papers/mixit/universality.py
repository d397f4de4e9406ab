"""Theorem 5.1 of version B: one layer of random attention as a basis of causal functions.

B sequences, T tokens, D numbers per token, H heads, F features, C readouts.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.core.errors import UserError
from jaxformer.models import attention

# The kinds of random attention that are compared, and their labels.
ARMS = {
    "frozen_qk": "Frozen-QK, (B.1): no positions",
    "frozen_qk_rotary": "Frozen-QK with rotary positions",
    "mixit": "MixiT",
}
TARGETS = {
    "lookup": "look-up of the most similar token",
    "maximum": "running maximum",
    "previous": "the token before",
    "pointwise": "sin of the token itself",
}
READOUTS = {"linear": "linear readout, as in the proof", "mlp": "and a ReLU layer"}
CHUNK_SEQUENCES = 250  # at once: the features of all sequences would not fit into memory


class Problem(NamedTuple):
    """The data and the readout: sequences, the heads' distribution, and the penalty."""

    length: int  # tokens per sequence
    dim: int  # numbers per token
    train: int  # number of training sequences
    test: int  # number of test sequences
    qk_std: float  # standard deviation of query and key weights
    ridge: float  # penalty of the ridge regression


def measure_universality(
    heads: Sequence[int],
    mlp_heads: Sequence[int],
    relu_features: int,
    problem: Problem,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Measures the error of the best readout of random heads, for four causal targets.

    Head i gives a sequence u in [-1, 1]^(m x d) the feature g_i(u) = A_i(u) u, with A_i a causal
    softmax under fixed random W_i^Q, W_i^K (B.1), or MixiT's fixed matrix. The prediction is linear
    in (1, u_t, g_1,t, .., g_H,t): trained value and output weights can compute no more. The
    "mlp" readout adds `relu_features` random ReLU units of that vector. Readouts are ridge
    regressions on `train` sequences. The error is the mean square on `test` other sequences over
    the target's variance. A number of sequences above `CHUNK_SEQUENCES` is rounded up to a
    multiple of it.
    """
    counts = {"linear": heads, "mlp": mlp_heads}
    for name, numbers in (("heads", heads), ("mlp_heads", mlp_heads)):
        if len(numbers) < 2 or min(numbers) < 1 or sorted(set(numbers)) != list(numbers):
            raise UserError(f"figure.{name} must be at least two growing numbers, got {numbers}.")
    if min(*problem[:4], relu_features) < 1:
        raise UserError("figure.length, dim, train, test and relu_features must be at least 1.")
    keys = jax.random.split(jax.random.key(seed), n_seeds)
    errors: dict[str, np.ndarray] = {}  # (seeds, heads, targets)
    for arm in ARMS:
        run = jax.jit(functools.partial(_linear_errors, arm, tuple(heads), problem))
        errors[f"linear_{arm}"] = np.stack([np.asarray(run(key)) for key in keys])
        run = jax.jit(functools.partial(_mlp_errors, arm, tuple(mlp_heads), relu_features, problem))
        errors[f"mlp_{arm}"] = np.stack([np.asarray(run(key)) for key in keys])
    outcome = Outcome({"heads": heads, "mlp_heads": mlp_heads, **errors})
    for readout in READOUTS:
        for arm in ARMS:
            name = f"error/{readout}/{arm}/{{}}/H={{}}"
            outcome.grid(name, errors[f"{readout}_{arm}"].T, TARGETS, counts[readout])
    outcome.metrics |= {f"verdict/{name}": exact(v) for name, v in _verdict(errors).items()}
    return outcome


def targets(u_BxTxD: jax.Array) -> jax.Array:
    """Returns four continuous causal functions in the order of TARGETS, (B, T, targets, D)."""
    length = u_BxTxD.shape[1]
    past_TxT = jnp.tril(jnp.ones((length, length), bool), -1)
    scores_BxTxT = 4 * jnp.einsum("btd,bsd->bts", u_BxTxD, u_BxTxD)
    scores_BxTxT = jnp.where(past_TxT[None], scores_BxTxT, -1e9)
    weights_BxTxT = jnp.where(past_TxT[None], jax.nn.softmax(scores_BxTxT), 0)
    lookup = weights_BxTxT @ u_BxTxD  # among earlier tokens; 0 for the first token
    maximum = jax.lax.cummax(u_BxTxD, axis=1)
    previous = jnp.concatenate([jnp.zeros_like(u_BxTxD[:, :1]), u_BxTxD[:, :-1]], axis=1)
    return jnp.stack([lookup, maximum, previous, jnp.sin(jnp.pi * u_BxTxD)], axis=2)


def features(arm: str, heads: int, qk_std: float, key: jax.Array, u_BxTxD: jax.Array) -> jax.Array:
    """Returns 1, the token and the output of every head, (B, T, 1 + D + heads D).

    More heads append columns and leave the first ones as they are.
    """
    B, T, D = u_BxTxD.shape
    # One key per head, so a wider layer begins with the heads of a narrower one.
    keys_H = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(heads))
    if arm == "mixit":
        draw = functools.partial(attention.mixing_matrix, heads=1, length=T, std=T**-0.5)
        weights_HxTxT = jax.vmap(lambda k: draw(k)[0])(keys_H)
        mixed = jnp.einsum("hts,bsd->bthd", weights_HxTxT, u_BxTxD)
    else:
        w_Hx2xDxD = qk_std * jax.vmap(lambda k: jax.random.normal(k, (2, D, D)))(keys_H)
        q, k = (jnp.einsum("btd,hdk->bthk", u_BxTxD, w_Hx2xDxD[:, i]) for i in range(2))
        if arm == "frozen_qk_rotary":
            q, k = attention.rotary(q), attention.rotary(k)
        scores = attention.attention_scores(q, k)
        weights = attention.attention_weights(scores, attention.causal_mask(T))
        mixed = jnp.einsum("bhts,bsd->bthd", weights, u_BxTxD)
    ones = jnp.ones((B, T, 1), u_BxTxD.dtype)
    return jnp.concatenate([ones, u_BxTxD, mixed.reshape(B, T, heads * D)], axis=-1)


def _linear_errors(arm, heads, problem: Problem, key) -> jax.Array:
    """Returns the (heads, targets) errors of the linear readout, from one Gram matrix."""
    dim = problem.dim
    phi = functools.partial(features, arm, heads[-1], problem.qk_std, jax.random.fold_in(key, 0))
    columns_C = 1 + dim + dim * jnp.array(heads)
    used_CxF = columns_C[:, None] > jnp.arange(1 + dim + dim * heads[-1])[None]
    return _errors(phi, used_CxF, problem, key)


def _mlp_errors(arm, heads, units, problem: Problem, key) -> jax.Array:
    """Returns the (heads, targets) errors with `units` random ReLU features added."""
    w_key, b_key = jax.random.split(jax.random.fold_in(key, 1))
    dim = problem.dim
    columns = 1 + dim + dim * heads[-1]

    def errors(H):
        seen_F = jnp.arange(columns) < 1 + dim + dim * H

        def phi(u_BxTxD):
            z = features(arm, heads[-1], problem.qk_std, jax.random.fold_in(key, 0), u_BxTxD)
            z = jnp.where(seen_F[None, None], z, 0)
            w = jax.random.normal(w_key, (columns, units)) * 3 / seen_F.sum() ** 0.5
            b = jax.random.uniform(b_key, (units,), minval=-1.0, maxval=1.0)
            return jnp.concatenate([z, jax.nn.relu(z @ w + b[None, None])], axis=-1)

        used_F = jnp.concatenate([seen_F, jnp.ones(units, bool)])
        return _errors(phi, used_F[None], problem, key)[0]

    return jax.lax.map(errors, jnp.array(heads))


def _errors(phi, used_CxF, problem: Problem, key) -> jax.Array:
    """Returns the (C, targets) errors of ridge regressions on the features in `used_CxF`."""
    length, dim, train, test, _, ridge = problem
    F = used_CxF.shape[1]

    def draw_chunks(set_index, n):  # indices 0 and 1 of the key draw heads and ReLU units
        shape = (math.ceil(n / CHUNK_SEQUENCES), min(n, CHUNK_SEQUENCES), length, dim)
        return jax.random.uniform(jax.random.fold_in(key, set_index), shape, minval=-1.0)

    def add_products(total, u_BxTxD):
        x, y = phi(u_BxTxD).reshape(-1, F), targets(u_BxTxD).reshape(-1, len(TARGETS) * dim)
        return (total[0] + x.T @ x, total[1] + x.T @ y), None

    zeros = jnp.zeros((F, F)), jnp.zeros((F, len(TARGETS) * dim))
    (gram, cross), _ = jax.lax.scan(add_products, zeros, draw_chunks(2, train))

    def fit(used_F):  # for unused features the matrix is the identity and the target 0
        used_FxF = used_F[:, None] & used_F[None]
        penalty_F = jnp.where(used_F, ridge * jnp.trace(gram) / F, 1.0)
        matrix = jnp.where(used_FxF, gram, 0) + jnp.diag(penalty_F)
        return jax.scipy.linalg.solve(matrix, jnp.where(used_F[:, None], cross, 0), assume_a="pos")

    fits_CxFxY = jax.lax.map(fit, used_CxF)

    def errors_of_chunk(_, u_BxTxD):
        y = targets(u_BxTxD)
        predicted = jnp.einsum("btf,cfy->cbty", phi(u_BxTxD), fits_CxFxY).reshape(-1, *y.shape)
        square = ((predicted - y[None]) ** 2).mean((1, 2, 4))
        return None, (square, y.mean((0, 1)), (y**2).mean((0, 1)))

    _, (square, mean, second) = jax.lax.scan(errors_of_chunk, None, draw_chunks(3, test))
    variance = (second.mean(0) - mean.mean(0) ** 2).mean(-1)
    return square.mean(0) / variance[None]


def _verdict(errors) -> dict[str, bool]:
    """Returns which statements hold: the theorem, and three about cases outside its proof."""
    error_at = functools.partial(_mean_error, errors)

    def falls(arm, target):  # whether the last increase of the heads lowers the error by 5 %
        return error_at("linear", arm, target) < 0.95 * error_at("linear", arm, target, -2)

    return {
        "frozen_qk_learns_lookup": falls("frozen_qk", "lookup")
        and error_at("linear", "frozen_qk", "lookup")
        < 0.5 * error_at("linear", "frozen_qk", "lookup", 0),
        # Features are linear in u: once they span the causal maps, more heads add nothing.
        "mixit_stops_at_linear": not falls("mixit", "lookup")
        and error_at("linear", "mixit", "lookup")
        > 1.25 * error_at("linear", "frozen_qk", "lookup"),
        # Without positions a layer cannot see the order of earlier tokens, even with an MLP.
        "order_needs_positions": not falls("frozen_qk", "previous")
        and all(error_at(readout, "frozen_qk", "previous") > 0.5 for readout in READOUTS)
        and falls("frozen_qk_rotary", "previous"),
        # With an MLP, MixiT too is better than the best causal linear map.
        "mixit_with_mlp_is_not_linear": error_at("mlp", "mixit", "maximum")
        < 0.5 * error_at("linear", "mixit", "maximum"),
    }


def _mean_error(errors, readout: str, arm: str, target: str, h: int = -1) -> float:
    """Returns the mean error over seeds; h = -1 is the largest number of heads."""
    return float(errors[f"{readout}_{arm}"].mean(0)[h, list(TARGETS).index(target)])


def draw_universality(arrays, heads: Sequence[int], mlp_heads: Sequence[int]):
    size, shared = (plots.PAGE, 3.9), {"sharex": True, "sharey": True}
    figure, axes = plots.grid(2, len(TARGETS), size, **shared)
    counts = {"linear": heads, "mlp": mlp_heads}
    for row, (readout, title) in zip(axes, READOUTS.items(), strict=True):
        for k, (axis, label) in enumerate(zip(row, TARGETS.values(), strict=True)):
            errors = {name: arrays[f"{readout}_{arm}"][:, :, k] for arm, name in ARMS.items()}
            plots.curves(axis, counts[readout], errors, fmt="o-")
            axis.set(xscale="log", yscale="log")
            plots.value_ticks(axis, heads[::2])
            if readout == "linear":
                plots.set_title(axis, label)
        row[0].set_ylabel(f"{title}\nerror / variance of target")
    for axis in axes[-1]:
        axis.set_xlabel("random heads H")
    error_at = functools.partial(_mean_error, arrays)
    rise = max(
        error_at("mlp", arm, "pointwise") / error_at("mlp", arm, "pointwise", 0) for arm in ARMS
    )  # more heads, and the same number of ReLU units
    caption = "Bars: standard errors over seeds."
    if rise > 1.2:
        caption += (
            " Lower right: the ReLU units are as many for any H, and with more heads each of them "
            "sees less of the token itself, so that the error rises."
        )
    plots.add_finding(
        figure,
        f"{heads[-1]} random heads, linear readout: the look-up's error is "
        f"{error_at('linear', 'frozen_qk', 'lookup'):.2g} with frozen attention, where MixiT stops "
        f"at {error_at('linear', 'mixit', 'lookup'):.2g}; the token before stays at "
        f"{error_at('mlp', 'frozen_qk', 'previous'):.2g} without positions, whatever the readout",
        caption,
        axes[0, 0],
    )
    return figure


UNIVERSALITY = Figure(measure=measure_universality, draw=draw_universality)
