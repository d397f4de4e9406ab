"""Cuts a weight matrix of a model to a low rank (LASER) and shows what changes.

    jaxformer cut MODEL --matrix block_11/mlp/in --fraction 0.01
                  --prompt "Madrid is located in" --target Spain
    jaxformer cut MODEL --search --prompts FILE --against the --out FOLDER
                  --matrix 'block_[0-9]+/mlp/(in|out)' --fraction 0.01,0.05,0.1

  MODEL              a folder with config.json and safetensors, a GGUF file, package:NAME of an
                     installed Python package with weights, a name on the hub ("gpt2"), or the
                     folder of a run; for a first test,
                     `python -m jaxformer.models.pretrained.tiny gpt2 FOLDER` writes a random model
  --matrix=PATTERN   the weights to cut: a pattern over paths; a path of a module selects all its
                     matrices
  --fraction=F,F     shares of the rank to keep: rank floor(F x the smaller side)
  --revision=NAME    the revision of a model on the hub
  --dtype=NAME       the dtype of the parameters, such as bfloat16

The first form prints the likeliest next tokens of the full and of the cut model side by side.

  --prompt=TEXT      the text before the next token
  --target=TEXT      a token whose probability is printed
  --top=N            the number of tokens to print
  --save=FOLDER      writes the cut model as safetensors that transformers loads; biases are not cut

The second form scores every matrix at every fraction and lists the best cuts. For each kind of
matrix, such as mlp/in, it chooses a layer and a fraction by the scores of the first, third, ..
prompt. It reports their scores on the second, fourth, .. prompt. Each matrix has one SVD, one
compiled program serves all cuts, and the blocks before a matrix are computed once.

Tokens with equal probability share the mean of their ranks. If n tokens are the likeliest ones,
each scores 1/n in top_1. A network whose logits are not finite has no scores (null in rows.jsonl),
and the command exits with 1.

  --search           selects this second form
  --prompts=FILE     a line for each prompt: prompt, tab, target (its first token is scored)
  --against=TEXT     a token whose probability is printed beside the target's
  --sort=KEY         the order of the cuts: ratio of P(target) to P(against), target (its mean log
                     probability) or against (the lowest first); by default ratio with --against,
                     otherwise target
  --out=FOLDER       the folder of rows.jsonl; a stopped search resumes with the same command
  --at-once=N        prompts in one step

For a model without a tokenizer, prompts and targets are token ids: --prompt "5 17 2".
"""

try:
    import experiments  # noqa: F401 (imported first: handles Ctrl-C during the other imports)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from experiments.cli.describe import show
from experiments.papers.associations import laser_search, laser_tables, next_token
from experiments.papers.associations.row_file import RowFile
from jaxformer import loading, surgery
from jaxformer.core.errors import NotFiniteError, UserError
from jaxformer.core.text_format import number
from jaxformer.interp.prompts import first_token
from jaxformer.models.model import not_finite
from jaxformer.models.pretrained import save_folder, text
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.runtime.progress import StatusLine

FULL, CUT = "the full model", "the cut model"
FRACTIONS = "0.01,0.02,0.05,0.1,0.2,0.3,0.4,0.6,0.8,1"
SEARCHED = r"block_\d+/mlp/(in|out)"  # the matrices of a search without --matrix


class Model(NamedTuple):
    """The model to cut, the token of --against, and a note about this token."""

    model: Any
    params: Any
    tokenizer: Any
    against: int
    against_note: str


