"""Text becomes tokens: a folder that language tasks read, made once, whole or absent.

    python experiments/prepare.py --dataset text:shakespeare.txt --tokenizer bpe:1024 --out DIR

  --dataset=NAME      text:FILE or text:FOLDER     plain text, UTF-8
                      files:FOLDER                 *.parquet or *.jsonl, as Hugging Face keeps them
                      tfds:BUILDER[/CONFIG]        TensorFlow Datasets
                      wikitext103, fineweb_edu, tinystories, yelp    of the Hugging Face hub
  --out=DIR           where the tokens go; `--config.task.tokens=DIR` reads them. A tfds: data set
                      of images has none: without --out it is only prepared itself
  --tokenizer=KIND    bytes, bpe:SIZE (default bpe:1024; trained on the training part), a
                      tokenizer.json or its folder, or with --download the name of a model on
                      the Hugging Face hub
  --documents=file    of plain text: a file is a document, or each of its lines (line)
  --validation=0.05   share of the training text, where the data set has no such part of its own
  --test=0.05         the same
  --text=NAME         the field with the text (default: text)
  --label=NAME        the field with the class of a document, for classification
  --files=FOLDER      a copy of what the hub would give, for machines without a network
  --tfds-dir=DIR      where TensorFlow Datasets lie (default: $TFDS_DATA_DIR)
  --download          may fetch what is not here; without it nothing uses the network
  --check=DIR         reads prepared tokens and compares every checksum; does nothing else

Ctrl-C loses some ten seconds at most: the same command goes on. docs/data.md has what each data set
costs and how to place files by hand.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxformer.core.errors import UserError, check_choice
from jaxformer.data import datasets, tfds
from jaxformer.data import preparation_settings as asking
from jaxformer.data.preparation import prepare
from jaxformer.data.tokens import open_tokens
from jaxformer.runtime.command_line import Parser, command
from jaxformer.runtime.progress import Line


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    for name in ("dataset", "out", "label", "files", "tfds-dir", "check"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--tokenizer", default="bpe:1024")
    parser.add_argument("--documents", default="file")
    parser.add_argument("--text", default="text")
    parser.add_argument("--validation", type=float, default=0.05)
    parser.add_argument("--test", type=float, default=0.05)
    parser.add_argument("--download", action="store_true")
    asked = parser.parse_args(argv)
    if asked.check:
        tokens = open_tokens(asked.check)
        tokens.verify()
        print(f"whole: {tokens.summary()}")
        return 0
    if asked.dataset.startswith("tfds:") and not asked.out:
        name = asked.dataset.removeprefix("tfds:")
        print(tfds.summary(name, asked.tfds_dir, asked.download))
        return 0
    if not (asked.dataset and asked.out):
        raise UserError(f"say --dataset=NAME and --out=DIR; NAME is {', '.join(datasets.KNOWN)}.")
    check_choice("kind of documents", asked.documents, ("file", "line"))
    if asked.dataset.startswith("text:") and (asked.label or asked.text != "text"):
        raise UserError(
            "--label and --text name fields, and plain text has no fields; leave them out, or say "
            "--dataset=files:FOLDER."
        )
    if (held := datasets.HUB.get(asked.dataset)) and asked.text not in ("text", held.text):
        raise UserError(
            f"the text of {asked.dataset} is in its field {held.text!r}, got --text={asked.text}."
        )
    corpus = datasets.corpus(
        asked.dataset,
        documents=asked.documents,
        text=asked.text,
        label=asked.label,
        files=asked.files,
        tfds_dir=asked.tfds_dir,
        download=asked.download,
    )
    said = {name: getattr(asked, name) for name in ("dataset", "documents", "text", "label")}
    said["sources"] = asking.stamp(asking.sources(asked.dataset, asked.files, asked.tokenizer))
    line = Line()
    try:
        tokens = prepare(
            corpus,
            Path(asked.out),
            kind=asked.tokenizer,
            shares=(asked.validation, asked.test),
            show=lambda text: line.show(text) if line.is_due() else None,
            more_settings=said,
            download=asked.download,
        )
    finally:
        line.close()
    print(tokens.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
