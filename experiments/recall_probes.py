"""What a recall model stores and where it looks: probes along training and surgery at the end.

Layers are numbered as in the papers here (F1, F2): block_0 holds F1, the last block F2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import paths, surgery
from jaxformer.capture import capture
from jaxformer.errors import UserError
from jaxformer.tasks.task import Batch, scored_positions
from jaxformer.train.step import task_scores, token_weighted

Params = dict[str, Any]


def make_probes(model, task) -> Callable[[Params, Batch, Batch], dict[str, jax.Array]]:
    """probes(params, clean, noisy) -> {name: number}; jit- and vmap-safe.

    Probabilities are means over the scored positions of `clean` (alpha = 0); attention is that of
    the scored queries of `noisy`, where the noise occurs.
    """
    layers = model.spec.feed_forward
    last = len(layers) - 1

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    def probabilities(params, clean):
        scores = task_scores(apply, task, params, clean)
        return tuple(token_weighted(scores[name]) for name in ("p_correct", "p_noise", "loss"))

    def probes(params, clean, noisy):
        versions = {"": params}
        for i, kind in enumerate(layers):
            if kind != "none":
                versions[f"_without_f{i + 1}"] = surgery.drop(params, f"block_{i}/mlp")
        out = {}
        for ending, version in versions.items():
            correct, noise, loss = probabilities(version, clean)
            out |= {f"p_correct{ending}": correct, f"p_noise{ending}": noise, f"loss{ending}": loss}
        out |= attention(model, task, params, noisy)
        if layers[last] != "none" and task.trigger_tokens:
            out["margin_f2"] = feed_forward_margin(model, task, params, last)
        return out

    return probes


def attention(model, task, params: Params, noisy: Batch) -> dict[str, jax.Array]:
    """Layer 1: mean a[t, t-1]. Last layer, scored queries: mass on what follows a trigger and is
    not the noise (`attention_target`), and on what follows one and is (`attention_noise`)."""
    last = len(model.spec.feed_forward) - 1
    positions_BxK, gathered = scored_positions(noisy, task.n_scored)
    names = ["block_0/attn/weights", f"block_{last}/attn/weights"]
    captured = capture(model, params, noisy.inputs, positions_BxK, names=names)
    first_BxTxT, last_BxKxT = (captured[name] for name in names)
    follows_BxT = jnp.zeros(noisy.inputs.shape, bool)
    for q in task.trigger_tokens:
        follows_BxT = follows_BxT.at[:, 1:].set(follows_BxT[:, 1:] | (noisy.inputs[:, :-1] == q))
    noise_BxT = noisy.inputs == task.noise_token
    weight_BxK = gathered.weights / jnp.maximum(gathered.weights.sum(), 1e-9)

    def mass(where_BxT):
        return (weight_BxK * (last_BxKxT * where_BxT[:, None]).sum(-1)).sum()

    return {
        "attention_previous": jnp.diagonal(first_BxTxT, -1, 1, 2).mean(),
        "attention_target": mass(follows_BxT & ~noise_BxT),
        "attention_noise": mass(follows_BxT & noise_BxT),
    }


def feed_forward_margin(model, task, params: Params, layer: int) -> jax.Array:
    """o_tau - max_{k != tau} o_k of o = U F(E[q]): what F adds for the trigger alone."""
    e_QxD = params["embed"]["embedding"][jnp.asarray(task.trigger_tokens)]
    o_QxV = feed_forward(model, params, layer, e_QxD) @ unembedding(params)
    noise = task.noise_token
    return (o_QxV[:, noise] - o_QxV.at[:, noise].set(-jnp.inf).max(-1)).mean()


def feed_forward(model, params: Params, layer: int, x_RxD: jax.Array) -> jax.Array:
    """F of one layer on rows x."""
    kind, mlp = model.spec.feed_forward[layer], params[f"block_{layer}"]["mlp"]
    y_RxM = x_RxD @ mlp["in"]["kernel"]
    if kind == "linear":
        return y_RxM
    return jax.nn.relu(y_RxM) @ mlp["out"]["kernel"] if kind == "mlp" else jax.nn.relu(y_RxM)


def unembedding(params: Params) -> jax.Array:
    if "unembed" not in params:
        return params["embed"]["embedding"].T / params["embed"]["embedding"].shape[-1] ** 0.5
    return params["unembed"]["kernel"]


def memories(model, params: Params) -> dict[str, jax.Array]:
    """The heat maps of Figure 7, rows are queries or inputs: p_i Wk1 p_j, <F2(E_i), U_j>,
    <Wo2 Wv2 E_i, U_j>, and Figure 9's E_i Wk2 (Wo1 Wv1 E_j)."""
    last = len(model.spec.feed_forward) - 1
    embedding_VxD, output_DxV = params["embed"]["embedding"], unembedding(params)
    attn = params[f"block_{last}"]["attn"]
    values_DxD = attn["value"]["kernel"]
    if "out" in attn:
        values_DxD = values_DxD @ attn["out"]["kernel"]
    maps = {"values": embedding_VxD @ values_DxD @ output_DxV}
    if model.spec.feed_forward[last] != "none":
        maps["feed_forward"] = feed_forward(model, params, last, embedding_VxD) @ output_DxV
    if "positions" in params:
        p_TxD = params["positions"]["embedding"]
        maps["previous_token"] = p_TxD @ params["block_0"]["attn"]["key"]["kernel"].T @ p_TxD.T
    # The layer-1 value of a trigger is the key that the last layer's trigger looks for.
    first = params["block_0"]["attn"]
    copied_VxD = embedding_VxD @ first["value"]["kernel"]
    if "out" in first:
        copied_VxD = copied_VxD @ first["out"]["kernel"]
    maps["induction"] = embedding_VxD @ attn["key"]["kernel"].T @ copied_VxD.T
    return maps


def truncations(
    params: Params, pattern: str, fractions: Sequence[float], measure: Callable[[Params], Any]
) -> Any:
    """`measure(params)` with the matched matrices cut to each fraction of their rank.

    One SVD a matrix and one program however many fractions there are: a cut is a mask on the
    singular values. The rank is floor(fraction * min(dims)), as in `surgery.laser`.
    """
    for fraction in fractions:
        if not 0 <= fraction <= 1:
            raise UserError(f"a LASER fraction must be in [0, 1], got {fraction}.")
    chosen = {path: leaf for path, leaf in paths.select(params, pattern).items() if leaf.ndim == 2}
    if not chosen:
        raise UserError(f"LASER needs a matrix, {pattern!r} matches none.")
    parts = {path: jnp.linalg.svd(leaf, full_matrices=False) for path, leaf in chosen.items()}
    ranks = {
        path: jnp.array([surgery.rank_of(leaf, fraction) for fraction in fractions])
        for path, leaf in chosen.items()
    }

    def cut(rank):
        new = {}
        for path, (u, s, vt) in parts.items():
            kept = jnp.where(jnp.arange(len(s)) < rank[path], s, 0)
            new[path] = (u * kept[None]) @ vt
        return measure(paths.replace(params, new))

    return jax.lax.map(cut, ranks)
