"""What attention does in a trained network: scores of every head, and the maps of one sequence.

What the scores are, `experiments/look.py` says.
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
WEIGHTS, STATES = r"block_\d+/attn/weights", r"block_\d+/(states|output)"
SHOWN_HEADS = 4  # of a layer, the ones with the highest score
SHOWN_TOKENS = 21
SYMBOL = 0.1  # inches of a token beside an axis


class Inside(NamedTuple):
    """What one member shows: numbers, and the maps of one sequence if it has any."""

    scores: dict[str, Any]
    maps: list[np.ndarray] | None  # (H, T, T) a layer
    tokens: np.ndarray  # (T,), of that sequence
    query: int  # the last scored position
    answer: int  # where the induction head looks from there, -1: nowhere


def look_inside(model, params: Any, config: Any, sequences: int = 256) -> Inside:
    """What a loaded network shows on test sequences of its own task."""
    task = build.task(config)
    test = build.source(config, task, batch_size=1).heldout().test
    return scores_of(model, params, task, jax.tree.map(lambda x: x[:sequences], test))


def scores_of(model, params: Any, task: Task, test: Batch) -> Inside:
    """Scores of every head and the similarity of the last layer's tokens, on test sequences."""
    known = capture.names(model, params, test.inputs)
    scores = _similarity(model, params, test, known)
    tokens_BxT, sources_BxT = test.inputs, observables.after_previous(same_symbols(task, test))
    scored_BxT = test.weights > 0
    place_T = jnp.arange(tokens_BxT.shape[1], dtype=jnp.int32)
    ends_B = jnp.where(scored_BxT, place_T[None], 0).max(-1)  # the last scored position
    example = _example(np.asarray(ends_B), np.asarray(sources_BxT))
    end = int(ends_B[example])
    shown = np.asarray(tokens_BxT[example, : end + 1])
    answer = int(sources_BxT[example, end])
    names = [name for name in known if re.fullmatch(WEIGHTS, name)]
    if getattr(model.spec, "mixer", "softmax") != "softmax" or not names:
        return Inside(scores, None, shown, end, answer)

    before_BxT = jnp.broadcast_to(place_T[None] - 1, tokens_BxT.shape)
    inside_BxT = place_T[None] <= ends_B[:, None]  # the padding behind the last scored one is out
    visible_TxT = jnp.tril(jnp.ones((len(place_T), len(place_T))))
    uniform_TxT = visible_TxT / visible_TxT.sum(1, keepdims=True)
    uniform = jnp.broadcast_to(uniform_TxT[None, None], (len(tokens_BxT), 1, *uniform_TxT.shape))
    goals_BxT = jnp.where(scored_BxT, sources_BxT, -1)
    found_BxT = (goals_BxT[:, :, None] == place_T[None, None]).any(1)
    looked = {
        "previous": (before_BxT, inside_BxT),
        "pairing": (before_BxT, found_BxT),
        "induction": (sources_BxT, scored_BxT),
    }
    weights = capture.capture(model, params, tokens_BxT, names=names)
    shape_BxHxTxT = (len(tokens_BxT), -1, *visible_TxT.shape)  # a single head may have no axis
    layers = [weights[name].reshape(shape_BxHxTxT) for name in sorted(names, key=_layer)]
    for name, (where, counted) in looked.items():
        scores[name] = [np.asarray(observables.attention_to(w, where, counted)) for w in layers]
        scores[f"{name}_by_chance"] = float(observables.attention_to(uniform, where, counted)[0])
    maps = [np.asarray(w[example, :, : end + 1, : end + 1]) for w in layers]
    return Inside(scores, maps, shown, end, answer)


def same_symbols(task: Task, batch: Batch) -> jax.Array:
    """The tokens, with retrieval's separate query symbols written as their keys."""
    if isinstance(task, Retrieval) and task.format == "authors":
        first_query = task.vocab // 2 + task.max_pairs
        return jnp.where(batch.inputs >= first_query, batch.inputs - task.max_pairs, batch.inputs)
    return batch.inputs


