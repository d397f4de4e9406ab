"""Cuts a weight matrix of a model to a low rank (LASER) and shows what changes.

    python experiments/cut.py MODEL --matrix block_11/mlp/in --fraction 0.01
                              --prompt "Madrid is located in" --target Spain
    python experiments/cut.py MODEL --search --prompts FILE --against the --out FOLDER
                              --matrix 'block_[0-9]+/mlp/(in|out)' --fraction 0.01,0.05,0.1

  MODEL              a folder with config.json and safetensors, a name on the hub ("gpt2"), or a
                     run of ours; `python -m jaxformer.models.pretrained.tiny gpt2 FOLDER` makes a
                     random one to try this on
  --matrix=PATTERN   which weights: a pattern over their paths; a module stands for its matrices
  --fraction=F,F     shares of the rank that are kept: rank floor(F x the smaller side)
  --revision=NAME    which version of a model on the hub
  --dtype=NAME       the precision in which it is loaded, such as bfloat16

The first form prints the likeliest next tokens of the whole and of the cut model side by side.

  --prompt=TEXT      what the next token is asked for
  --target=TEXT      a token whose probability is shown
  --top=N            tokens to show
  --save=FOLDER      writes the cut model as safetensors that transformers loads; biases stay

The second form scores every matrix at every fraction. There is one SVD a matrix and one compiled
program, and the blocks below a matrix are computed once.

Tied tokens share the mean of their ranks; where n tokens tie for the likeliest, each scores 1/n in
top_1. A network whose logits are not finite has no scores (null in rows.jsonl), and the command
exits with 1.

  --search           scores many cuts: this second form
  --prompts=FILE     has a line for each prompt: prompt, tab, target (its first token is scored)
  --against=TEXT     a token whose probability is shown beside the target's
  --out=FOLDER       where rows.jsonl grows; the same command goes on where it was stopped
  --at-once=N        prompts in one step

For a model without a tokenizer, prompts and targets are token ids: --prompt "5 17 2".
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.table import Table

from experiments.cli.describe import show
from experiments.papers.associations import cutting, prompts
from jaxformer import loading, surgery
from jaxformer.core import paths
from jaxformer.core.errors import NotFiniteError, UserError
from jaxformer.core.text_format import number
from jaxformer.models.pretrained import save_folder, text
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.runtime.progress import Line

WHOLE, CUT = "the whole model", "the cut model"
FRACTIONS = "0.01,0.02,0.05,0.1,0.2,0.3,0.4,0.6,0.8,1"


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--matrix", default="")
    parser.add_argument("--fraction", default="")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--target", default="")
    parser.add_argument("--against", default="")
    parser.add_argument("--top", type=count, default=5)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--revision")
    parser.add_argument("--dtype")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--at-once", type=count, default=100)
    asked = parser.parse_args(argv)
    if len(asked.models) != 1:
        raise UserError(f"give one model, a folder or a name on the hub, got {len(asked.models)}.")
    fractions = [*dict.fromkeys(map(_fraction, (asked.fraction or FRACTIONS).split(",")))]
    source = asked.models[0]
    folder = loading.published(source, asked.revision)
    if folder is None:
        model, params, config = loading.load(source, revision=asked.revision, dtype=asked.dtype)
    else:
        model, params, config = loading.load(folder, dtype=asked.dtype)
    if not model.spec.vocab_size or not model.spec.causal:
        raise UserError(f"{source} says no next token: it is not causal, or reads vectors.")
    words = text.reader(folder or source, model.spec.vocab_size)
    against = prompts.next_token(words, asked.against) if asked.against else (prompts.NO_TARGET, "")
    if asked.search:
        return _search(asked, model, params, words, fractions, against)
    if not asked.matrix or not asked.prompt or len(fractions) != 1 or not asked.fraction:
        raise UserError("give --matrix, one --fraction and --prompt, or --search.")
    if asked.save and folder is None:
        raise UserError(f"--save writes published models; {source} is a run of ours.")
    if asked.save and folder and asked.save.resolve() == folder.resolve():
        raise UserError(f"--save={asked.save} would write over the model that is cut.")
    targets = [asked.target] if asked.target else []
    one = prompts.batch(words, [asked.prompt], targets)
    cut = surgery.laser(params, asked.matrix, fractions[0])
    undefined = _compare(model, params, cut, words, one, against[0], asked.top)
    for path in cutting.chosen(params, asked.matrix):
        matrix = surgery.matrices(params, path)[path]
        rank = surgery.rank_of(matrix, fractions[0])
        print(f"{path}: {matrix.shape[0]} x {matrix.shape[1]}, rank {rank} kept")
    _notes(one, against)
    if asked.save and CUT not in undefined:
        save_folder(asked.save, model, cut, config, folder)
        print(f"the cut model: {asked.save}")
    if undefined:
        names = " and ".join(undefined)
        if asked.save and CUT in undefined:
            names += " (not saved)"
        raise _not_finite(f"from {names}", asked, params)
    return 0


def _notes(batch: prompts.Prompts, against: tuple[int, str]) -> None:
    for note in filter(None, (*batch.notes, against[1])):
        print(f"note: {note}")


def _compare(model, params, cut, words, one: prompts.Prompts, against: int, top: int) -> list[str]:
    """Prints both distributions, the likeliest tokens of either; returns which are not finite."""
    logs = {
        name: prompts.next_log_probabilities(model, weights, one)
        for name, weights in ((WHOLE, params), (CUT, cut))
    }
    undefined = [name for name, logs_1xV in logs.items() if not prompts.is_finite(logs_1xV)[0]]
    tokens = []
    for name, logs_1xV in logs.items():
        if name not in undefined:
            tokens += [*np.argsort(-logs_1xV[0])[:top]]
    tokens += [token for token in (*one.targets_B, against) if token != prompts.NO_TARGET]
    table = Table("next token", "p", "rank", "p cut", "rank cut", box=None, pad_edge=False)
    for token in dict.fromkeys(int(token) for token in tokens):
        cells = []
        for name, logs_1xV in logs.items():
            if name in undefined:
                cells += [number(None), number(None)]
                continue
            (rank,) = prompts.ranks(logs_1xV, np.array([token]))
            cells += [number(float(np.exp(logs_1xV[0, token]))), f"{rank:.1f}".removesuffix(".0")]
        table.add_row(words.show(token), *cells)
    show(table)
    return undefined


def _not_finite(what: str, asked, params) -> NotFiniteError:
    """Returns the error of logits that are not finite, with the likeliest cause."""
    broken = [path for path, leaf in paths.flatten(params).items() if not jnp.isfinite(leaf).all()]
    advice = "Its activations exceed the numbers of its dtype."
    if broken:
        advice = f"The weights of {asked.models[0]} such as {broken[0]} are not finite."
    elif asked.dtype not in (None, "float32", "float64"):
        advice = "Try --dtype=float32."
    return NotFiniteError(
        f"expected finite logits, got nan or infinity {what}, which have no probability, rank or "
        f"top-1. {advice}"
    )


def _search(asked, model, params, words, fractions: list[float], against: tuple[int, str]) -> int:
    if asked.prompts is None or asked.out is None:
        raise UserError("--search needs --prompts=FILE and --out=FOLDER.")
    batch = prompts.batch(words, *zip(*prompts.pairs(asked.prompts), strict=True))
    matrices = cutting.chosen(params, asked.matrix or r"block_\d+/mlp/(in|out)")
    about = {
        "model": asked.models[0],
        "revision": asked.revision or "",
        "dtype": asked.dtype or "",
        "weights": cutting.weights(params),
        "prompts": cutting.fingerprint(batch),
        "against": against[0],
    }
    rows, line = cutting.Rows(asked.out, about), Line()
    done = rows.read()
    wanted = {(matrix, fraction) for matrix in matrices for fraction in fractions} | {cutting.FULL}

    def of_these() -> list[dict[str, Any]]:
        return [row for row in done if (row["matrix"], row["fraction"]) in wanted]

    try:
        for row in cutting.search(
            model, params, batch, matrices, fractions, against[0], done, asked.at_once
        ):
            rows.append(row)
            done.append(row)
            if line.is_due():
                at = row["matrix"] or "nothing cut"
                line.show(f"{len(of_these())} of {len(wanted)} rows  {at}")
    finally:
        line.close()
    _print(of_these(), asked.top)
    _notes(batch, against)
    print(f"all {len(done)} rows: {rows.file}")
    undefined = [row for row in of_these() if "reason" in row]
    if undefined:
        raise _not_finite(f"in {len(undefined)} of {len(of_these())} rows", asked, params)
    return 0


def _print(rows: list[dict[str, Any]], top: int) -> None:
    """Prints the uncut model, then the cuts that help the target most.

    Cuts without finite logits come last, with dashes.
    """
    (whole,) = [row for row in rows if not row["matrix"]]
    cuts = [row for row in rows if row["matrix"]]
    finite = [row for row in cuts if "reason" not in row]
    finite.sort(key=lambda row: -row["log_p_target"])
    cuts = finite + [row for row in cuts if "reason" in row]
    names = [name for name in whole if name not in ("matrix", "fraction", "rank", "reason")]
    table = Table("matrix", "fraction", "rank", *names, box=None, pad_edge=False)
    for row in [whole, *cuts[:top]]:
        rank = str(row["rank"]) if row["matrix"] else "all"
        cells = [number(row[name]) for name in names]
        table.add_row(row["matrix"] or "nothing cut", number(row["fraction"]), rank, *cells)
    show(table)


def _fraction(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not 0 < value <= 1:
        raise UserError(f"--fraction must be in (0, 1], got {word!r}.")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
