"""Probes of recall models: probabilities with layers removed, attention, and stored memories.

Layers have the paper's numbers: F1 is the feed-forward layer of block_0, F2 that of the last block.
B is the axis of sequences, T that of tokens, K of scored positions, V of symbols, D the width.
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
# {name of a probe on clean data: the task's score}. "accuracy" of a run is measured on noisy data.
CLEAN_SCORES = {
    "p_correct": "p_correct",
    "p_noise": "p_noise",
    "loss": "loss",
    "accuracy_clean": "accuracy",
}


def make_probes(
    model, task, pattern: str = "", fractions: Sequence[float] = ()
) -> Callable[[Params, Batch, Batch], dict[str, jax.Array]]:
    """Returns probes(params, clean, noisy) -> {name: number}, a function that can be jitted.

    Scores are means over the scored positions of `clean` (alpha = 0): those of the full model, of
    the model without each feed-forward layer, and of the truncated models. Attention is measured
    at the scored queries of `noisy`.

    Args:
      model: A recall model.
      task: Its task.
      pattern: The matrices to truncate.
      fractions: The shares of their rank to keep.
    """
    layers = model.spec.feed_forward
    last = len(layers) - 1

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    def clean_scores(params, clean):
        scores = task_scores(apply, task, params, clean)
        return {name: token_weighted(scores[score]) for name, score in CLEAN_SCORES.items()}

    def probes(params, clean, noisy):
        versions = {"": params}
        for i, kind in enumerate(layers):
            if kind != "none":
                versions[f"_without_f{i + 1}"] = surgery.drop(params, f"block_{i}/mlp")
        out = {}
        for ending, version in versions.items():
            out |= {f"{name}{ending}": v for name, v in clean_scores(version, clean).items()}
        if fractions:
            truncated = surgery.truncations(
                params, pattern, fractions, lambda cut: clean_scores(cut, clean)
            )
            for name, values in truncated.items():
                for i, fraction in enumerate(fractions):
                    out[f"{name}_at_{fraction:g}"] = values[i]
        out |= attention(model, task, params, noisy)
        if "positions" in params:
            causal, unmasked = previous_token(previous_scores(params))
            out |= {"previous_token": causal, "previous_token_unmasked": unmasked}
        if layers[last] != "none" and task.trigger_tokens:
            out["margin_f2"] = feed_forward_margin(model, task, params, last)
        return out

    return probes


def attention(model, task, params: Params, noisy: Batch) -> dict[str, jax.Array]:
    """Returns the mean attention of the first and of the last layer on certain tokens.

    Returns:
      attention_previous: The first layer's attention on the previous token.
      attention_target: The last layer's attention, from scored queries, on ordinary tokens that
        follow a trigger.
      attention_noise: The last layer's attention, from scored queries, on noise tokens that follow
        a trigger.
    """
    last = len(model.spec.feed_forward) - 1
    positions_BxK, gathered = scored_positions(noisy, task.n_scored)
    names = ["block_0/attn/weights", f"block_{last}/attn/weights"]
    captured = capture(model, params, noisy.inputs, positions_BxK, names=names)
    first_BxTxT, last_BxKxT = (captured[name] for name in names)
    target_BxT, noise_BxT = followers(task, noisy.inputs)
    query_weight_BxK = gathered.weights / jnp.maximum(gathered.weights.sum(), 1e-9)

    def attention_on(tokens_BxT):
        return (query_weight_BxK * (last_BxKxT * tokens_BxT[:, None]).sum(-1)).sum()

    return {
        "attention_previous": jnp.diagonal(first_BxTxT, -1, 1, 2).mean(),
        "attention_target": attention_on(target_BxT),
        "attention_noise": attention_on(noise_BxT),
    }


def followers(task, inputs: jax.typing.ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Returns two (B, T) masks of tokens after a trigger: ordinary tokens, and the noise token."""
    inputs_BxT = jnp.asarray(inputs)
    follows_BxT = jnp.zeros(inputs_BxT.shape, bool)
    for q in task.trigger_tokens:
        follows_BxT = follows_BxT.at[:, 1:].set(follows_BxT[:, 1:] | (inputs_BxT[:, :-1] == q))
    noise_BxT = inputs_BxT == task.noise_token
    return follows_BxT & ~noise_BxT, follows_BxT & noise_BxT


class ShownQuery(NamedTuple):
    """A noisy sequence and its last scored query, whose attention Figure 4 shows."""

    tokens_T: np.ndarray
    position: int


def query_to_show(task, noisy: Batch) -> ShownQuery:
    """Chooses the held-out sequence with the most followers of the trigger, for Figure 4.

    The followers are the answer ybar and the noise. Sequences are compared by the smaller of the
    two counts before the last scored query.
    """
    scored_BxT, T = np.asarray(noisy.weights) > 0, noisy.inputs.shape[1]
    query_B = T - 1 - scored_BxT[:, ::-1].argmax(1)
    visible_BxT = np.arange(T)[None] <= query_B[:, None]
    target_BxT, noise_BxT = (np.asarray(w) & visible_BxT for w in followers(task, noisy.inputs))
    target_B, noise_B = target_BxT.sum(1), noise_BxT.sum(1)
    # If ybar is a trigger itself, every trigger follows a trigger: such a sequence comes last.
    ybar_is_trigger_B = (target_BxT & np.isin(noisy.inputs, task.trigger_tokens)).any(1)
    is_suitable_B = ~ybar_is_trigger_B & scored_BxT.any(1)
    # In synthetic IOI the noise follows no trigger of the context, so that the count of ybar
    # decides. lexsort sorts by its last key first.
    best = int(np.lexsort((target_B, np.minimum(target_B, noise_B), is_suitable_B))[-1])
    return ShownQuery(np.asarray(noisy.inputs[best]), int(query_B[best]))


