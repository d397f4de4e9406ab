"""Attention in a trained network: scores of every head, and the maps of one sequence.

`experiments/look.py` defines the scores.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from jaxformer import build, capture
from jaxformer.interp import observables
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch, Task

SCORES = ("previous", "pairing", "induction")
# Patterns of the names of captured activations.
WEIGHTS, STATES = r"block_\d+/attn/weights", r"block_\d+/(states|output)"
MAX_HEADS = 4  # how many heads of a layer are drawn, those with the highest scores
MAX_TOKENS = 21  # a shorter sequence is drawn if the test set has one
TICK_LABEL_INCHES = 0.1  # space for one token on an axis


class Inside(NamedTuple):
    """The attention of one member: scores, and the maps of one test sequence."""

    scores: dict[str, Any]
    maps: list[np.ndarray] | None  # (H, T, T) for each layer; None without attention
    tokens: np.ndarray  # (T,) of the sequence
    query: int  # the last scored position, from which the maps are read
    answer: int  # the position that an induction head attends to from the query; -1 for none


def look_inside(model, params: Any, config: Any, sequences: int = 256) -> Inside:
    """Measures the attention of a loaded network on test sequences of its task.

    Args:
        params: the parameters of one member.
        config: the config of the run.
        sequences: the number of test sequences.
    """
    task = build.task(config)
    test = build.source(config, task, batch_size=1).heldout().test
    return scores_of(model, params, task, jax.tree.map(lambda x: x[:sequences], test))


def scores_of(model, params: Any, task: Task, test: Batch) -> Inside:
    """Measures the scores of every head and the similarity of the last layer's tokens."""
    available = capture.names(model, params, test.inputs)
    scores = _similarity(model, params, test, available)
    tokens_BxT = test.inputs
    # The position that an induction head attends to from each position.
    sources_BxT = observables.after_previous(same_symbols(task, test))
    scored_BxT = test.weights > 0
    positions_T = jnp.arange(tokens_BxT.shape[1], dtype=jnp.int32)
    ends_B = jnp.where(scored_BxT, positions_T[None], 0).max(-1)  # the last scored position
    example = _example_index(np.asarray(ends_B), np.asarray(sources_BxT))
    end = int(ends_B[example])
    example_tokens = np.asarray(tokens_BxT[example, : end + 1])
    answer = int(sources_BxT[example, end])
    names = [name for name in available if re.fullmatch(WEIGHTS, name)]
    # The weights of any other mixer are fixed matrices and no attention.
    if getattr(model.spec, "mixer", "softmax") != "softmax" or not names:
        return Inside(scores, None, example_tokens, end, answer)

    previous_BxT = jnp.broadcast_to(positions_T[None] - 1, tokens_BxT.shape)
    unpadded_BxT = positions_T[None] <= ends_B[:, None]
    visible_TxT = jnp.tril(jnp.ones((len(positions_T), len(positions_T))))
    uniform_TxT = visible_TxT / visible_TxT.sum(1, keepdims=True)
    shape_Bx1xTxT = (len(tokens_BxT), 1, *uniform_TxT.shape)
    uniform_Bx1xTxT = jnp.broadcast_to(uniform_TxT[None, None], shape_Bx1xTxT)
    answers_BxT = jnp.where(scored_BxT, sources_BxT, -1)
    is_answer_BxT = (answers_BxT[:, :, None] == positions_T[None, None]).any(1)
    targets = {  # (position to attend to, positions to average over)
        "previous": (previous_BxT, unpadded_BxT),
        "pairing": (previous_BxT, is_answer_BxT),
        "induction": (sources_BxT, scored_BxT),
    }
    weights = capture.capture(model, params, tokens_BxT, names=names)
    # Adds the head axis if the model has none.
    shape_BxHxTxT = (len(tokens_BxT), -1, *visible_TxT.shape)
    layers = [weights[name].reshape(shape_BxHxTxT) for name in sorted(names, key=_layer)]
    for name, (target, mask) in targets.items():
        scores[name] = [np.asarray(observables.attention_to(w, target, mask)) for w in layers]
        by_chance = observables.attention_to(uniform_Bx1xTxT, target, mask)[0]
        scores[f"{name}_by_chance"] = float(by_chance)
    maps = [np.asarray(w[example, :, : end + 1, : end + 1]) for w in layers]
    return Inside(scores, maps, example_tokens, end, answer)


