"""Trains like `train`, then looks inside: who attends to whom in the chosen members.

train -> load -> capture -> scores of every head -> record with the attention maps
"""

from typing import Any

import jaxformer
from experiments import look
from experiments.recipes import train
from jaxformer.errors import UserError
from jaxformer.records import Workdir
from jaxformer.train.metrics import Mean, over_seeds

report = train.report
SCORES = ("pairing", "induction")


def run(config, workdir: Workdir) -> int:
    check(config)
    return train.run(config, workdir, finish=finish)


def finish(workdir: Workdir, result: dict[str, Any]) -> dict[str, Any]:
    """The result with the strongest head of each layer, and the maps of the first chosen member.

    A layer's number is that of its head with the highest mean over the test set.
    """
    insides = {
        i: look.numbers(*jaxformer.load(workdir.path, i))
        for i, member in enumerate(result["members"])
        if member["chosen"]
    }
    for i, inside in insides.items():
        strongest = {
            f"{score}/layer {layer + 1}": Mean(float(heads.max()), float("nan"), 1)
            for score in SCORES
            for layer, heads in enumerate(inside.scores[score])
        }
        result["members"][i]["metrics"] |= strongest
    first = next(iter(insides.values()))
    names = [name for name in strongest if name not in result["metrics"]]
    members = [result["members"][i]["metrics"] for i in insides]
    result["metrics"] |= {name: over_seeds([m[name].mean for m in members]) for name in names}
    result["baselines"] |= {
        f"{score}_by_chance": first.scores[f"{score}_by_chance"] for score in SCORES
    }
    seed = result["members"][next(iter(insides))]["seed"]
    look.draw(workdir / "figure.png", first, f"{result['config']['variant']}, seed {seed}")
    return result


def check(config) -> None:
    if config.model.get("mixer", "softmax") != "softmax":
        raise UserError(
            f"model.mixer {config.model.mixer!r} has no attention to look at; softmax has."
        )


def dry_run(config) -> None:
    check(config)
    train.dry_run(config)