def attention_row(model, params: Params, example: ShownQuery) -> jax.Array:
    """Returns the last layer's attention from the shown query, (T,)."""
    name = f"block_{len(model.spec.feed_forward) - 1}/attn/weights"
    tokens_1xT, query_1x1 = jnp.asarray(example.tokens_T)[None], jnp.array([[example.position]])
    return capture(model, params, tokens_1xT, query_1x1, names=[name])[name][0, 0]


def feed_forward_margin(model, task, params: Params, layer: int) -> jax.Array:
    """Returns o_tau - max_{k != tau} o_k of the logits o = U F(E[q]), averaged over triggers q.

    F is the feed-forward layer, E the embedding, U the unembedding and tau the noise token.
    """
    e_QxD = params["embed"]["embedding"][jnp.asarray(task.trigger_tokens)]
    o_QxV = feed_forward(model, params, layer, e_QxD) @ unembedding(params)
    noise = task.noise_token
    return (o_QxV[:, noise] - o_QxV.at[:, noise].set(-jnp.inf).max(-1)).mean()


def feed_forward(model, params: Params, layer: int, x_RxD: jax.Array) -> jax.Array:
    """Returns the output of one layer's F for each row of x."""
    kind, mlp = model.spec.feed_forward[layer], params[f"block_{layer}"]["mlp"]
    y_RxM = x_RxD @ mlp["in"]["kernel"]
    if kind == "linear":
        return y_RxM
    return jax.nn.relu(y_RxM) @ mlp["out"]["kernel"] if kind == "mlp" else jax.nn.relu(y_RxM)


def unembedding(params: Params) -> jax.Array:
    """Returns the matrix from the residual stream to logits, (D, V), tied or not."""
    if "unembed" not in params:
        return params["embed"]["embedding"].T / params["embed"]["embedding"].shape[-1] ** 0.5
    return params["unembed"]["kernel"]


def memories(model, params: Params) -> dict[str, jax.Array]:
    """Returns the heat maps of Figures 7 and 9; rows i are queries or inputs.

    Number 1 in a name marks the first layer, 2 the last one. E is the embedding, U the unembedding,
    p the positions.

    Returns:
      values: <Wo2 Wv2 E_i, U_j>, (V, V).
      feed_forward: <F2(E_i), U_j>, (V, V), if the last block has an F.
      previous_token: p_i Wk1 p_j, (T, T), if the model has positions.
      induction: E_i Wk2 (Wo1 Wv1 E_j), (V, V), of Figure 9.
    """
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
    # The layer-1 value of a trigger is the key that matches a trigger's query in the last layer.
    first = params["block_0"]["attn"]
    copied_VxD = embedding_VxD @ first["value"]["kernel"]
    if "out" in first:
        copied_VxD = copied_VxD @ first["out"]["kernel"]
    maps["induction"] = embedding_VxD @ attn["key"]["kernel"].T @ copied_VxD.T
    return maps


def previous_scores(params: Params) -> jax.Array:
    """Returns the first layer's scores of positions, p_i Wk1 p_j, (T, T)."""
    p_TxD = params["positions"]["embedding"]
    return p_TxD @ params["block_0"]["attn"]["key"]["kernel"].T @ p_TxD.T


def previous_token(scores_TxT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the share of positions whose largest score is at the previous position.

    Returns:
      The share among visible positions, and that among all positions, as in the authors' probe.
    """
    positions = jnp.arange(len(scores_TxT))
    causal_TxT = positions[None] <= positions[:, None]
    best_visible_T = jnp.where(causal_TxT, scores_TxT, -jnp.inf).argmax(1)
    causal, unmasked = (
        (best_T == positions - 1)[1:].mean() for best_T in (best_visible_T, scores_TxT.argmax(1))
    )
    return causal, unmasked


def memory_scores(maps: dict[str, jax.Array], task) -> dict[str, jax.Array]:
    """Returns a number for each memory of Figures 7 and 9.

    Returns:
      recall_values: The share of tokens i whose largest <Wo2 Wv2 E_i, U_j> is at j = i.
      recall_noise: The share of inputs for which F2 gives the noise the largest logit.
      recall_previous: The share of positions i whose largest p_i Wk1 p_j, j <= i, is at i - 1.
      induction_triggers, induction_mixed, induction_others: Mean logits of Figure 9 for pairs of a
        trigger with itself, of two different triggers, and of another token with itself, in
        standard deviations of all logits but those of two triggers.
    """
    V, noise = maps["values"].shape[0], task.noise_token
    tokens = jnp.arange(V)
    # The noise token itself is never copied.
    copied = (maps["values"].argmax(1) == tokens) & (tokens != noise)
    out = {"recall_values": copied.sum() / (V - 1)}
    if "feed_forward" in maps:
        out["recall_noise"] = (maps["feed_forward"].argmax(1) == noise).mean()
    if "previous_token" in maps:
        out["recall_previous"], _ = previous_token(maps["previous_token"])
    if task.trigger_tokens:
        is_q = jnp.isin(tokens, jnp.array(task.trigger_tokens))
        same_VxV, triggers_VxV = jnp.eye(V, dtype=bool), is_q[:, None] & is_q[None]
        values_VxV, rest_VxV = maps["induction"], ~triggers_VxV
        mean, deviation = values_VxV.mean(where=rest_VxV), values_VxV.std(where=rest_VxV)
        groups = {"triggers": triggers_VxV & same_VxV, "others": ~triggers_VxV & same_VxV}
        if len(task.trigger_tokens) > 1:
            groups["mixed"] = triggers_VxV & ~same_VxV
        for name, where in groups.items():
            out[f"induction_{name}"] = (values_VxV.mean(where=where) - mean) / deviation
    return out
