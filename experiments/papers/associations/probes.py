"""What a recall model stores and where it looks: probes along training and surgery at the end.

Layers are numbered as in the papers here (F1, F2): block_0 holds F1, the last block F2.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import surgery
from jaxformer.capture import capture
from jaxformer.tasks.task import Batch, scored_positions
from jaxformer.training.step import task_scores, token_weighted

Params = Mapping[str, Any]
# What is asked of a model on clean data, and the task's score that answers. The accuracy of a run
# is that on noisy data, beside its baselines.
ANSWERS = {name: name for name in ("p_correct", "p_noise", "loss")} | {"accuracy_clean": "accuracy"}


def make_probes(
    model, task, pattern: str = "", fractions: Sequence[float] = ()
) -> Callable[[Params, Batch, Batch], dict[str, jax.Array]]:
    """probes(params, clean, noisy) -> {name: number}; jit- and vmap-safe.

    Probabilities are means over the scored positions of `clean` (alpha = 0); attention is that of
    the scored queries of `noisy`, where the noise occurs. Also with the matrices of `pattern` cut
    to each of `fractions`.
    """
    layers = model.spec.feed_forward
    last = len(layers) - 1

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    def answers(params, clean):
        scores = task_scores(apply, task, params, clean)
        return {name: token_weighted(scores[score]) for name, score in ANSWERS.items()}

    def probes(params, clean, noisy):
        versions = {"": params}
        for i, kind in enumerate(layers):
            if kind != "none":
                versions[f"_without_f{i + 1}"] = surgery.drop(params, f"block_{i}/mlp")
        out = {}
        for ending, version in versions.items():
            out |= {f"{name}{ending}": v for name, v in answers(version, clean).items()}
        if fractions:
            cut = surgery.truncations(params, pattern, fractions, lambda p: answers(p, clean))
            for name, values in cut.items():
                for i, fraction in enumerate(fractions):
                    out[f"{name}_at_{fraction:g}"] = values[i]
        out |= attention(model, task, params, noisy)
        if "positions" in params:
            masked, whole = previous_token(previous_scores(params))
            out |= {"previous_token": masked, "previous_token_unmasked": whole}
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
    target_BxT, noise_BxT = followers(task, noisy.inputs)
    weight_BxK = gathered.weights / jnp.maximum(gathered.weights.sum(), 1e-9)

    def mass(where_BxT):
        return (weight_BxK * (last_BxKxT * where_BxT[:, None]).sum(-1)).sum()

    return {
        "attention_previous": jnp.diagonal(first_BxTxT, -1, 1, 2).mean(),
        "attention_target": mass(target_BxT),
        "attention_noise": mass(noise_BxT),
    }


def followers(task, inputs: jax.typing.ArrayLike) -> tuple[jax.Array, jax.Array]:
    """(B, T) each: what follows a trigger and is not the noise, and what follows one and is."""
    inputs_BxT = jnp.asarray(inputs)
    follows_BxT = jnp.zeros(inputs_BxT.shape, bool)
    for q in task.trigger_tokens:
        follows_BxT = follows_BxT.at[:, 1:].set(follows_BxT[:, 1:] | (inputs_BxT[:, :-1] == q))
    noise_BxT = inputs_BxT == task.noise_token
    return follows_BxT & ~noise_BxT, follows_BxT & noise_BxT


class Shown(NamedTuple):
    """One noisy sequence and its last scored query, whose attention Figure 4 shows."""

    tokens_T: np.ndarray
    query: int


def shown(task, noisy: Batch) -> Shown:
    """The held-out sequence whose last scored query sees most of both, ybar and noise."""
    scored_BxT, T = np.asarray(noisy.weights) > 0, noisy.inputs.shape[1]
    query_B = T - 1 - scored_BxT[:, ::-1].argmax(1)
    seen_BxT = np.arange(T)[None] <= query_B[:, None]
    target_BxT, noise_BxT = (np.asarray(w) & seen_BxT for w in followers(task, noisy.inputs))
    target_B, noise_B = target_BxT.sum(1), noise_BxT.sum(1)
    # Where ybar is a trigger itself, every trigger follows one.
    clear_B = ~(target_BxT & np.isin(noisy.inputs, task.trigger_tokens)).any(1) & scored_BxT.any(1)
    # In synthetic IOI the noise follows no trigger of the context: ybar alone decides.
    best = int(np.lexsort((target_B, np.minimum(target_B, noise_B), clear_B))[-1])
    return Shown(np.asarray(noisy.inputs[best]), int(query_B[best]))


def attention_row(model, params: Params, example: Shown) -> jax.Array:
    """The last layer's attention of the shown query, (T,)."""
    name = f"block_{len(model.spec.feed_forward) - 1}/attn/weights"
    tokens_1xT, query_1x1 = jnp.asarray(example.tokens_T)[None], jnp.array([[example.query]])
    return capture(model, params, tokens_1xT, query_1x1, names=[name])[name][0, 0]


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
        maps["previous_token"] = previous_scores(params)
    # The layer-1 value of a trigger is the key that the last layer's trigger looks for.
    first = params["block_0"]["attn"]
    copied_VxD = embedding_VxD @ first["value"]["kernel"]
    if "out" in first:
        copied_VxD = copied_VxD @ first["out"]["kernel"]
    maps["induction"] = embedding_VxD @ attn["key"]["kernel"].T @ copied_VxD.T
    return maps


