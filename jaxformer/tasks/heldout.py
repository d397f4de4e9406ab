"""The held-out sets of a run: drawn once, checked, scored by trivial predictors, and identified.

A run trusts its examples, and a wrong one rarely raises: a target of -1 trains away from every
answer, a second scored position is dropped, and a test set that fills the whole task is also the
training set. So `draw` looks at the sets before anything is trained. What it returns also says
which task this is, by what the task does (`Drawn.identity`): two tasks are the same if their first
examples and their trivial scores are, whatever the code that draws them looks like.
"""

import hashlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, is_users, setting, users_code
from jaxformer.core.identity import float_identity
from jaxformer.core.settings import DataSettings
from jaxformer.data.protocols import Data, HeldOut
from jaxformer.tasks import trivial
from jaxformer.tasks.disk import DiskTask, OnDisk, Order
from jaxformer.tasks.example_checks import (
    check_answers,
    check_baselines,
    check_deterministic,
    check_set,
)
from jaxformer.tasks.source import Source, make_source
from jaxformer.tasks.task import TRAIN, Batch, Task

IDENTIFYING_EXAMPLES = 100  # of each set, which identify a task
# The steps and the seed of the training batches that identify a task of the user. The later step is
# for data that change during a training.
IDENTIFYING_STEPS, IDENTIFYING_SEED = (0, 1000), 2026
# Shares of the draws of a task that are held-out examples. Above the first one training has less
# than half of the task. Above the second one no number of redraws is sure to find a free example.
CROWDED, FULL = 0.5, 0.97


class Drawn(NamedTuple):
    """Held-out sets, and what is known of them before training."""

    sets: HeldOut  # NumPy arrays
    baselines: Mapping[str, float]  # the scores of trivial predictors on the test set
    validation_baselines: Mapping[str, float]  # and on the validation set
    identity: Mapping[str, Any]  # of the task, for `core.identity.difference`
    warnings: tuple[str, ...]

    def identified_by(self, numbers: Mapping[str, float]) -> "Drawn":
        """The same sets with more numbers in the identity, such as those of a model."""
        return self._replace(
            identity={**self.identity, "numbers": {**self.identity["numbers"], **numbers}}
        )


def draw(task: Task, data: Data) -> Drawn:
    """Draws the held-out sets of a run and scores the trivial predictors on them.

    Raises:
      UserError: as `checked_sets`, or the baselines raise or are not finite.
    """
    sets, warnings = checked_sets(task, data)
    with trivial.drawn_once():
        test, validation = (_baselines(task, batch) for batch in (sets.test, sets.validation))
    identity = _identity(task, sets, test)
    if is_users(task) or is_users(data):
        identity = _with_training(identity, task, data, sets)
    return Drawn(sets, test, validation, identity, tuple(warnings))


def _baselines(task: Task, batch: Batch) -> dict[str, float]:
    name = type(task).__name__
    with users_code(f"{name}.baselines", is_users(task)):
        scores = dict(task.baselines(batch))
    check_baselines(name, scores)
    return scores


def checked_sets(task: Task, data: Data) -> tuple[HeldOut, list[str]]:
    """Draws the held-out sets as NumPy arrays, and prints each doubt to standard error.

    Returns:
      (the sets, the doubts)

    Raises:
      UserError: the task's examples are wrong, its code raises, it draws other examples each time,
        or training would use the examples of the test set.
    """
    is_own, name = is_users(task), type(task).__name__
    check_answers(task)
    with users_code(f"{name}.example", is_own):
        sets = jax.device_get(data.heldout())
        if is_own and isinstance(data, Source):
            check_deterministic(task.part(TRAIN))
    for set_name in ("test", "validation"):
        check_set(task, getattr(sets, set_name), f"{name}, {set_name} set")
    warnings = _doubts(task, data, sets)
    print(*(f"warning: {line}\n" for line in warnings), sep="", end="", file=sys.stderr, flush=True)
    return sets, warnings


def default_data(task: Task, batch_size: int) -> tuple[DataSettings, Source | OnDisk]:
    """The settings and the data of a task for which nothing was chosen.

    The split is by redrawing, unless the held-out sets then take most of the task: a small task,
    such as pairs of digits, is split by hash, and a line says so.
    """
    settings = DataSettings()
    data = make_source(task, settings, batch_size)
    if not isinstance(data, Source):
        return settings, data
    with users_code(f"{type(task).__name__}.example", is_users(task)):
        taken = data.rejected_share
    if taken <= CROWDED:
        return settings, data
    _different(task, data.heldout(), "test")  # raises for a task of one example
    print(
        f"note: {100 * taken:.0f} % of the examples that {type(task).__name__} draws are in its "
        "held-out sets of 1,000, so training takes the examples that a hash assigns to it: "
        'data=DataSettings(split="hash").',
        file=sys.stderr,
    )
    settings = DataSettings(split="hash")
    return settings, make_source(task, settings, batch_size)


