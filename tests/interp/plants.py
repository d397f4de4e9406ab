"""The rules of the test on plants: which networks are drawn, and which sentences are true of them.

They were fixed before any of the plants was examined. Plants from seed 7000 on were seen first: all
thirty that add up, are redundant or have a backup had their sentence, three of ten that offset each
other and none of ten that work on different prompts. The rules of the last two were mended. Of the
plants from seed 8000 on all had their sentence but for three that offset each other, and five
sentences, "work on different prompts" of such parts, were false: that rule was mended again. The
plants here, from seed 9000 on, were drawn after that: 49 of 50 had their sentence, and none of the
77 that were said is false.

A plant is a network of `known.random` in which one thing is planted, with idle heads beside it. The
first ten seeds from `FIRST_SEED` on that give a plant of a kind count, whatever they give.

What a sentence says is compared with the program, not with the network: with the roles of the
parts, and with the equations of the program, on prompts that the sentence was not made of.
"""

from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.interp.known import equations
from jaxformer.interp.known.program import Backup, Cancelling, Choose, Copies, Shares
from jaxformer.interp.mechanisms import ADD_UP, DIFFERENT, OFFSET, ONE_THING, REPLACE

FIRST_SEED, PLANTS = 9000, 10
SIZES = {"heads": 4, "layers": 3, "idle": 2}
PAIRS, FRESH_PAIRS = 48, 200
MARGIN = 0.05  # of the score: smaller losses are none
# {kind: how the n-th plant is dressed}
DRESSINGS = {
    "additive": lambda n: {"additive": 2 + n % 3},
    "redundant": lambda n: {"redundancy": 1 + n % 2},
    "cancelling": lambda n: {"cancelling": 1},
    "backup": lambda n: {"backup": True},
    "conditional": lambda n: {"conditional": (0.1, 0.2, 0.3)[n % 3]},
}
STEPS = {
    "additive": Shares,
    "redundant": Copies,
    "cancelling": Cancelling,
    "backup": Backup,
    "conditional": Choose,
}
# The kind of sentence that is true of each kind of plant, and the roles of the parts it names.
TRUE = {
    "additive": (ADD_UP, ("share",)),
    "redundant": (REPLACE, ("copy",)),
    "cancelling": (OFFSET, ("plus", "minus")),
    "backup": (REPLACE, ("main", "backup")),
    "conditional": (DIFFERENT, ("then", "otherwise")),
}


class Plant(NamedTuple):
    kind: str
    seed: int
    network: known.Compiled

    @property
    def step(self) -> str:
        """The name of the step that is planted."""
        of_kind = STEPS[self.kind]
        steps = self.network.program.steps
        return next(name for name, step in steps.items() if isinstance(step, of_kind))

    def nodes(self, *roles: str) -> set[str]:
        """The nodes of the planted step that have one of these roles."""
        wanted = {f"{self.step}: {role}" for role in roles}
        return {node for node, its in self.network.roles.items() if wanted & {*its}}


def drawn(kind: str) -> list[Plant]:
    """The plants of a kind."""
    found: list[Plant] = []
    seed = FIRST_SEED
    while len(found) < PLANTS:
        seed += 1
        try:
            network = known.random(seed, **SIZES, **DRESSINGS[kind](len(found)))
        except UserError:
            continue
        plant = Plant(kind, seed, network)
        # Shares of a value that an MLP looks up pass a threshold, where nothing adds up.
        if kind == "additive" and plant.step != "answer":
            continue
        found.append(plant)
    return found


def is_found(plant: Plant, groups) -> bool:
    """Whether the planted thing has its sentence, with exactly its parts."""
    kind, roles = TRUE[plant.kind]
    for group in groups:
        if group.kind == kind and {*group.parts} == plant.nodes(*roles):
            return group.main == _main_of(plant)
    return False


def _main_of(plant: Plant) -> str:
    return next(iter(plant.nodes("main")), "") if plant.kind == "backup" else ""


def is_true(plant: Plant, group) -> bool:
    """Whether what a group is said to do is true of the program."""
    parts = {*group.parts}
    if not parts <= {*plant.network.roles}:
        return False  # an idle part does nothing with anybody
    if group.kind == REPLACE:
        if plant.kind == "redundant":
            return parts == plant.nodes("copy") and not group.main
        return (
            plant.kind == "backup"
            and parts == plant.nodes("main", "backup")
            and (group.main == _main_of(plant))
        )
    if group.kind == OFFSET:
        return plant.kind == "cancelling" and parts == plant.nodes("plus", "minus")
    losses = [_losses(plant, group.parts, ablation) for ablation in ("mean", "zero", "resample")]
    return any(_says(group.kind, *x) for x in losses[1:]) and _says(group.kind, *losses[0])


def _says(kind: str, together_B: np.ndarray, single_CxB: np.ndarray, border: float) -> bool:
    """Whether the equations show a kind of statement about numbers."""
    together, singles = together_B.mean(), single_CxB.mean(1)
    if min(singles) < border:
        return False
    if kind == ONE_THING:
        return together < singles.sum() - border and together > max(singles) - border
    is_sum = abs(together - singles.sum()) < 2 * border
    n_needed_B = (np.abs(single_CxB) > border).sum(0)
    return is_sum and (kind == ADD_UP or (n_needed_B > 1).mean() < 0.1)


def _losses(plant: Plant, parts, ablation: str) -> tuple[np.ndarray, np.ndarray, float]:
    """The losses of fresh prompts without all parts and without each, and the border of a loss."""
    network = plant.network
    clean, corrupted, answers = network.sample(FRESH_PAIRS, seed=1)
    others = equations.replacements(network.placed, clean, corrupted, ablation)
    whole_B = network._score(equations.outputs(network.placed, clean, {}), answers)

    def loss(gone):
        replaced = {part: others[part] for part in gone}
        without = equations.outputs(network.placed, clean, replaced)
        return whole_B - network._score(without, answers)

    return loss(parts), np.array([loss([part]) for part in parts]), MARGIN * abs(whole_B.mean())