def previous_scores(params: Params) -> jax.Array:
    """p_i Wk1 p_j, (T, T): how much position i looks for position j in the first layer."""
    p_TxD = params["positions"]["embedding"]
    return p_TxD @ params["block_0"]["attn"]["key"]["kernel"].T @ p_TxD.T


def previous_token(scores_TxT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The share of positions whose largest score is at the one before: of those that they see, and
    of all, as the authors' probe has it."""
    places = jnp.arange(len(scores_TxT))
    causal_TxT = places[None] <= places[:, None]
    seen_T = jnp.where(causal_TxT, scores_TxT, -jnp.inf).argmax(1)
    masked, whole = ((found == places - 1)[1:].mean() for found in (seen_T, scores_TxT.argmax(1)))
    return masked, whole


def memory_scores(maps: dict[str, jax.Array], task) -> dict[str, jax.Array]:
    """How well the memories of Figures 7 and 9 are stored, each as one number.

    recall_values: share of tokens i whose largest <Wo2 Wv2 E_i, U_j> is at j = i; recall_previous:
    of positions whose largest p_i Wk1 p_j, j <= i, is at i - 1; recall_noise: of inputs for which
    F2 gives the noise the largest logit. induction_*: the mean logit of Figure 9 over trigger pairs
    i = j (triggers), i != j (mixed), other tokens i = j (others), in deviations of the rest.
    """
    N, noise = maps["values"].shape[0], task.noise_token
    tokens = jnp.arange(N)
    # A noise of its own is never to be copied.
    copied = (maps["values"].argmax(1) == tokens) & (tokens != noise)
    out = {"recall_values": copied.sum() / (N - 1)}
    if "feed_forward" in maps:
        out["recall_noise"] = (maps["feed_forward"].argmax(1) == noise).mean()
    if "previous_token" in maps:
        out["recall_previous"], _ = previous_token(maps["previous_token"])
    if task.trigger_tokens:
        is_q = jnp.isin(tokens, jnp.array(task.trigger_tokens))
        same_NxN, both_NxN = jnp.eye(N, dtype=bool), is_q[:, None] & is_q[None]
        values_NxN, rest_NxN = maps["induction"], ~both_NxN
        mean, deviation = values_NxN.mean(where=rest_NxN), values_NxN.std(where=rest_NxN)
        groups = {"triggers": both_NxN & same_NxN, "others": ~both_NxN & same_NxN}
        if len(task.trigger_tokens) > 1:
            groups["mixed"] = both_NxN & ~same_NxN
        for name, where in groups.items():
            out[f"induction_{name}"] = (values_NxN.mean(where=where) - mean) / deviation
    return out
