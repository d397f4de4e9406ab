"""Phases of a run: each trains by its own partition, and ends at a step."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import optax

from jaxformer.core import adapters, sharding
from jaxformer.core.errors import UserError, setting
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.io.checkpoint_writer import flatten_state, unflatten_state
from jaxformer.training.setup import Setup, with_adapters
from jaxformer.training.step import TrainState


class Phase(NamedTuple):
    """A setup and the step at which its training ends."""

    end: int
    setup: Setup


def make_phases(
    first: Setup,
    steps: int,
    unfreeze: Iterable[tuple[int, Any]],
    optimizer: Callable[[Partition], optax.GradientTransformation],
) -> list[Phase]:
    """Returns one phase for the rules of `first` and one for each entry of `unfreeze`.

    A model has the adapters of all phases from the start. One that a later phase adds is frozen
    until then, whatever the rules of the earlier phases, such as (".*", "train").

    Args:
      first: the setup of the first phase.
      steps: steps of the whole run.
      unfreeze: (step, rules) in increasing order; from this step on the rules hold.
      optimizer: returns the optimizer of a partition.
    """
    unfreeze = [*unfreeze]
    begins = [step for step, _ in unfreeze]
    partitions = [first.partition, *(Partition(rules) for _, rules in unfreeze)]
    if begins:
        first = with_adapters(first, partitions)
        partitions = _with_adapters_frozen_until_added(first, partitions)
        if partitions[0] is not first.partition:
            first = first._replace(partition=partitions[0], tx=optimizer(partitions[0]))
        first.partition.labels(first.shapes())  # a later phase may have added parameters
    phases, setup, begin = [], first, 0
    for step, partition in zip(begins, partitions[1:], strict=True):
        if not begin < step < steps:
            raise UserError(
                f"unfreeze steps must increase between 0 and {setting('train.steps')} = {steps}, "
                f"got {step} after {begin}."
            )
        phases.append(Phase(step, setup))
        counts = setup.counts()
        setup = setup._replace(partition=partition, tx=optimizer(partition))
        if setup.counts() == counts:
            raise UserError(f"the unfreeze rules of step {step} change nothing: {counts}.")
        begin = step
    return [*phases, Phase(steps, setup)]


def _with_adapters_frozen_until_added(setup: Setup, partitions: list[Partition]) -> list[Partition]:
    """Returns the partitions of the phases, which train no adapter that only a later one adds."""
    shapes, added, changed = setup.shapes_without_adapters(), set(), []
    for partition in partitions:
        added |= partition.adapters(shapes).keys()
        early = [
            re.escape(adapters.beside(kernel, ""))
            for kernel, _ in setup.loras
            if kernel not in added
            and partition.label(adapters.beside(kernel, adapters.LORA_A)) != FROZEN
        ]
        rule = (f"({'|'.join(early)})lora_[ab]", FROZEN)
        changed.append(Partition((rule, *partition.rules)) if early else partition)
    return changed


def trained_share(phases: Sequence[Phase], steps: int) -> float:
    """Returns the fraction of parameters that are trained, averaged over the steps."""
    share, begin = 0.0, 0
    for end, setup in phases:
        counts = setup.counts()
        trained = 1 - counts.get(FROZEN, 0) / sum(counts.values())
        if not steps:  # an untrained network has the share of its first phase
            return trained
        share += trained * max(min(end, steps) - begin, 0) / steps
        begin = end
    return share


def repartition(state: TrainState, fresh: TrainState) -> TrainState:
    """Returns the state split by new rules. Newly trained parameters have moments of zero.

    Adam's step counter is kept per label. To restart the bias correction of newly trained
    parameters give them a new label.

    Args:
      state: the state under the old rules; its values and moments stay.
      fresh: a state at step 0 under the new rules.
    """
    params = Partition.merge(state.trainable, state.frozen)
    old = flatten_state(state) | flatten_state({"trainable": params, "frozen": params})
    arrays = {
        # A parameter of half precision is float32 from now on if it is trained from now on.
        path: old.get(path, leaf).astype(leaf.dtype)
        for path, leaf in flatten_state(fresh).items()
    }
    return sharding.put_like(unflatten_state(arrays, fresh), fresh)


def phase_of_checkpoint(
    rules: Iterable[Sequence[str]], phases: Sequence[Phase], folder: Any
) -> Phase:
    """Returns the phase that wrote a checkpoint with these rules; raises if there is none."""
    saved_rules = [tuple(rule) for rule in rules]
    for phase in phases:
        if [*phase.setup.partition.rules] == saved_rules:
            return phase
    raise UserError(
        f"the checkpoint in {folder} was written under other rules: {saved_rules}. Give these, or "
        f"another {setting('workdir')}."
    )
