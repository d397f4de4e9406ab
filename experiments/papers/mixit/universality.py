"""Theorem 5.1 of version B: one layer of random attention as a basis of causal functions."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from jaxformer.errors import UserError
from jaxformer.models import attention
from jaxformer.training.metrics import over_seeds

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
CHUNK = 250  # sequences at once: all heads' features of all sequences would not fit


def universality(
    heads: Sequence[int],
    mlp_heads: Sequence[int],
    relu_features: int,
    length: int,
    dim: int,
    train: int,
    test: int,
    qk_std: float,
    ridge: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Error of the best readout of random heads against their number, for four causal targets.

    Head i gives a sequence u in [-1, 1]^(m x d) the feature g_i(u) = A_i(u) u, with A_i a causal
    softmax under fixed random W_i^Q, W_i^K (B.1), or MixiT's fixed matrix. The prediction is linear
    in (1, u_t, g_1,t, .., g_H,t), which is what trained value and output weights can do; with the
    ReLU layer, `relu_features` random units of that vector stand beside it. Readouts are ridge
    regressions on `train` sequences; the error is the mean square on `test` others over the
    target's variance.
    """
    for name, counts_ in (("heads", heads), ("mlp_heads", mlp_heads)):
        if len(counts_) < 2 or min(counts_) < 1 or sorted(set(counts_)) != list(counts_):
            raise UserError(f"figure.{name} must be at least two growing numbers, got {counts_}.")
    if min(length, dim, train, test, relu_features) < 1:
        raise UserError("figure.length, dim, train, test and relu_features must be at least 1.")
    keys = jax.random.split(jax.random.key(seed), n_seeds)
    size = (length, dim, train, test, qk_std, ridge)
    errors: dict[tuple[str, str], np.ndarray] = {}  # (seeds, heads, targets)
    for arm in ARMS:
        run = jax.jit(functools.partial(_nested, arm, tuple(heads), size))
        errors["linear", arm] = np.stack([np.asarray(run(key)) for key in keys])
        run = jax.jit(functools.partial(_with_mlp, arm, tuple(mlp_heads), relu_features, size))
        errors["mlp", arm] = np.stack([np.asarray(run(key)) for key in keys])
    counts = {"linear": list(heads), "mlp": list(mlp_heads)}
    metrics = {
        f"error/{readout}/{arm}/{target}/H={H}": over_seeds(found[:, h, k])
        for (readout, arm), found in errors.items()
        for k, target in enumerate(TARGETS)
        for h, H in enumerate(counts[readout])
    }
    verdict = _verdict(errors)
    metrics |= {f"verdict/{name}": exact(value) for name, value in verdict.items()}
    arrays = {f"{readout}_{arm}": found for (readout, arm), found in errors.items()}
    return Outcome(
        _figure(errors, counts), {"heads": heads, "mlp_heads": mlp_heads, **arrays}, metrics
    )


def targets(u_BxTxD: jax.Array) -> jax.Array:
    """(B, T, targets, D): four continuous causal functions, in the order of TARGETS."""
    length = u_BxTxD.shape[1]
    past_TxT = jnp.tril(jnp.ones((length, length), bool), -1)
    scores_BxTxT = 4 * jnp.einsum("btd,bsd->bts", u_BxTxD, u_BxTxD)
    scores_BxTxT = jnp.where(past_TxT[None], scores_BxTxT, -1e9)
    weights_BxTxT = jnp.where(past_TxT[None], jax.nn.softmax(scores_BxTxT), 0)
    lookup = weights_BxTxT @ u_BxTxD  # of earlier tokens: the first one finds nothing, 0
    maximum = jax.lax.cummax(u_BxTxD, axis=1)
    previous = jnp.concatenate([jnp.zeros_like(u_BxTxD[:, :1]), u_BxTxD[:, :-1]], axis=1)
    return jnp.stack([lookup, maximum, previous, jnp.sin(jnp.pi * u_BxTxD)], axis=2)


def features(arm: str, heads: int, qk_std: float, key: jax.Array, u_BxTxD: jax.Array) -> jax.Array:
    """(B, T, 1 + D + heads D): 1, the token and every head's mix; more heads append columns."""
    B, T, D = u_BxTxD.shape
    # A key a head: the first heads of a wider layer are those of a narrower one.
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


def _nested(arm, heads, size, key) -> jax.Array:
    """(heads, targets) errors of the linear readout, by one Gram matrix of all heads' features."""
    dim = size[1]
    phi = functools.partial(features, arm, heads[-1], size[4], jax.random.fold_in(key, 0))
    columns_C = 1 + dim + dim * jnp.array(heads)
    return _errors(phi, columns_C[:, None] > jnp.arange(1 + dim + dim * heads[-1])[None], size, key)


def _with_mlp(arm, heads, units, size, key) -> jax.Array:
    """(heads, targets) errors with `units` random ReLU features of the same vector."""
    w_key, b_key = jax.random.split(jax.random.fold_in(key, 1))
    dim = size[1]
    columns = 1 + dim + dim * heads[-1]

    def errors(H):
        seen_F = jnp.arange(columns) < 1 + dim + dim * H

        def phi(u_BxTxD):
            z = features(arm, heads[-1], size[4], jax.random.fold_in(key, 0), u_BxTxD)
            z = jnp.where(seen_F[None, None], z, 0)
            w = jax.random.normal(w_key, (columns, units)) * 3 / seen_F.sum() ** 0.5
            b = jax.random.uniform(b_key, (units,), minval=-1.0, maxval=1.0)
            return jnp.concatenate([z, jax.nn.relu(z @ w + b[None, None])], axis=-1)

        used_F = jnp.concatenate([seen_F, jnp.ones(units, bool)])
        return _errors(phi, used_F[None], size, key)[0]

    return jax.lax.map(errors, jnp.array(heads))


