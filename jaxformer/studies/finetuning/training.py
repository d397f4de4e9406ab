"""Trains every update of a model with two compiled programs.

The full program differentiates all parameters, and a mask in the state of its optimizer freezes
those outside the update. The low-rank program differentiates norms, biases and adapters only. It
holds an adapter of the largest rank beside every matrix. An adapter of rank r fills the first r
columns of A and rows of B, and the rest is zero. It stays zero, because the gradient of a column of
A is proportional to its row of B and the other way round. So a rank, a part and a seed are values
and compile nothing, and a member equals that of `jaxformer.train` with the rule "lora(r)" up to
rounding (a test compares them).
"""

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import adapters, optim, paths, small_parts
from jaxformer.core.adapters import Lora
from jaxformer.core.partition import FROZEN, TRAIN, Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.data.protocols import HeldOut
from jaxformer.models.pretrained_init import from_params
from jaxformer.studies.anatomy.store import number
from jaxformer.studies.anatomy.training import Masked, masked
from jaxformer.studies.finetuning.updates import Update, is_vector
from jaxformer.tasks.example_checks import check_answers_are_hidden
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.training.population import Population
from jaxformer.training.setup import Setup, make_setup
from jaxformer.training.step import TrainState, member_state

WEIGHT_DECAY = 1e-3  # that of jaxformer.train


class Tuned(NamedTuple):
    """The scores of one member, an update at one seed and learning rate."""

    test: list[float]  # what each held-out text adds to the score: their mean is the score
    validation: float  # the score on other held-out texts, which chooses the learning rate
    curve: list[float]  # the training loss of each step
    diverged_at: int | None
    seconds: float


def of_json(values: Mapping[str, Any]) -> Tuned:
    """Reads a member of the store, where JSON has null in place of nan."""

    test, curve = ([number(x) for x in values[name]] for name in ("test", "curve"))
    validation = number(values["validation"])
    return Tuned(test, validation, curve, values["diverged_at"], values["seconds"])


class Program:
    """One compiled training step, and the parameters from which its members start."""

    def __init__(self, setup: Setup):
        self.setup, self.start = setup, setup.model.params
        self.step = jax.jit(setup.step(), donate_argnums=0)
        self.create = jax.jit(self._create)

    def _create(self, params: Any, rate: jax.Array) -> TrainState:
        """The state of one member at step 0, with a leading axis of members."""
        state = member_state(params, rate, self.setup.partition, self.setup.tx)
        step, members = state.step, state._replace(step=())
        return jax.tree.map(lambda x: x[None], members)._replace(step=step)


