"""The subject of a report: a task, a network and the settings of its training."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import optax

from jaxformer import build
from jaxformer.core import adapters, optim, paths
from jaxformer.core.errors import UserError, check_range, check_type
from jaxformer.core.identity import of_older_version, rounded
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, OptimSettings
from jaxformer.io.run_folder import config_hash
from jaxformer.models.decoder import Decoder, decoder
from jaxformer.models.model import check_model
from jaxformer.models.own_model import initial_identity, is_users_code, model_identity
from jaxformer.models.source import origin
from jaxformer.tasks import heldout
from jaxformer.tasks.example_checks import check_answers_are_hidden
from jaxformer.tasks.heldout import Drawn, default_data
from jaxformer.tasks.language import PreparedText
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Task
from jaxformer.training.arguments import check_fits
from jaxformer.training.population import Population, checked_rates
from jaxformer.training.shapes import shapes_of

# The sizes of the decoder for a task that is given without a model, as in the README.
SIZES = {"width": 64, "layers": 2, "heads": 4, "mlp_width": 256}
STEPS, BATCH_SIZE, RATES = 400, 64, (3e-3, 1e-2, 1e-3)
# Rules of a partition: a pattern over paths of parameters and a label, an optimizer or "frozen".
TRAIN_EVERYTHING = ((".*", "train"),)
FIXED_MATRICES = (".*/mix", "frozen")
IN_PYTHON = "in Python, call jaxformer.anatomy(task, model=..) with what the run had"


@dataclass(frozen=True, eq=False)
class Network:
    """A model with the data and the optimizer that train it."""

    task: Task
    model: Any
    data: Any
    partition: Partition
    # A function of the number of steps, over which the schedule of the learning rate extends.
    optimizer_for: Callable[[int], optax.GradientTransformation]
    steps: int

    def longer(self, times: int) -> "Network":
        """The network that is trained for so many times the steps, with a schedule of its own."""
        return dataclasses.replace(self, steps=times * self.steps)

    @cached_property
    def optimizer(self) -> optax.GradientTransformation:
        return self.optimizer_for(self.steps)

    def init(self, key: jax.Array) -> Any:
        """Returns the initial parameters."""
        return self.model.init(key, self.task.blank())["params"]

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array | None) -> jax.Array:
        """Returns the logits."""
        return self.model.apply({"params": params}, tokens, positions)

    @cached_property
    def initial(self) -> Any:
        """A compiled function of (members,) keys that returns the members' initial parameters."""
        return jax.jit(jax.vmap(self.init))

    @cached_property
    def shapes(self) -> Any:
        """The shapes of the parameters."""
        return shapes_of(self.model, self.task)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, the same network with fixed mixing, and the learning rates to choose from."""

    name: str
    network: Network
    mixing: Network | None  # with fixed mixing; None if the network has no softmax attention
    rates: tuple[float, ...]
    identity: dict[str, Any]  # the settings; equal settings give equal results
    run: Path | None = None  # the run whose network is examined; None: one that the study trains

    @cached_property
    def hash(self) -> str:
        """Identifies the settings, and by what they do the task and a model of the user."""
        return config_hash({**self.identity, "drawn": rounded(self.drawn.identity)})

    @cached_property
    def older_hash(self) -> str:
        """The hash of older versions, which did not read initial values and training examples."""
        older = of_older_version(self.drawn.identity)
        return config_hash({**self.identity, "drawn": rounded(older)})

    @cached_property
    def drawn(self) -> Drawn:
        """The held-out sets with their trivial scores."""
        network = self.network
        drawn = drawn_for(network.task, network.model, network.data)
        if not is_users_code(network.model):
            return drawn
        population = jax.device_get(network.initial(Population((0,), (1.0,)).init_keys()))
        params = jax.tree.map(lambda x: x[0], population)
        return drawn.identified_by(initial_identity(network.model, params))

    @property
    def task(self) -> Task:
        return self.network.task

    def parameters(self) -> int:
        """Returns the number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.network.shapes))


