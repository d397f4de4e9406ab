"""Draws the training curves of findings 1 and 3 from the recorded runs.

    python docs/training_pictures.py

pictures/retrieval.png and pictures/three_regimes.png, with the names and titles that a reader of
README needs in place of those of configs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.ledger import write
from experiments.ledger.curves import CurveFile
from jaxformer.runtime.command_line import Parser, command
from jaxformer.training import curves

ROOT = Path(__file__).parents[1]


class Picture(NamedTuple):
    """Runs of one folder of results/ side by side."""

    folder: str
    runs: Mapping[str, str]  # {name in the legend: the name of the record}
    title: str
    baselines: Mapping[str, str]  # {name in the record: name in the legend}
    is_log: bool = False  # whether the runs have so different lengths that steps are logarithmic


PICTURES = {
    "retrieval": Picture(
        "mixit/retrieval",
        {
            "all trained": "standard-small-228adddeb394",
            "random MLPs": "frozen_mlp-small-92f05fb7c53e",
            "random queries and keys": "frozen_qk-small-37b571674a62",
            "fixed mixing (MixiT)": (
                "mixit-small-n_seeds=8-learning_rate=0.001-steps=16000-92995a119842"
            ),
        },
        "Random queries and keys learn retrieval within 400 steps, fixed mixing does not in 16,000",
        {"in_context_guess": "guess from the context", "unigram_loss": "answer frequencies"},
        is_log=True,
    ),
    "three_regimes": Picture(
        "two_failure_modes/fig1_losses",
        {
            "trainable": "trainable-small-n_seeds=8-8997ebe4a8c3",
            "rank collapse": "rank_collapse-small-n_seeds=8-31b202058603",
            "entropy collapse": "entropy_collapse-small-n_seeds=8-775053343d91",
        },
        "Networks that start collapsed end at a training loss of 3.1 to 3.2, "
        "those that start between the two at 2.2",
        {"unigram_loss": "frequencies of letters", "bigram_loss": "frequencies of pairs"},
    ),
}


def draw(picture: Picture) -> Any:
    """The matplotlib figure of a picture."""
    rows, chosen, baselines = {}, {}, {}
    for label, name in picture.runs.items():
        file = ROOT / "results" / picture.folder / f"{name}.json"
        record = json.loads(file.read_text())
        rows[label] = _rows(CurveFile(write.companion(file, ".curves.csv")))
        chosen[label] = [member.get("chosen", True) for member in record["members"]]
        baselines = baselines or curves.trivial_lines(record)
    baselines = {name: baselines[name] for name in picture.baselines}
    figure = curves.curves(rows, baselines, chosen, title=picture.title, names=picture.baselines)
    if picture.is_log:
        for axis in figure.axes:
            axis.set(xscale="log", xlabel="training step (log)")
            axis.set_xlim(left=20)
    return figure


def _rows(series: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Curves as `metrics.jsonl` has them, a dict for each logged step."""
    training = [
        {"step": step, name: values}
        for name, points in series["training"].items()
        for step, values in points
    ]
    validation = [
        {"step": step, "validation": {"accuracy": values}}
        for step, values in series["validation"]["accuracy"]
    ]
    return training + validation


@command
def main(argv: Sequence[str]) -> int:
    Parser(__doc__).parse_args(argv)
    for name, picture in PICTURES.items():
        file = ROOT / "docs/pictures" / f"{name}.png"
        draw(picture).savefig(file, dpi=300)
        file.write_bytes(write.smallest_png(file))
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
