"""Test scores of trained networks without some of their heads.

The strongest induction head is the head with the highest score `induction` of `look.py`, in any
layer but the first. All cuts are in the layer of this head:

    strongest head cut    the strongest induction head is cut
    answering heads cut   every head is cut that gives the answer more than uniform attention would
    weakest head cut      the head with the lowest score is cut, for comparison
    all heads cut         the whole attention of the layer is cut
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.ledger.names import HEAD_CUTS
from experiments.recipes.inside import Inside
from jaxformer import surgery
from jaxformer.tasks.task import Batch
from jaxformer.training.metrics import Mean, means_of_members
from jaxformer.training.setup import Setup
from jaxformer.training.step import make_evaluate


def accuracies(
    setup: Setup, networks: Mapping[int, Any], insides: Mapping[int, Inside], test: Batch
) -> dict[int, dict[str, Mean]]:
    """Returns {network: {"accuracy/CUT": test accuracy}}.

    Args:
        setup: the setup of the run. Without two layers of attention nothing is cut: the metrics of
            each network are {}.
        networks: {index of a network: its parameters}.
        insides: {index of a network: the scores of its heads}.
        test: the test set.
    """
    any_inside = next(iter(insides.values()))  # all networks have the same layers
    if any_inside.maps is None or len(any_inside.maps) < 2:
        return {i: {} for i in networks}
    evaluate = make_evaluate(setup.apply, setup.task, setup.data.batch_size)
    scores: dict[int, dict[str, Mean]] = {i: {} for i in networks}
    for cut in HEAD_CUTS:
        heads = {
            i: heads_of(cut, scores_of["induction"], scores_of["induction_by_chance"])
            for i, scores_of in ((i, insides[i].scores) for i in networks)
        }
        cut_networks = [
            surgery.ablate_heads(networks[i], heads[i], setup.model.spec.heads) for i in networks
        ]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cut_networks)
        means = means_of_members(evaluate(stacked, {}, test), {})
        for i, member in zip(networks, means, strict=True):
            scores[i][f"accuracy/{cut}"] = member["accuracy"]
    return scores


def heads_of(cut: str, induction: list[np.ndarray], chance: float) -> dict[str, list[int]]:
    """Returns {attention: heads} of a cut.

    Args:
        cut: one of HEAD_CUTS.
        induction: the score of each head, for each layer.
        chance: the score of uniform attention.
    """
    later = [np.nan_to_num(heads) for heads in induction[1:]]
    layer = int(np.argmax([heads.max() for heads in later]))
    heads = later[layer]
    chosen = {
        "strongest head cut": [int(heads.argmax())],
        "answering heads cut": [int(head) for head in np.flatnonzero(heads > chance)],
        "weakest head cut": [int(heads.argmin())],
        "all heads cut": [*range(len(heads))],
    }[cut]
    return {f"block_{layer + 1}/attn": chosen}  # `layer` does not count the first layer
