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
show; its states are still measured.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxformer
from experiments.shared.describe import number
from experiments.shared.inside import SCORES, Inside, draw, look_inside
from jaxformer import build
from jaxformer.errors import UserError
from jaxformer.records import Workdir, write_json


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


def numbers(model, params: Any, config: Any, sequences: int = 256) -> Inside:
    """What a loaded network shows on test sequences of its own task."""
    task = build.task(config)
    test = build.source(config, task, batch_size=1).heldout().test
    return look_inside(model, params, task, jax.tree.map(lambda x: x[:sequences], test))


def _chosen(folder: Workdir) -> dict[str, int]:
    """{"seed 0": its place in the population} of the members that the run chose."""
    config = folder.read("config.json")["config"]
    if "task" not in config or "train" not in config:
        raise UserError(
            f"{folder.path} is a run of the recipe {config['recipe']!r}; attention is shown of "
            "networks that were trained on tokens: runs of train, look and recall."
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
    if "cosine" in scores:
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