def draw(file: Path, inside: Inside, title: str) -> None:
    """One panel a layer and head (the strongest heads), the query's row and its goal marked."""
    assert inside.maps is not None
    layers, columns = len(inside.maps), min(SHOWN_HEADS, len(inside.maps[0]))
    high = 1.5 * layers + 0.5 if columns > 2 else 2.8 * layers
    size, shared = (plots.PAGE, high), {"sharex": True, "sharey": True}
    figure, axes = plots.grid(layers, columns, size, **shared)
    for layer, maps in enumerate(inside.maps):
        kind = "pairing" if layer == 0 else "induction"
        scores = np.nan_to_num(inside.scores[kind][layer])
        for axis, head in zip(axes[layer], np.argsort(-scores), strict=False):
            image = axis.imshow(maps[head], cmap="Blues", vmin=0, vmax=1)
            axis.spines[:].set_visible(True)
            plots.titled(axis, f"block_{layer}, head {head}: {kind} {scores[head]:.2f}")
            _mark(axis, inside, layer)
        axes[layer, 0].set_ylabel("from this token")
    for axis in axes[-1]:
        axis.set_xlabel("to this token")
    plots.bar(figure, image, axes, "attention", shrink=0.6)
    first = np.nan_to_num(inside.scores["pairing"][0]).max()
    best = [np.nan_to_num(x).max() for x in inside.scores["induction"][1:]] or [0.0]
    plots.headed(
        figure,
        f"{title}: attention from the answer to the token before it in block_0 {first:.2f}, from "
        f"the query to the answer later {max(best):.2f}",
        "Scores: the strongest head, mean over the test set; maps: one sequence. Orange row: the "
        "query; red box: where an induction head looks.",
    )
    plots.save(figure, file)


def _mark(axis, inside: Inside, layer: int) -> None:
    from matplotlib.patches import Rectangle

    n = len(inside.tokens)
    wide = (plots.PAGE - 1) / min(SHOWN_HEADS, len(inside.scores["pairing"][0]))
    fit = max(int(wide / SYMBOL), 1)  # tokens whose names have room
    ticks = np.arange(0, n, -(-n // fit))
    small = plots.figure_style.SMALLEST
    axis.set_xticks(ticks, inside.tokens[ticks], fontsize=small, rotation=90)
    axis.set_yticks(ticks, inside.tokens[ticks], fontsize=small)
    orange, red = plots.COLOURS[4], plots.COLOURS[1]

    def box(corner, width, colour):
        place = (corner[0] - 0.5, corner[1] - 0.5)
        rectangle = Rectangle(place, width, 1, fill=False, clip_on=False)
        rectangle.set(edgecolor=colour, linewidth=1)
        axis.add_patch(rectangle)

    box((0, inside.query), n, orange)
    if inside.answer > 0:
        row = inside.answer if layer == 0 else inside.query
        column = inside.answer - 1 if layer == 0 else inside.answer
        box((column, row), 1, red)


def _similarity(model, params: Any, test: Batch, known: list[str]) -> dict[str, Any]:
    """How alike the tokens of the last layer are, if the model shows them."""
    names = sorted((name for name in known if re.fullmatch(STATES, name)), key=_layer)
    if not names:
        return {}
    states = capture.capture(model, params, test.inputs, names=names[-1:])[names[-1]]
    return {
        "covariance": float(observables.token_covariance(states).mean()),
        "cosine": float(observables.token_cosine(states).mean()),
    }


def _layer(name: str) -> int:
    return int(name.split("/")[0].removeprefix("block_"))


def _example(ends_B: np.ndarray, sources_BxT: np.ndarray) -> int:
    """The longest sequence that can still be read, with an answer to look for if there is one."""
    answered = sources_BxT[np.arange(len(ends_B)), ends_B] > 0
    return int(np.argmax(answered * 1000 + np.where(ends_B < SHOWN_TOKENS, ends_B, -ends_B)))
