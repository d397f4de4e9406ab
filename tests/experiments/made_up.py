"""A paper that does not exist, with an item of every verdict, and records for it."""

import io
import json

import numpy as np
from PIL import Image

from experiments.cli import flags
from experiments.ledger import curves, validate_record
from experiments.ledger.item import CHANCE, Cell, Item, Paper
from experiments.ledger.ledger import config_string
from experiments.ledger.record import SCHEMA
from experiments.ledger.rules import above, computed, near, no_better_than_chance, of
from jaxformer import build
from jaxformer.io.atomic_files import json_value, write_json
from jaxformer.io.run_folder import config_hash
from jaxformer.training.metrics import over_seeds

CONFIG = "configs/mixit/retrieval.py:variant="
COMMIT = "0123456789abcdef0123456789abcdef01234567"
A, B, C = (Cell(CONFIG + name, published=0.5) for name in ("standard", "frozen_qk", "mixit"))
DRAWN = Cell("configs/mixit/sde_paths.py")
SWEEP = {
    f"{name}, M={m}": Cell(CONFIG + name, {"task.max_pairs": str(m)}, scales=("small",))
    for name in ("standard", "mixit")
    for m in (4, 12)
}
PAPER = Paper(
    "made_up",
    "On <b>bold</b> claims & others",
    "nowhere",
    (
        Item("Table 1", "A is right.", {"A": A}, {"A is right": above(of("A"), 0.9)}),
        Item("Table 2", "B wins.", {"A": A, "B": B}, {"B wins": above(of("B"), of("A"))}),
        Item("Table 3", "B is 1.", {"B": B}, {"B is 1": near(of("B"), 1.0, 0.1)}),
        Item(
            "Table 4",
            "C knows nothing.",
            {"C": C},
            {"C is no better than the guess": no_better_than_chance("C", "the_guess")},
            baseline="the_guess",
            note='An "old" note with `code` & <tags>.',
            late=True,
            checks={"C is below A half": above(0.5, of("C"))},
            flags=(CHANCE,),
            also="elsewhere, Table <40>",
        ),
        Item(
            "Table 5",
            "Nobody ran it.",
            {"D": Cell(CONFIG + "random")},
            {"D learns": above(of("D"), 0.5)},
        ),
        Item("Table 6", "Text is hard.", needs="a corpus"),
        Item("Table 7", "C is .24.", {"C": C}, {"C is .24": near(of("C"), 0.24, 0.006)}),
        Item("Table 8", "The settings.", defines="`configs/common.py`: <all> of them."),
        Item(
            "Figure 1",
            "MixiT loses with M.",
            SWEEP,
            {"MixiT loses": above(of("mixit, M=4"), of("mixit, M=12"))},
            baseline="the_guess",
        ),
        Item(
            "Figure 2, the paths",
            "Networks follow the SDE.",
            {"paths": DRAWN},
            {
                "close": above(0.1, of("paths", "ks_50%/tau=1")),
                "slow": above(computed("paths", "rate"), 1.0),
            },
        ),
        Item("Table 1, again", "A is right.", {"A": A}, {"A is right": above(of("A"), 0.9)}),
    ),
)


def png() -> bytes:
    """Returns a picture large enough to be shrunk."""
    noise = np.random.default_rng(0).integers(0, 255, (300, 1200, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()


def record(cell: Cell, mean: float, sem: float = 0.001, metric: str = "accuracy", **changed):
    """Returns the record of a cell at small scale, as it lies in results/."""
    config = flags.load_with_overrides(config_string(cell, "small"), cell.overrides)
    overrides = {name: flags.override(config, name, text) for name, text in cell.overrides.items()}
    fields = flags.to_dict(config)
    return {
        "schema": SCHEMA,
        "config": fields,
        "config_file": config_string(cell, "small"),
        "config_hash": config_hash(build.config_identity(fields)),
        "overrides": overrides,
        "scale": "small",
        "seeds": [0, 1],
        "steps": 500,
        "metrics": {metric: {"mean": mean, "sem": sem, "n": 2}},
        "members": [{"seed": s, "learning_rate": 0.01, "chosen": True} for s in (0, 1)],
        "baselines": {"the_guess": 0.4} if "train" in fields else {},
        "parameters": {},
        "environment": {
            "commit": COMMIT,
            "clean": True,
            "cores": 2,
            "devices": 1,
            "device": "abacus",
            "python": "3.11",
            "versions": {"jax": "0.10.2"},
        },
        "seconds": {"compile": 1.0, "run": 2.0, "cpu": 3.0},
    } | changed


def write(folder, name, content) -> None:
    """Writes a record as it lies in results/, with curves if the run trained."""
    write_json(folder / f"{name}.json", content)
    if "train" in content["config"]:
        mean = content["metrics"]["accuracy"]["mean"]
        rows = [{"step": s, "loss": [9 / s, 8 / s]} for s in range(100, 600, 100)]
        scores = [{"accuracy": [mean * row["step"] / 500, None]} for row in rows]
        rows += [{"step": r["step"], "validation": s} for r, s in zip(rows, scores, strict=True)]
        (folder / f"{name}.curves.csv").write_text(curves.as_csv(curves.of_rows(rows)))


RECORDS = {
    "a": record(A, 0.97),
    "b": record(B, 0.5125),
    "c": record(C, 0.2471),
    "figure": record(DRAWN, 0.0333, metric="ks_50%/tau=1"),
} | {f"sweep{i}": record(cell, 0.9 - i / 7) for i, cell in enumerate(SWEEP.values())}
RECORDS["figure"]["metrics"]["rate"] = {"mean": 0.7, "sem": None, "n": 1}


def population(config: str, overrides, scores) -> dict:
    """Returns the record of a run whose seeds have these accuracies."""
    values = flags.to_dict(flags.load_with_overrides(config, overrides))
    first = values["seed"]
    members = [
        {"seed": first + i, "chosen": True, "learning_rate": 0.01, "diverged_at": None}
        | {"metrics": {"accuracy": {"mean": score, "sem": 1e-4, "n": 10_000}}}
        for i, score in enumerate(scores)
    ]
    template = json.loads(json.dumps(record(A, 0.5, 0.01)))
    made = template | {
        "config": json_value(values),
        "config_file": config,
        "config_hash": config_hash(build.config_identity(values)),
        "overrides": dict(overrides),
        "seeds": [member["seed"] for member in members],
        "members": members,
        "metrics": {"accuracy": json_value(over_seeds(scores))},
    }
    made.pop("sum", None)
    return made | {"sum": validate_record.sum_of(made)}
