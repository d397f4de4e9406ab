"""Trains like the recipe `train`, then measures the attention of the chosen members.

A member is one trained network of the population. The chosen members have the learning rate that is
best in validation.

train -> capture -> scores of every head -> test scores without some heads -> record with the maps
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from experiments.ledger.names import HEAD_METRICS
from experiments.recipes import head_cuts, train
from experiments.recipes.inside import Inside, draw, look_inside
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.processes import on_host
from jaxformer.training.metrics import Mean
from jaxformer.training.population import over_chosen
from jaxformer.training.result import Result
from jaxformer.training.run import Trained


def run(config, workdir: Workdir) -> int:
    check(config)

    def finish(trained: Trained, result: Result) -> Result:
        # Uses the parameters in memory: the checkpoint may be older if a disk error occurred.
        params, model = jax.tree.map(on_host, trained.params), trained.session.setup.model
        chosen = [i for i, member in enumerate(result.members) if member["chosen"]]
        # The first axis of every leaf is the axis of members.
        networks = {i: jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), params) for i in chosen}
        insides = {i: look_inside(model, network, config) for i, network in networks.items()}
        session = trained.session
        cut_accuracies = head_cuts.accuracies(
            session.setup, networks, insides, session.heldout.test
        )
        return with_heads(workdir, result, insides, cut_accuracies)

    return train.run(config, workdir, finish=finish)


def with_heads(
    workdir: Workdir,
    result: Result,
    insides: Mapping[int, Inside],
    cut: Mapping[int, Mapping[str, Mean]],
) -> Result:
    """Adds attention scores to a result and draws the maps of the first chosen member.

    Args:
        workdir: the folder of the run, for figure.png.
        result: the result of training.
        insides: the attention of each chosen member, by its index in `result.members`.
        cut: the test accuracies of each chosen member after cuts of heads, from `head_cuts`.

    Returns:
        The extended result. The score of a head is its mean over the test set. The score of a layer
        is the highest score of its heads.
    """
    chosen = [*insides]
    scores = {i: _layer_scores(inside) | dict(cut[i]) for i, inside in insides.items()}
    members = [
        dict(member, metrics=member["metrics"] | scores.get(i, {}))
        for i, member in enumerate(result.members)
    ]
    first = insides[chosen[0]]
    chance = {f"{name}_by_chance": first.scores[f"{name}_by_chance"] for name in HEAD_METRICS}
    title = f"{result.config['arguments']['variant']}, seed {members[chosen[0]]['seed']}"
    draw(workdir / "figure.png", first, title)
    return dataclasses.replace(
        result,
        members=members,
        metrics={**result.metrics, **over_chosen([*scores.values()], [True] * len(scores))},
        baselines={**result.baselines, **chance},
    )


def _layer_scores(inside: Inside) -> dict[str, Mean]:
    """Returns the scores of each layer. The score of a single network has no standard error."""
    return {
        f"{name}/layer {layer + 1}": Mean(float(heads.max()), float("nan"), 1)
        for name in HEAD_METRICS
        for layer, heads in enumerate(inside.scores[name])
    }


def check(config) -> None:
    mixer = getattr(config.model, "mixer", "softmax")
    if mixer != "softmax":
        raise UserError(f"model.mixer {mixer!r} has no attention to measure; softmax has.")


def dry_run(config, measured: bool = False) -> None:
    check(config)
    train.dry_run(config, measured)
