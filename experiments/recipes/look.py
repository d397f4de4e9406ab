"""Trains like `train`, then looks inside: who attends to whom in the chosen members.

train -> capture -> scores of every head -> record with the attention maps
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from experiments.recipes import train
from experiments.recipes.inside import Inside, draw, look_inside
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.processes import on_host
from jaxformer.training.metrics import Mean
from jaxformer.training.population import over_chosen
from jaxformer.training.result import Result
from jaxformer.training.run import Trained

SCORES = ("pairing", "induction")


def run(config, workdir: Workdir) -> int:
    check(config)

    def finish(trained: Trained, result: Result) -> Result:
        # What was trained, and not the checkpoint: that may be an older one if the disk is bad.
        params, model = jax.tree.map(on_host, trained.params), trained.session.setup.model
        chosen = [i for i, member in enumerate(result.members) if member["chosen"]]
        networks = {i: jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), params) for i in chosen}
        insides = {i: look_inside(model, network, config) for i, network in networks.items()}
        return with_heads(workdir, result, insides)

    return train.run(config, workdir, finish=finish)


def with_heads(workdir: Workdir, result: Result, insides: Mapping[int, Inside]) -> Result:
    """The result with the strongest head of each layer, and the maps of the first chosen member.

    A layer's number is that of its head with the highest mean over the test set.
    """
    chosen = [*insides]
    found = {i: _strongest(inside) for i, inside in insides.items()}
    members = [
        dict(member, metrics=member["metrics"] | found.get(i, {}))
        for i, member in enumerate(result.members)
    ]
    first = insides[chosen[0]]
    chance = {f"{name}_by_chance": first.scores[f"{name}_by_chance"] for name in SCORES}
    title = f"{result.config['arguments']['variant']}, seed {members[chosen[0]]['seed']}"
    draw(workdir / "figure.png", first, title)
    return dataclasses.replace(
        result,
        members=members,
        metrics={**result.metrics, **over_chosen([*found.values()], [True] * len(found))},
        baselines={**result.baselines, **chance},
    )


def _strongest(inside: Inside) -> dict[str, Mean]:
    return {
        f"{name}/layer {layer + 1}": Mean(float(heads.max()), float("nan"), 1)
        for name in SCORES
        for layer, heads in enumerate(inside.scores[name])
    }


def check(config) -> None:
    mixer = getattr(config.model, "mixer", "softmax")
    if mixer != "softmax":
        raise UserError(f"model.mixer {mixer!r} has no attention to look at; softmax has.")


def dry_run(config, measured: bool = False) -> None:
    check(config)
    train.dry_run(config, measured)