def _errors(phi, used_CxF, size, key) -> jax.Array:
    """(C, targets): ridge regression on the features that each row of `used_CxF` lets through."""
    length, dim, train, test, _, ridge = size
    most = used_CxF.shape[1]

    def draw(name, n):
        key_ = jax.random.fold_in(key, name)
        return jax.random.uniform(key_, (-(-n // CHUNK), min(n, CHUNK), length, dim), minval=-1.0)

    def add(total, u_BxTxD):
        x, y = phi(u_BxTxD).reshape(-1, most), targets(u_BxTxD).reshape(-1, len(TARGETS) * dim)
        return (total[0] + x.T @ x, total[1] + x.T @ y), None

    zeros = jnp.zeros((most, most)), jnp.zeros((most, len(TARGETS) * dim))
    (gram, cross), _ = jax.lax.scan(add, zeros, draw(2, train))

    def fit(used_F):  # unused features get the unit matrix and no target
        both = used_F[:, None] & used_F[None]
        penalty_F = jnp.where(used_F, ridge * jnp.trace(gram) / most, 1.0)
        matrix = jnp.where(both, gram, 0) + jnp.diag(penalty_F)
        return jax.scipy.linalg.solve(matrix, jnp.where(used_F[:, None], cross, 0), assume_a="pos")

    fits_CxFxY = jax.lax.map(fit, used_CxF)

    def miss(_, u_BxTxD):
        y = targets(u_BxTxD)
        guess = jnp.einsum("btf,cfy->cbty", phi(u_BxTxD), fits_CxFxY).reshape(-1, *y.shape)
        square = ((guess - y[None]) ** 2).mean((1, 2, 4))
        return None, (square, y.mean((0, 1)), (y**2).mean((0, 1)))

    _, (square, mean, second) = jax.lax.scan(miss, None, draw(3, test))
    variance = (second.mean(0) - mean.mean(0) ** 2).mean(-1)
    return square.mean(0) / variance[None]


def _verdict(errors) -> dict[str, bool]:
    """What the theorem says, and what its proof leaves out; h = -1 is the most heads."""
    names = list(TARGETS)

    def at(readout, arm, target, h=-1):
        return errors[readout, arm].mean(0)[h, names.index(target)]

    def falls(arm, target):  # over the last doubling of the heads
        return bool(at("linear", arm, target) < 0.95 * at("linear", arm, target, -2))

    return {
        "frozen_qk_learns_lookup": falls("frozen_qk", "lookup")
        and bool(
            at("linear", "frozen_qk", "lookup") < 0.5 * at("linear", "frozen_qk", "lookup", 0)
        ),
        # Features linear in u: once the heads span the causal maps, more of them add nothing.
        "mixit_stops_at_linear": not falls("mixit", "lookup")
        and bool(at("linear", "mixit", "lookup") > 1.25 * at("linear", "frozen_qk", "lookup")),
        # Without positions a layer is blind to the order of the past, with or without an MLP.
        "order_needs_positions": not falls("frozen_qk", "previous")
        and all(bool(at(readout, "frozen_qk", "previous") > 0.5) for readout in READOUTS)
        and falls("frozen_qk_rotary", "previous"),
        # With an MLP, MixiT too passes the best causal linear map.
        "mixit_with_mlp_is_not_linear": bool(
            at("mlp", "mixit", "maximum") < 0.5 * at("linear", "mixit", "maximum")
        ),
    }


def _figure(errors, counts):
    plt = plots.pyplot()
    figure, axes = plt.subplots(
        2, len(TARGETS), figsize=(3.1 * len(TARGETS), 5.8), layout="constrained", sharey=True
    )
    for row, (readout, how) in zip(axes, READOUTS.items(), strict=True):
        for k, (axis, label) in enumerate(zip(row, TARGETS.values(), strict=True)):
            for colour, (arm, name) in zip(plots.COLOURS, ARMS.items()):
                found = errors[readout, arm][:, :, k]
                error = found.std(0, ddof=1) / len(found) ** 0.5 if len(found) > 1 else None
                axis.errorbar(
                    counts[readout], found.mean(0), error, fmt="o-", ms=4, capsize=3,
                    color=colour, label=name,
                )  # fmt: skip
            axis.set(xscale="log", yscale="log", title=label if readout == "linear" else "")
            axis.set_xticks(counts[readout], [str(H) for H in counts[readout]], fontsize=7)
            axis.minorticks_off()
        row[0].set_ylabel(f"{how}\nerror / variance of target", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("random heads H")
    axes[1, 0].legend(fontsize=7)
    names = list(TARGETS)

    def last(readout, arm, target):
        return errors[readout, arm].mean(0)[-1, names.index(target)]

    figure.suptitle(
        f"{counts['linear'][-1]} random heads, linear readout: the look-up's error is "
        f"{last('linear', 'frozen_qk', 'lookup'):.2g} with frozen attention, where MixiT stops at "
        f"{last('linear', 'mixit', 'lookup'):.2g};\nthe token before stays at "
        f"{last('mlp', 'frozen_qk', 'previous'):.2g} without positions, whatever the readout",
        fontsize=10,
    )
    return figure