def of_task(
    task: Task,
    model: Any = None,
    *,
    name: str = "",
    steps: int = STEPS,
    batch_size: int = BATCH_SIZE,
    rates: Sequence[float] = RATES,
    data: DataSettings | None = None,
    rules: Sequence[tuple[str, str]] = TRAIN_EVERYTHING,
    **sizes: Any,
) -> Subject:
    """Returns the subject of a task and a model, which is trained with AdamW.

    Args:
      model: the model; a decoder of `sizes` if None.
      name: the name in the report; that of the task's class by default.
      steps: training steps.
      batch_size: examples in a batch.
      rates: learning rates to choose from.
      data: sizes of the data sets.
      rules: (pattern, label) pairs that select the parameters which the whole network trains.
      **sizes: width, layers, heads and other fields of the decoder.
    """
    check_task(task)
    for field, number in (("steps", steps), ("batch_size", batch_size)):
        check_type(field, number, int)
        check_range(field, number, 1)
    rates = checked_rates("rates", rates)
    if model is None:
        if "width" in sizes:
            sizes = {"mlp_width": 4 * sizes["width"], **sizes}
        model = decoder(**task.sizes, **SIZES | sizes)
    elif sizes:
        raise UserError(f"the model has its own sizes: leave {', '.join(sizes)} out, or the model.")
    check_model(model)
    check_fits(task, model)
    if source := origin(model):
        raise UserError(
            f"the model was loaded from {source}, and an anatomy trains networks from new weights: "
            "look into the loaded one with jaxformer.examine(model, params, prompts=task), or "
            "build the model yourself."
        )
    settings = OptimSettings(warmup=min(50, steps // 4))
    source = make_source(task, data, batch_size) if data else default_data(task, batch_size)[1]

    def optimizer(partition: Partition, steps: int) -> optax.GradientTransformation:
        rate_factor = optim.schedule(settings.schedule, steps, settings.warmup)
        specs = dict.fromkeys(partition.trained_labels, optim.AdamW())
        return optim.optimizer(partition, specs, settings.clip, rate_factor)

    identity = {
        # Without defaults: a new field that is off leaves the members of older studies valid.
        **build.config_identity(build.sections(task, model)),
        "data": build.json_fields(source),
        "optim": asdict(settings),
        "rules": rules,
        "steps": steps,
    }
    name = name or type(task).__name__
    return _subject(name, task, model, source, rules, optimizer, steps, rates, identity)


def of_config(config: Any, name: str = "", task: Task | None = None) -> Subject:
    """Returns the subject of a training config.

    Args:
      name: the name in the report.
      task: the task, if its class is not one of jaxformer's.
    """
    name = name or str(config.name)
    if config.model.name == "loaded":
        raise UserError(
            f"{name} trains a published model, whose parts do not start from random "
            "values; examine it with --prompts=FILE."
        )
    if config.unfreeze:
        raise UserError(
            f"{name} frees parameters during training (unfreeze), which a report cannot repeat."
        )
    task = build.task(config) if task is None else task
    model, data = build.model(config, task), build.source(config, task)
    identity = build.config_identity(config.to_dict())
    for field in ("seed", "n_seeds", "seeds"):
        identity.pop(field, None)

    def optimizer(partition: Partition, steps: int) -> optax.GradientTransformation:
        lengthened = config.copy_and_resolve_references()
        lengthened.train.steps = steps
        return build.optimizer(lengthened, partition)

    return _subject(
        name,
        task,
        model,
        data,
        build.partition(config).rules,
        optimizer,
        config.train.steps,
        tuple(config.optim.learning_rate),
        identity,
    )


def of_library_run(config: Any, task: Task | None, name: str) -> Subject:
    """The subject of a run of `jaxformer.train`, with its split, optimizer and schedule.

    Args:
      config: the config of the run
      task: the task, if its class is not one of jaxformer's
      name: the name in the report
    """
    check_task_and_data(config, task, name)
    if config.model.name not in build.MODELS:
        raise UserError(f"the model of {name} is {config.model.name!r}; {IN_PYTHON}.")
    for label, optimizer in config.optim.labels.items():
        if optimizer.name not in build.OPTIMIZERS:
            raise UserError(f"the optimizer of the label {label!r} is yours; {IN_PYTHON}.")
    return of_config(config, name, task)


def check_task_and_data(config: Any, task: Task | None, name: str) -> None:
    """Raises if the task or the data of a run are code of the user that was not given."""
    if task is None and config.task.name not in build.TASKS:
        # `build.sections` records a class outside of jaxformer as "own: CLASS".
        class_name = config.task.name.removeprefix("own: ")
        raise UserError(
            f"the task of {name} is the class {class_name}: give it with "
            f"--task=MODULE:{class_name}, or in Python to jaxformer.examine as prompts=."
        )
    if "name" in config.data:
        older = " (or an older version wrote the run)" if config.data.name == "Source" else ""
        raise UserError(
            f"the data of {name} are a {config.data.name} of yours{older}; {IN_PYTHON}."
        )


def drawn_for(task: Task, model: Any, data: Any) -> Drawn:
    """The held-out sets of a task, identified by what the task and a model of the user do."""
    drawn = heldout.draw(task, data)
    check_answers_are_hidden(task, drawn.sets.test, model.spec.causal)
    return drawn.identified_by(model_identity(model, drawn.sets.test.inputs))


def check_task(task: Any) -> None:
    """Raises UserError unless the value is a task."""
    if isinstance(task, type) and issubclass(task, Task):
        raise UserError(f"expected a task, got the class {task.__name__}: give {task.__name__}().")
    if not isinstance(task, Task):
        raise UserError(
            "expected a task, a subclass of jaxformer.tasks.task.Task with its sizes, got "
            f"{type(task).__name__}: {task!r:.100}."
        )


def _subject(name, task, model, data, rules, optimizer, steps, rates, identity) -> Subject:
    """The subject; `optimizer` makes the optimizer of a partition and a number of steps."""
    if isinstance(task, PreparedText):
        identity = {**identity, "text": task.prepared.fingerprint}

    if any(adapters.parse(label) for _, label in rules):
        raise UserError(
            "an anatomy trains parameters, not adapters: give rules without lora(..), or examine "
            "the merged model (jaxformer.adapters.merge)."
        )

    def network(model: Any, rules: Any) -> Network:
        shapes = paths.flatten(shapes_of(model, task))
        # A partition refuses rules that select no parameter.
        used = [rule for rule in rules if any(paths.matches(rule[0], path) for path in shapes)]
        partition = Partition(used)
        return Network(task, model, data, partition, partial(optimizer, partition), steps)

    mixing = None
    is_softmax = isinstance(model, Decoder) and model.spec.mixer == "softmax"
    if is_softmax and model.spec.document_end < 0:  # fixed matrices know no documents
        # MixiT has no rotary positions, so it learns positions.
        spec = dataclasses.replace(model.spec, mixer="mixit", learned_positions=True, fused=False)
        mixing = network(Decoder(spec), (FIXED_MATRICES, *rules))
    return Subject(name, network(model, rules), mixing, rates, identity)