def same_symbols(task: Task, batch: Batch) -> jax.Array:
    """Returns the tokens, with retrieval's separate query symbols replaced by their keys."""
    if isinstance(task, Retrieval) and task.format == "authors":
        first_query = task.vocab // 2 + task.max_pairs
        return jnp.where(batch.inputs >= first_query, batch.inputs - task.max_pairs, batch.inputs)
    return batch.inputs


def draw(file: Path, inside: Inside, title: str) -> None:
    """Draws one map for each layer and strong head, with the query's row and answer marked."""
    assert inside.maps is not None
    layers, columns = len(inside.maps), min(MAX_HEADS, len(inside.maps[0]))
    height = 1.5 * layers + 0.5 if columns > 2 else 2.8 * layers
    figure, axes = plots.grid(layers, columns, (plots.PAGE, height), sharex=True, sharey=True)
    for layer, maps in enumerate(inside.maps):
        kind = "pairing" if layer == 0 else "induction"
        scores = np.nan_to_num(inside.scores[kind][layer])
        for axis, head in zip(axes[layer], np.argsort(-scores), strict=False):
            image = axis.imshow(maps[head], cmap="Blues", vmin=0, vmax=1)
            axis.spines[:].set_visible(True)
            plots.set_title(axis, f"block_{layer}, head {head}: {kind} {scores[head]:.2f}")
            _mark(axis, inside, layer)
        axes[layer, 0].set_ylabel("from this token")
    for axis in axes[-1]:
        axis.set_xlabel("to this token")
    plots.add_colour_bar(figure, image, axes, "attention", shrink=0.6)
    first = np.nan_to_num(inside.scores["pairing"][0]).max()
    best = [np.nan_to_num(x).max() for x in inside.scores["induction"][1:]] or [0.0]
    plots.add_finding(
        figure,
        f"{title}: attention from the answer to the token before it in block_0 {first:.2f}, from "
        f"the query to the answer later {max(best):.2f}",
        "Scores: the strongest head, mean over the test set; maps: one sequence. Orange row: the "
        "query; red box: where an induction head looks.",
    )
    plots.save(figure, file)


def _mark(axis, inside: Inside, layer: int) -> None:
    """Labels the axes with tokens, and draws boxes around the query's row and the answer.

    In layer 0 the red box is where a head pairs the answer with the token before it. In later
    layers it is where an induction head attends to from the query.
    """
    from matplotlib.patches import Rectangle

    n = len(inside.tokens)
    panel_inches = (plots.PAGE - 1) / min(MAX_HEADS, len(inside.scores["pairing"][0]))
    max_ticks = max(int(panel_inches / TICK_LABEL_INCHES), 1)
    ticks = np.arange(0, n, -(-n // max_ticks))
    small = plots.figure_style.SMALLEST
    axis.set_xticks(ticks, inside.tokens[ticks], fontsize=small, rotation=90)
    axis.set_yticks(ticks, inside.tokens[ticks], fontsize=small)
    orange, red = plots.COLOURS[4], plots.COLOURS[1]

    def box(corner, width, colour):
        lower_left = (corner[0] - 0.5, corner[1] - 0.5)
        rectangle = Rectangle(lower_left, width, 1, fill=False, clip_on=False)
        rectangle.set(edgecolor=colour, linewidth=1)
        axis.add_patch(rectangle)

    box((0, inside.query), n, orange)
    if inside.answer > 0:
        row = inside.answer if layer == 0 else inside.query
        column = inside.answer - 1 if layer == 0 else inside.answer
        box((column, row), 1, red)


def _similarity(model, params: Any, test: Batch, available: list[str]) -> dict[str, Any]:
    """Returns the similarity of the last layer's tokens; {} if its states cannot be captured."""
    names = sorted((name for name in available if re.fullmatch(STATES, name)), key=_layer)
    if not names:
        return {}
    states = capture.capture(model, params, test.inputs, names=names[-1:])[names[-1]]
    return {
        "covariance": float(observables.token_covariance(states).mean()),
        "cosine": float(observables.token_cosine(states).mean()),
    }


def _layer(name: str) -> int:
    return int(name.split("/")[0].removeprefix("block_"))


def _example_index(ends_B: np.ndarray, sources_BxT: np.ndarray) -> int:
    """Returns the index of the longest sequence that can be drawn, preferably with an answer."""
    has_answer = sources_BxT[np.arange(len(ends_B)), ends_B] > 0
    # The longest of the sequences below MAX_TOKENS, or else the shortest. An answer counts more.
    length_score = np.where(ends_B < MAX_TOKENS, ends_B, -ends_B)
    return int(np.argmax(1000 * has_answer + length_score))
