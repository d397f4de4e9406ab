"""Trains like `train`, then looks inside: who attends to whom in the chosen members.

train -> load -> capture -> scores of every head -> record with the attention maps
"""

from typing import Any

import jaxformer
from experiments import look
from experiments.recipes import train
from jaxformer.errors import UserError
from jaxformer.records import Workdir
from jaxformer.training.metrics import Mean
from jaxformer.training.population import over_chosen

report = train.report
SCORES = ("pairing", "induction")


def run(config, workdir: Workdir) -> int:
    check(config)
    return train.run(config, workdir, finish=finish)


def finish(workdir: Workdir, result: dict[str, Any]) -> dict[str, Any]:
    """The result with the strongest head of each layer, and the maps of the first chosen member.

    A layer's number is that of its head with the highest mean over the test set.
    """
    chosen = [i for i, member in enumerate(result["members"]) if member["chosen"]]
    insides = [look.numbers(*jaxformer.load(workdir.path, i)) for i in chosen]
    found = [_strongest(inside) for inside in insides]
    for i, mine in zip(chosen, found, strict=True):
        result["members"][i]["metrics"] |= mine
    result["metrics"] |= over_chosen(found, [True] * len(found))
    scores, seed = insides[0].scores, result["members"][chosen[0]]["seed"]
    result["baselines"] |= {f"{name}_by_chance": scores[f"{name}_by_chance"] for name in SCORES}
    look.draw(
        workdir / "figure.png",
        insides[0],
        f"{result['config']['arguments']['variant']}, seed {seed}",
    )
    return result


def _strongest(inside: look.Inside) -> dict[str, Mean]:
    return {
        f"{name}/layer {layer + 1}": Mean(float(heads.max()), float("nan"), 1)
        for name in SCORES
        for layer, heads in enumerate(inside.scores[name])
    }


def check(config) -> None:
    if config.model.get("mixer", "softmax") != "softmax":
        raise UserError(
            f"model.mixer {config.model.mixer!r} has no attention to look at; softmax has."
        )


def dry_run(config) -> None:
    check(config)
    train.dry_run(config)
