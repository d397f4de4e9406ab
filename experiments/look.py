"""Looks inside a finished run: who attends to whom, and how similar the last layer's tokens are.

    python experiments/look.py RUN_DIR [--plot=DIR] [--sequences=N]

Prints a table for every chosen member and writes it to inspect.json, with the attention maps of one
test sequence (Figure 3 of the MixiT paper) in inspect.png, into RUN_DIR or DIR.

  previous    mean attention from a token to the token before it
  pairing     the same, only from the tokens that an induction head has to find (in retrieval: from
              the answer in the context to its key)
  induction   mean attention from a scored position to the token after the previous occurrence of
              its own (in retrieval: to the answer; a query symbol counts as its key)
  by chance   the same numbers of uniform attention
  covariance  mean over pairs of tokens of the covariance over features of the last layer's states
  cosine      the same, normalised: 1 is rank collapse

An induction head needs both: some head of the first layer with a high `pairing`, some head of the
second with a high `induction`. MixiT mixes with fixed matrices, so that it has no attention to
show; its states are still measured. (The file is not called inspect.py: Python's own module of that
name would be hidden from every script beside it.)
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxformer
from experiments.shared import plots
from experiments.shared.describe import number
from jaxformer import build, observables
from jaxformer.capture import capture
from jaxformer.errors import UserError
from jaxformer.records import Workdir, write_json
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch, Task

SCORES = ("previous", "pairing", "induction")
SHOWN_HEADS = 4  # of a layer, the ones with the highest score
SHOWN_TOKENS = 21


def main(argv: Sequence[str]) -> int:
    try:
        return look(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def look(argv: Sequence[str]) -> int:
    folders, plot, sequences = [], "", 256
    for word in argv:
        if word in ("--help", "-h"):
            print(__doc__)
            return 0
        if word.startswith("--plot="):
            plot = word.removeprefix("--plot=")
        elif word.startswith("--sequences="):
            sequences = _count(word.removeprefix("--sequences="))
        elif word.startswith("-"):
            raise UserError(
                f"unknown flag {word!r}. The flags are --plot=DIR, --sequences=N and --help."
            )
        else:
            folders.append(Workdir(word))
    if len(folders) != 1:
        raise UserError(f"give the folder of one finished run, got {len(folders)} folders.")
    (folder,) = folders
    members = _chosen(folder)
    out = Path(plot) if plot else folder.path
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, index in members.items():
        found[name] = numbers(*jaxformer.load(folder.path, index), sequences)
        _print(name, found[name])
    maps = [name for name, one in found.items() if one.maps is not None]
    for i, name in enumerate(maps):
        file = out / ("inspect.png" if i == 0 else f"inspect-{name.replace(' ', '-')}.png")
        draw(file, found[name], f"{folder.path.name}, {name}")
        print(f"attention maps: {file}")
    if not maps:
        print(
            "no attention maps: this model mixes tokens with fixed matrices, whatever they are "
            "(variant mixit), so that only its states can be looked at."
        )
    write_json(out / "inspect.json", {name: one.scores for name, one in found.items()})
    print(f"numbers: {out / 'inspect.json'}")
    return 0


class Inside(NamedTuple):
    """What one member shows: numbers, and the maps of one sequence if it has any."""

    scores: dict[str, Any]
    maps: list[np.ndarray] | None  # (H, T, T) a layer
    tokens: np.ndarray  # (T,), of that sequence
    query: int  # the last scored position
    answer: int  # where the induction head looks from there, -1: nowhere


def numbers(model, params, config, sequences: int = 256) -> Inside:
    """Scores of every head and the similarity of the last layer's tokens, on test sequences."""
    task = build.task(config)
    test = build.source(config, task).heldout().test
    test = jax.tree.map(lambda x: x[:sequences], test)
    last = config.model.layers - 1
    names = [f"block_{last}/states", "block_[0-9]+/attn/weights"]
    states = capture(model, params, test.inputs, names=names[:1])[names[0]]
    scores: dict[str, Any] = {
        "covariance": float(observables.token_covariance(states).mean()),
        "cosine": float(observables.token_cosine(states).mean()),
    }
    tokens_BxT, sources_BxT = test.inputs, observables.after_previous(same_symbols(task, test))
    scored_BxT = test.weights > 0
    ends_B = _last(scored_BxT)
    example = _example(np.asarray(ends_B), np.asarray(sources_BxT))
    end = int(ends_B[example])
    shown = np.asarray(tokens_BxT[example, : end + 1])
    answer = int(sources_BxT[example, end])
    if config.model.get("mixer", "softmax") != "softmax":
        return Inside(scores, None, shown, end, answer)

    place_T = jnp.arange(tokens_BxT.shape[1], dtype=jnp.int32)
    before_BxT = jnp.broadcast_to(place_T[None] - 1, tokens_BxT.shape)
    inside_BxT = place_T[None] <= ends_B[:, None]  # the padding behind the last scored one is out
    uniform = jnp.tril(
        1 / jnp.arange(1.0, len(place_T) + 1)[:, None] * jnp.ones(len(place_T))[None]
    )
    uniform = jnp.broadcast_to(uniform[None, None], (len(tokens_BxT), 1, *uniform.shape))
    goals_BxT = jnp.where(scored_BxT, sources_BxT, -1)
    found_BxT = (goals_BxT[:, :, None] == place_T[None, None]).any(1)
    looked = {
        "previous": (before_BxT, inside_BxT),
        "pairing": (before_BxT, found_BxT),
        "induction": (sources_BxT, scored_BxT),
    }
    weights = capture(model, params, tokens_BxT, names=names[1:])
    layers = [weights[f"block_{i}/attn/weights"] for i in range(last + 1)]
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
    plt = plots.pyplot()
    layers, columns = len(inside.maps), min(SHOWN_HEADS, len(inside.maps[0]))
    size = 1.6 + 0.13 * len(inside.tokens)
    figure, axes = plt.subplots(
        layers, columns, figsize=(size * columns, size * layers + 1), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for layer, maps in enumerate(inside.maps):
        kind = "pairing" if layer == 0 else "induction"
        scores = np.nan_to_num(inside.scores[kind][layer])
        for axis, head in zip(axes[layer], np.argsort(-scores), strict=False):
            image = axis.imshow(maps[head], cmap="Blues", vmin=0, vmax=1)
            axis.set_title(f"layer {layer + 1}, head {head}: {kind} {scores[head]:.2f}", fontsize=8)
            _mark(axis, inside, layer)
        axes[layer, 0].set_ylabel("from this token", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("to this token", fontsize=8)
    figure.colorbar(image, ax=axes, label="attention", shrink=0.5)
    first = np.nan_to_num(inside.scores["pairing"][0]).max()
    best = [np.nan_to_num(x).max() for x in inside.scores["induction"][1:]] or [0.0]
    figure.suptitle(
        f"{title}\nfrom the answer to the token before it, layer 1: {first:.2f}; from the query "
        f"to the answer, later: {max(best):.2f} (the strongest head, mean over the test set)\n"
        "orange row: the query; red box: where an induction head looks",
        fontsize=9,
    )
    plots.save(figure, file)


def _mark(axis, inside: Inside, layer: int) -> None:
    n = len(inside.tokens)
    every = 1 if n <= 2 * SHOWN_TOKENS else n // SHOWN_TOKENS
    ticks = np.arange(0, n, every)
    axis.set_xticks(ticks, inside.tokens[ticks], fontsize=6, rotation=90)
    axis.set_yticks(ticks, inside.tokens[ticks], fontsize=6)
    orange, red = plots.COLOURS[4], plots.COLOURS[1]

    def box(corner, width, colour):
        place = (corner[0] - 0.5, corner[1] - 0.5)
        rectangle = plots.pyplot().Rectangle(place, width, 1, fill=False, clip_on=False)
        rectangle.set(edgecolor=colour, linewidth=1.6)
        axis.add_patch(rectangle)

    box((0, inside.query), n, orange)
    if inside.answer > 0:
        row = inside.answer if layer == 0 else inside.query
        column = inside.answer - 1 if layer == 0 else inside.answer
        box((column, row), 1, red)


def _example(ends_B: np.ndarray, sources_BxT: np.ndarray) -> int:
    """The longest sequence that can still be read, with an answer to look for if there is one."""
    answered = sources_BxT[np.arange(len(ends_B)), ends_B] > 0
    return int(np.argmax(answered * 1000 + np.where(ends_B < SHOWN_TOKENS, ends_B, -ends_B)))


def _last(scored_BxT: jax.Array) -> jax.Array:
    place_T = jnp.arange(scored_BxT.shape[1], dtype=jnp.int32)
    return jnp.where(scored_BxT, place_T[None], 0).max(-1)


def _chosen(folder: Workdir) -> dict[str, int]:
    """{"seed 0": its place in the population} of the members that the run chose."""
    config = folder.read("config.json")["config"]
    if config.get("model", {}).get("name") != "decoder":
        raise UserError(
            f"{folder.path} is a run of the recipe {config['recipe']!r}; attention is shown of "
            "trained decoders: runs of configs/mixit with a variant."
        )
    if not (folder / "result.json").exists():
        raise UserError(
            f"{folder.path} is not finished: it has no result.json yet; the same run.py command on "
            "this folder goes on."
        )
    members = folder.read("result.json")["members"]
    return {f"seed {m['seed']}": i for i, m in enumerate(members) if m.get("chosen", True)}


def _print(name: str, inside: Inside) -> None:
    scores = inside.scores
    print(
        f"{name}: tokens of the last layer have covariance {scores['covariance']:.4g} (raw), "
        f"cosine {scores['cosine']:.4g} (normalised)"
    )
    if inside.maps is None:
        return
    table = Table("layer", "head", *SCORES, box=None, pad_edge=False)
    for layer, maps in enumerate(inside.maps):
        for head in range(len(maps)):
            table.add_row(
                str(layer + 1), str(head), *(_cell(scores[s][layer][head]) for s in SCORES)
            )
    table.add_row("by chance", "", *(_cell(scores[f"{s}_by_chance"]) for s in SCORES))
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)


def _cell(value: float) -> str:
    return number(None if np.isnan(value) else float(value))


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"--sequences must be a number of at least 1, got {text!r}.")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