class Trainer:
    """The programs of a model and a text, compiled when they are first needed.

    Args:
        model: the published model.
        params: its parameters.
        task: the text.
        updates: the updates that will be trained; adapters have room for their largest rank.
        data: sizes of the held-out sets.
        settings: steps and batch size.
    """

    def __init__(
        self,
        model: Any,
        params: Any,
        task: NextToken,
        updates: Sequence[Update],
        data: DataSettings,
        settings: TrainSettings,
    ):
        adapters.check_merged(params, "", "an anatomy of a fine-tuning")
        self.model, self.params, self.task, self.updates = model, params, task, updates
        self.settings = settings
        self.source = make_source(task, data, settings.batch_size)
        self.heldout: HeldOut = jax.device_get(self.source.heldout())
        check_answers_are_hidden(task, self.heldout.test, model.spec.causal)
        self._programs: dict[bool, Program] = {}

    def train(self, update: Update, seed: int, rate: float) -> Tuned:
        """Trains one member."""
        began = time.perf_counter()
        member = Population((seed,), (rate,))
        program = self._program(self._is_low_rank(update))
        state = self._begin(program, update, member)
        batch_at = program.setup._replace(population=member).batch_at(self.heldout.fingerprints)
        curve = []
        for step in range(self.settings.steps):
            state, metrics = program.step(state, batch_at(step))
            curve.append(float(metrics["loss"][0]))
        diverged_at = int(state.diverged_at[0])
        test, validation = self._scores(Partition.merge(state.trainable, state.frozen))
        seconds = time.perf_counter() - began
        return Tuned(test, validation, curve, None if diverged_at < 0 else diverged_at, seconds)

    def untrained(self) -> Tuned:
        """The scores of the model as it was loaded."""
        began = time.perf_counter()
        test, validation = self._scores(jax.tree.map(lambda x: jnp.asarray(x)[None], self.params))
        return Tuned(test, validation, [], None, time.perf_counter() - began)

    def _begin(self, program: Program, update: Update, member: Population) -> TrainState:
        """The state at step 0: adapters drawn as `jaxformer.train` draws them, and the mask."""
        start, loras = program.start, update.loras(self.params)
        if loras:
            drawn = paths.flatten(adapters.add(self.params, loras, member.init_keys()[0]))
            room = paths.flatten(start)
            leaves = {path: leaf for path, leaf in drawn.items() if adapters.is_leaf(path)}
            start = paths.replace(
                start, {path: _padded(leaf, room[path].shape) for path, leaf in leaves.items()}
            )
        state = program.create(start, member.learning_rates()[0])

        def is_updated(path: str, _: Any) -> jax.Array:
            if adapters.is_leaf(path):
                return jnp.full((1,), adapters.beside(path, adapters.KERNEL) in loras)
            return jnp.full((1,), not loras and update.selects(path))

        mask = paths.map_with_path(is_updated, state.trainable)
        return state._replace(opt_state=Masked(mask, state.opt_state.inner))

    def _is_low_rank(self, update: Update) -> bool:
        selected = filter(update.selects, paths.flatten(self.params))
        return bool(update.rank) or all(map(is_vector, selected))

    def _program(self, is_low_rank: bool) -> Program:
        if is_low_rank not in self._programs:
            self._programs[is_low_rank] = Program(self._setup(is_low_rank))
        return self._programs[is_low_rank]

    def _setup(self, is_low_rank: bool) -> Setup:
        params, rules = self.params, [(".*", TRAIN)]
        if is_low_rank:
            params = self._with_room()
            vectors = [rules[0][0] for rules in (small_parts.NORMS, small_parts.BITFIT)]
            rules = [(".*/lora_[ab]", TRAIN), *((pattern, TRAIN) for pattern in vectors)]
            names = paths.flatten(params)
            rules = [rule for rule in rules if any(paths.matches(rule[0], name) for name in names)]
            rules.append((".*", FROZEN))
        partition, steps = Partition(rules), self.settings.steps
        optimizer = {TRAIN: optim.AdamW(weight_decay=WEIGHT_DECAY)}
        schedule = optim.schedule("cosine", steps, warmup(steps))
        return make_setup(
            self.task,
            from_params(self.model, params),
            partition,
            masked(optim.optimizer(partition, optimizer, OptimSettings().clip, schedule)),
            self.source,
            Population((0,), (1.0,)),
            self.settings,
            DeviceSettings(),
        )

    def _with_room(self) -> dict[str, Any]:
        """The parameters with an adapter of zeros beside each kernel that any update adapts."""
        ranks: dict[str, int] = {}
        for update in self.updates:
            for path in update.loras(self.params):
                ranks[path] = max(update.rank, ranks.get(path, 0))
        room = {path: Lora(rank) for path, rank in ranks.items()}
        params = adapters.add(self.params, room, jax.random.key(0))
        return paths.map_with_path(
            lambda path, leaf: jnp.zeros_like(leaf) if adapters.is_leaf(path) else leaf, params
        )

    @cached_property
    def _evaluate(self) -> Any:
        return self._program(False).setup.evaluation()

    def _scores(self, params: Any) -> tuple[list[float], float]:
        """The part of the score that each test text adds, and the score on the validation texts."""
        params = adapters.effective(params)
        test, validation = (
            _contributions(self._evaluate(params, {}, batch))
            for batch in (self.heldout.test, self.heldout.validation)
        )
        return test.tolist(), float(validation.mean())


def warmup(steps: int) -> int:
    """Steps of the warm-up, as in `jaxformer.train`."""
    return min(50, steps // 4)


def _contributions(scores: Mapping[str, Any]) -> np.ndarray:
    """The part that each text adds to the bits per byte of all texts.

    A text counts by its bytes, as in the metric of a run: sum(w x) / sum(w) is the mean of these.
    """
    value, weight = (np.asarray(x, np.float64)[0] for x in scores["bits_per_byte"])
    return value * weight / weight.mean()


def _padded(leaf: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape, leaf.dtype).at[tuple(map(slice, leaf.shape))].set(leaf)