def _doubts(task: Task, data: Data, sets: HeldOut) -> list[str]:
    """Refuses training on the test set, and returns what else is doubtful about the sets."""
    name = type(task).__name__
    lines, counts = [], {}
    for set_name in ("test", "validation"):
        n, different = _different(task, sets, set_name)
        if different < n / 2 and not (isinstance(data, Source) and data.task.size):
            counts[set_name] = f"{different:,} of {n:,} in {set_name}"
    if counts:
        lines.append(
            f"{name} has few examples; different ones are only {', '.join(counts.values())}."
        )
    inputs, targets, weights = (np.asarray(x) for x in sets.test)
    if inputs.shape == targets.shape and (inputs == targets)[weights > 0].all():
        lines.append(
            f"every answer of {name} is the input at its own position: a copy is always right."
        )
    unseen_B = data.unseen(data.key, sets.test) if isinstance(data, OnDisk) else None
    if unseen_B is not None and (n_seen := int((~unseen_B).sum())):
        lines.append(
            f"{n_seen:,} of {len(unseen_B):,} test examples have inputs of training examples: the "
            'scores with "_unseen" leave them out.'
        )
    taken = data.rejected_share if isinstance(data, Source) else 0.0
    if taken > FULL:
        held = f"{100 * taken:.0f} %" if taken < 1 else "all"
        raise UserError(
            f"{held} of the examples that {name} draws are in its test and validation sets, so "
            f'that it would train on them. Split by hash ({setting("data.split")}="hash" of '
            f"DataSettings), or take smaller held-out sets ({setting('data.test_size')}, "
            f"{setting('data.validation_size')})."
        )
    if taken > CROWDED:
        lines.append(
            f"{100 * taken:.0f} % of the examples that {name} draws are held out, and training "
            'has the rest only. A split by hash (data=DataSettings(split="hash")) leaves more.'
        )
    return lines


def _different(task: Task, sets: HeldOut, set_name: str) -> tuple[int, int]:
    """The number of examples of a set, at most 10,000, and how many of them are different."""
    inputs = np.asarray(getattr(sets, set_name).inputs)[:10_000]
    different = len(np.unique(inputs.reshape(len(inputs), -1), axis=0))
    if different == 1 < len(inputs):
        hint = "Does its example(key, index) use the key?"
        if isinstance(task, DiskTask):
            hint = "Their inputs must differ, or there is nothing to learn from them."
        raise UserError(
            f"{type(task).__name__}: all {len(inputs):,} examples of the {set_name} set are equal. "
            f"{hint}"
        )
    return len(inputs), different


def _identity(task: Task, sets: HeldOut, baselines: Mapping[str, float]) -> dict[str, Any]:
    """Identifies a task by its first examples and its trivial scores (`core.identity`)."""
    digest = hashlib.sha256()
    # Older versions did not weigh the scores of trivial predictors; the kind of a number is its
    # first word, and a kind that a folder lacks is not compared.
    weights = np.asarray(sets.test.weights)
    kind = "baseline" if np.isin(weights, (0, 1)).all() else "weighted baseline"
    numbers = {f"{kind} {name}": float(value) for name, value in baselines.items()}
    for set_name in ("test", "validation"):
        batch = jax.tree.map(lambda x: x[:IDENTIFYING_EXAMPLES], getattr(sets, set_name))
        for field, values in batch._asdict().items():
            digest.update(f"{set_name} {field} {values.shape}".encode())
            if field != "weights" and np.issubdtype(values.dtype, np.floating):
                numbers[f"{set_name} {field}"] = float_identity(values)
            else:
                digest.update(np.ascontiguousarray(values).tobytes())
    if is_users(task) and type(task).metrics is not Task.metrics:
        numbers |= _metric_numbers(task, sets.test)
    return {"examples": digest.hexdigest()[:16], "numbers": numbers}


def _with_training(
    identity: dict[str, Any], task: Task, data: Data, sets: HeldOut
) -> dict[str, Any]:
    """The identity with training examples, which a user's code draws: it may treat them alone."""
    name = type(data if is_users(data) else task).__name__
    digest, numbers = hashlib.sha256(), {}
    with users_code(f"the training data of {name}"):
        batches = jax.device_get(_training_batches(data, sets))
    for step, batch in zip(IDENTIFYING_STEPS, batches, strict=True):
        for path, leaf in jax.tree.leaves_with_path(batch):
            values = np.asarray(leaf)
            field = f"step {step} {jax.tree_util.keystr(path, simple=True)}"
            digest.update(f"{field} {values.shape}".encode())
            if np.issubdtype(values.dtype, np.floating):
                numbers[f"training {field}"] = float_identity(values)
            else:
                digest.update(np.ascontiguousarray(values).tobytes())
    return {
        **identity,
        "training": digest.hexdigest()[:16],
        "numbers": {**identity["numbers"], **numbers},
    }


def _training_batches(data: Data, sets: HeldOut) -> list[Any]:
    """The training batches of some steps, or their rows on disk, for a key that no member has."""
    key = jax.random.key(IDENTIFYING_SEED)
    if isinstance(data, OnDisk):
        order = Order(key)
        return [data.read(order, range(step, step + 1)) for step in IDENTIFYING_STEPS]
    batch_at = jax.jit(lambda step: data.batch_at(key, step, sets.fingerprints))
    return [batch_at(jnp.int32(step)) for step in IDENTIFYING_STEPS]


def _metric_numbers(task: Task, test: Batch) -> dict[str, float]:
    """The task's own scores of fixed random logits, because a score may be edited too."""
    batch = jax.tree.map(lambda x: jnp.asarray(x[:IDENTIFYING_EXAMPLES]), test)
    shape = (*batch.targets.shape, task.answers) if task.vocab_size else batch.targets.shape[:1]
    logits = jax.random.normal(jax.random.key(0), shape)
    with users_code(f"{type(task).__name__}.metrics", True):
        scores = jax.jit(task.metrics)(logits, batch)
    return {f"score {name}": float_identity(np.asarray(s.value)) for name, s in scores.items()}
