"""Prepares text for language tasks: writes a folder of token ids, completely or not at all.

    jaxformer prepare text:shakespeare.txt --tokenizer bpe:1024 --out DIR

NAME is one of
    text:FILE or text:FOLDER        plain text, UTF-8
    files:FOLDER                    *.parquet or *.jsonl, as on Hugging Face
    table:FILE                      *.csv, *.tsv or *.jsonl with a row for each document; also .gz
                                    and .zst, such as reviews.tsv.gz
    tfds:BUILDER[/CONFIG]           TensorFlow Datasets
    wikitext103, fineweb_edu, tinystories, yelp    from the Hugging Face hub

Ctrl-C loses at most ten seconds of work. Run the same command again: it resumes. docs/data.md lists
the size and time of each data set, and explains how to place files by hand.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.data import datasets, tfds
from jaxformer.data.preparation import prepare
from jaxformer.data.tokens import open_tokens
from jaxformer.io.huggingface_tokenizer import HuggingFace
from jaxformer.models.model import MAX_SIZES
from jaxformer.models.pretrained import packages
from jaxformer.models.pretrained.text import Text
from jaxformer.runtime.command_line import Parser, command
from jaxformer.runtime.progress import StatusLine


@command
def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if args.check:
        tokens = open_tokens(args.check)
        tokens.verify()
        print(f"complete: {tokens.summary()}")
        return 0
    if args.dataset.startswith("tfds:") and not args.out:
        name = args.dataset.removeprefix("tfds:")
        print(tfds.summary(name, args.tfds_dir, args.download))
        return 0
    _check(args)
    shares = (args.validation, args.test)
    corpus = datasets.corpus(
        args.dataset,
        documents=args.documents,
        text=args.text,
        label=args.label,
        files=args.files,
        tfds_dir=args.tfds_dir,
        download=args.download,
        shares=shares,
    )
    flags = {name: getattr(args, name) for name in ("dataset", "documents", "text", "label")}
    line = StatusLine()
    try:
        tokens = prepare(
            corpus,
            Path(args.out),
            kind=args.tokenizer,
            shares=shares,
            show=lambda text: line.show(text) if line.is_due() else None,
            more_settings=flags,
            download=args.download,
            tokenizer=tokenizer_of_model(args.tokenizer),
        )
    finally:
        line.close()
    print(tokens.summary())
    return 0


def _parser() -> Parser:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--dataset", default="", metavar="NAME", help="the text: see above")
    add(
        "--out",
        default="",
        metavar="DIR",
        help="folder of the tokens; `--config.task.tokens=DIR` reads them. A tfds: data set of "
        "images has no tokens: without --out, TFDS prepares its own files",
    )
    add(
        "--tokenizer",
        default="bpe:1024",
        metavar="KIND",
        help="bytes, bpe:SIZE (trained on the training part), a tokenizer.json or its folder, a "
        "GGUF file, package:NAME of an installed package with a model, or with --download the name "
        "of a model on the Hugging Face hub (default: %(default)s)",
    )
    add(
        "--documents",
        default="file",
        help="in plain text, each file is a document (file, the default), or each line (line)",
    )
    add(
        "--validation",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="share of the text for validation, if the data set has no validation part "
        "(default: %(default)s)",
    )
    add(
        "--test",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="share of the text for the test set, if the data set has no test part "
        "(default: %(default)s)",
    )
    add(
        "--text",
        default="text",
        metavar="NAME",
        help="the field with the text (default: %(default)s)",
    )
    add(
        "--label",
        default="",
        metavar="NAME",
        help="the field with the class of a document, for classification; for a table also a "
        "comparison of a numeric column with a number, such as 'polarity>0'",
    )
    add(
        "--files",
        default="",
        metavar="FOLDER",
        help="a copy of the hub's files, for machines without a network",
    )
    add(
        "--tfds-dir",
        default="",
        metavar="DIR",
        help="folder of TensorFlow Datasets (default: $TFDS_DATA_DIR)",
    )
    add(
        "--download",
        action="store_true",
        help="download missing files; without it nothing uses the network",
    )
    add(
        "--check",
        default="",
        metavar="DIR",
        help="read prepared tokens and compare every checksum; do nothing else",
    )
    return parser


def _check(args: Any) -> None:
    """Raises UserError if arguments are missing or contradict each other."""
    datasets.check_kind(args.dataset)
    if not (args.dataset and args.out):
        raise UserError(f"give --dataset=NAME and --out=DIR; NAME is {', '.join(datasets.KNOWN)}.")
    check_choice("kind of documents", args.documents, ("file", "line"))
    if args.dataset.startswith("text:") and (args.label or args.text != "text"):
        raise UserError(
            "--label and --text name fields, and plain text has no fields; leave them out, or give "
            "--dataset=table:FILE or --dataset=files:FOLDER."
        )
    hub_dataset = datasets.HUB.get(args.dataset)
    if hub_dataset and args.text not in ("text", hub_dataset.text):
        raise UserError(
            f"the text of {args.dataset} is in its field {hub_dataset.text!r}, "
            f"got --text={args.text}."
        )
    for name in ("validation", "test"):  # a tenth or more of the text remains for training
        check_range(f"the share of {name}", getattr(args, name), 0, 0.45)


def tokenizer_of_model(name: str) -> HuggingFace | None:
    """Returns the tokenizer of a GGUF file or an installed package, None for other names."""
    if not (name.startswith(packages.PREFIX) or name.endswith(".gguf")):
        return None
    return HuggingFace(Text(name, MAX_SIZES["vocab_size"]).tokenizer.model)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