@command
def main(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    fractions = (arguments.fraction or FRACTIONS).split(",")
    fractions = [*dict.fromkeys(map(_fraction, fractions))]
    folder = loading.published(arguments.models[0], arguments.revision)
    loaded, config = _load(arguments, folder)
    if arguments.search:
        return _search(arguments, loaded, fractions)
    if not (arguments.matrix and arguments.prompt and arguments.fraction) or len(fractions) != 1:
        raise UserError("give --matrix, one --fraction and --prompt, or --search.")
    return _cut(arguments, loaded, fractions[0], folder, config)


def _parse(argv: Sequence[str]) -> Any:
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
    parser.add_argument("--sort", choices=laser_search.SORTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--at-once", type=count, default=100)
    arguments = parser.parse_args(argv)
    if len(arguments.models) != 1:
        raise UserError(
            f"give one model, a folder or a name on the hub, got {len(arguments.models)}."
        )
    return arguments


def _load(arguments: Any, folder: Path | None) -> tuple[Model, Any]:
    """Returns the model with its tokenizer, and its config; `folder` is None for a run."""
    source = arguments.models[0]
    if folder is None:
        model, params, config = loading.load(
            source, revision=arguments.revision, dtype=arguments.dtype
        )
    else:
        model, params, config = loading.load(folder, dtype=arguments.dtype)
    if not model.spec.vocab_size or not model.spec.causal:
        raise UserError(
            f"{source} does not predict a next token: it is not causal, or its inputs are vectors."
        )
    tokenizer = text.tokenizer_of(folder or source, model.spec.vocab_size)
    against, note = next_token.NO_TOKEN, ""
    if arguments.against:
        against, note = first_token(tokenizer, arguments.against)
    return Model(model, params, tokenizer, against, note), config


def _cut(arguments: Any, loaded: Model, fraction: float, folder: Path | None, config: Any) -> int:
    """Cuts the matrices once, compares the next tokens, and saves the cut model if requested."""
    source, save = arguments.models[0], arguments.save
    if save and folder is None:
        raise UserError(f"--save writes published models; {source} is a run.")
    if save and folder and save.resolve() == folder.resolve():
        raise UserError(f"--save={save} would write over the model that is cut.")
    targets = [arguments.target] if arguments.target else []
    prompt = next_token.encode(loaded.tokenizer, [arguments.prompt], targets)
    cut = surgery.laser(loaded.params, arguments.matrix, fraction)
    undefined = _compare(loaded, cut, prompt, arguments.top)
    for path in laser_search.matching_matrices(loaded.params, arguments.matrix):
        matrix = surgery.matrices(loaded.params, path)[path]
        rank = surgery.rank_of(matrix, fraction)
        print(f"{path}: {matrix.shape[0]} x {matrix.shape[1]}, rank {rank} kept")
    _print_notes(prompt, loaded)
    if save and CUT not in undefined:
        save_folder(save, loaded.model, cut, config, folder)
        print(f"the cut model: {save}")
    if undefined:
        names = " and ".join(undefined)
        if save and CUT in undefined:
            names += " (not saved)"
        raise _not_finite(f"from {names}", arguments, loaded.params)
    return 0


def _print_notes(prompts: next_token.PromptBatch, loaded: Model) -> None:
    for note in filter(None, (*prompts.notes, loaded.against_note)):
        print(f"note: {note}")


def _compare(loaded: Model, cut, prompt: next_token.PromptBatch, top: int) -> list[str]:
    """Prints the likeliest next tokens of both models; returns models without finite logits.

    `cut` has the parameters of the cut model.
    """
    log_p = {
        name: next_token.log_probabilities(loaded.model, params, prompt)
        for name, params in ((FULL, loaded.params), (CUT, cut))
    }
    undefined = [
        name for name, log_p_1xV in log_p.items() if not next_token.is_finite(log_p_1xV)[0]
    ]
    tokens = []
    for name, log_p_1xV in log_p.items():
        if name not in undefined:
            tokens += [*np.argsort(-log_p_1xV[0])[:top]]
    answers = (*prompt.targets_B, loaded.against)
    tokens += [token for token in answers if token != next_token.NO_TOKEN]
    table = Table("next token", "p", "rank", "p cut", "rank cut", box=None, pad_edge=False)
    for token in dict.fromkeys(int(token) for token in tokens):
        cells = []
        for name, log_p_1xV in log_p.items():
            if name in undefined:
                cells += [number(None), number(None)]
                continue
            (rank,) = next_token.ranks(log_p_1xV, np.array([token]))
            cells += [number(float(np.exp(log_p_1xV[0, token]))), f"{rank:.1f}".removesuffix(".0")]
        table.add_row(loaded.tokenizer.show(token), *cells)
    show(table)
    return undefined


def _not_finite(where: str, arguments, params) -> NotFiniteError:
    """Returns the error of logits that are not finite, with the likeliest cause."""
    broken = not_finite(params)
    advice = "Its activations exceed the numbers of its dtype."
    if broken:
        advice = f"The weights of {arguments.models[0]} such as {broken[0]} are not finite."
    elif arguments.dtype not in (None, "float32", "float64"):
        advice = "Try --dtype=float32."
    return NotFiniteError(
        f"expected finite logits, got nan or infinity {where}, which have no probability, rank or "
        f"top-1. {advice}"
    )


def _search(arguments, loaded: Model, fractions: list[float]) -> int:
    if arguments.prompts is None or arguments.out is None:
        raise UserError("--search needs --prompts=FILE and --out=FOLDER.")
    if arguments.sort in ("ratio", "against") and not arguments.against:
        raise UserError(f"--sort={arguments.sort} needs --against=TEXT.")
    sort = arguments.sort or ("ratio" if arguments.against else "target")
    pairs = next_token.read_prompts(arguments.prompts)
    prompts = next_token.encode(loaded.tokenizer, *zip(*pairs, strict=True))
    matrices = laser_search.matching_matrices(loaded.params, arguments.matrix or SEARCHED)
    settings = {
        "model": arguments.models[0],
        "revision": arguments.revision or "",
        "dtype": arguments.dtype or "",
        "weights": laser_search.weights_checksum(loaded.params),
        "prompts": laser_search.prompts_fingerprint(prompts),
        "against": loaded.against,
    }
    row_file = RowFile(arguments.out, settings)
    status_line = StatusLine()
    all_rows = row_file.read()  # also those of earlier searches in this folder
    cuts = {(matrix, fraction) for matrix in matrices for fraction in fractions}
    cuts.add(laser_search.UNCUT)

    def rows() -> list[dict[str, Any]]:
        """Returns the rows of this search only."""
        return [row for row in all_rows if (row["matrix"], row["fraction"]) in cuts]

    try:
        for row in laser_search.search(
            loaded.model,
            loaded.params,
            prompts,
            matrices,
            fractions,
            loaded.against,
            all_rows,
            arguments.at_once,
        ):
            row_file.append(row)
            all_rows.append(row)
            if status_line.is_due():
                matrix = row["matrix"] or "nothing cut"
                status_line.show(f"{len(rows())} of {len(cuts)} rows  {matrix}")
    finally:
        status_line.close()
    laser_tables.print_rows(rows(), arguments.top, sort)
    laser_tables.print_best_layers(rows(), sort)
    _print_notes(prompts, loaded)
    print(f"all {len(all_rows)} rows: {row_file.file}")
    undefined = [row for row in rows() if "reason" in row]
    if undefined:
        where = f"in {len(undefined)} of {len(rows())} rows"
        raise _not_finite(where, arguments, loaded.params)
    return 0


def _fraction(argument: str) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = float("nan")
    if not 0 < value <= 1:
        raise UserError(f"--fraction must be in (0, 1], got {argument!r}.")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
