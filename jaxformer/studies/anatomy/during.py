"""The anatomy of one network at several steps of its training: when does a part become necessary?

    moments = during(snapshots, model, pairs, n=10)

The steps are spaced by the change of the training loss, because a part appears when the loss falls:
induction heads come with a sudden drop. Each moment has the mean ablation of each part and the
labels of its heads. It is one network, so intervals are over prompts.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp import groups
from jaxformer.interp.answers import Answers
from jaxformer.interp.components import Measured
from jaxformer.interp.removal import Removal
from jaxformer.studies.anatomy.components import part_name
from jaxformer.studies.anatomy.effects import Effect, effect_of
from jaxformer.studies.anatomy.labels import Labels, head_labels
from jaxformer.studies.anatomy.pairs import PromptPairs

MAX_SENTENCES = 6


class Snapshot(NamedTuple):
    """A network in training."""

    step: int
    loss: float  # mean training loss since the snapshot before
    params: Any


class Moment(NamedTuple):
    """The parts of a network after some steps.

    Attributes:
        step: the number of training steps.
        loss: the mean training loss of the steps before.
        effects: {part: its mean ablation}.
        labels: {head: (label, share of its attention)}.
    """

    step: int
    loss: float
    effects: dict[str, Effect]
    labels: Labels


class During(NamedTuple):
    """The moments of one training.

    Attributes:
        moments: in the order of training.
        smallest: the loss that counts as none, at the end of training.
        unit: the name of the score.
    """

    moments: tuple[Moment, ...]
    smallest: float
    unit: str

    @property
    def sentences(self) -> list[str]:
        """When the parts that matter at the end became necessary, and heads got their labels."""
        last = self.moments[-1]
        parts = sorted(last.effects, key=lambda part: -last.effects[part].value)
        texts = []
        for part in parts:
            values = [self._matters(moment.effects[part]) for moment in self.moments]
            if (between := self._since(values)) is None:
                continue
            label = last.labels.get(part)
            named = f", {label[0]} at the end," if label else ""
            texts.append(f"{part_name(part)}{named} becomes necessary {between}.")
        for head, (label, _) in last.labels.items():
            values = [moment.labels.get(head, ("", 0.0))[0] == label for moment in self.moments]
            if between := self._since(values):
                texts.append(f"{part_name(head)} attends as {label} {between}.")
        return texts[:MAX_SENTENCES]

    def _matters(self, effect: Effect) -> bool:
        return effect.value - effect.half_width > self.smallest

    def _since(self, values: Sequence[bool]) -> str | None:
        """Says between which steps values become true for good; None if they are not at the end."""
        if not values[-1]:
            return None
        first = len(values) - 1
        while first and values[first - 1]:
            first -= 1
        if not first:
            return f"before step {self.moments[0].step + 1}"
        before, after = self.moments[first - 1], self.moments[first]
        return (
            f"between steps {before.step} and {after.step}, while the loss goes from "
            f"{before.loss:.2g} to {after.loss:.2g}"
        )


def during(snapshots: Iterable[Snapshot], model: Any, pairs: PromptPairs, n: int) -> During:
    """Measures the parts of a network at n of its snapshots.

    Args:
        snapshots: one network in the order of training, at least two.
        model: the model.
        pairs: prompts and their answers.
        n: the number of moments, spaced by the change of the loss.
    """
    every = list(snapshots)
    if n < 2 or len(every) < 2:
        raise UserError(
            f"--during needs 2 steps or more, got {n}, of a training with {len(every)} snapshots."
        )
    arrays = pairs.position, pairs.target, pairs.against, pairs.weight
    answers = Answers(*map(jnp.asarray, arrays))
    moments = []
    smallest = 0.0
    for snapshot in (every[i] for i in spaced([x.loss for x in every], n)):
        measured = Measured(
            model, snapshot.params, pairs.clean, pairs.corrupted, answers, lengths=pairs.lengths
        )
        changes_LxCxB = measured.scores(measured.clean) - measured.mean_ablation()
        effects = {
            name: effect_of(name, "mean ablation", change_B)
            for names, changes_CxB in zip(measured.names, changes_LxCxB, strict=True)
            for name, change_B in zip(names, changes_CxB, strict=False)
            if name
        }
        labels = head_labels(model, snapshot.params)
        moments.append(Moment(snapshot.step, snapshot.loss, effects, labels))
        smallest = groups.smallest_loss(Removal(measured))
    return During(tuple(moments), smallest, pairs.unit)


def spaced(losses: Sequence[float], n: int) -> list[int]:
    """Returns n indices between which the loss changes by equal amounts, with the first and last.

    Where the loss jumps, both sides of the jump are among them.
    """
    change = np.abs(np.diff(np.nan_to_num(losses, posinf=0.0)))
    way = np.concatenate([[0.0], np.cumsum(change)])
    if way[-1] == 0:
        way = np.arange(len(losses), dtype=float)
    targets = np.linspace(0, way[-1], n)
    indices = {0, len(losses) - 1, *(int(np.abs(way - target).argmin()) for target in targets)}
    for jump in np.argsort(-change, kind="stable"):
        indices |= {int(jump), int(jump) + 1} if len(indices) < n else set()
    return sorted(indices)
