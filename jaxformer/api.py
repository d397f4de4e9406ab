"""`train` runs a training without a config file, and `plan` returns the cost of one step."""

import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import optax

from jaxformer import build
from jaxformer.core import optim
from jaxformer.core.config_fields import json_fields
from jaxformer.core.errors import UserError
from jaxformer.core.label_table import label_table
from jaxformer.core.partition import Partition, Rules
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.io.run_folder import MemoryWorkdir, config_hash, open_workdir
from jaxformer.models.model import Model
from jaxformer.models.own_model import model_identity
from jaxformer.models.pretrained_init import FromParams
from jaxformer.planning import published
from jaxformer.planning.compile_plan import plan_inference, plan_step
from jaxformer.planning.plan import Plan
from jaxformer.planning.targets import parse_target
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.runtime.progress import in_notebook
from jaxformer.tasks import heldout
from jaxformer.tasks.heldout import default_data
from jaxformer.tasks.source import Data, make_source
from jaxformer.tasks.task import Task
from jaxformer.training.arguments import (
    TrainOptions,
    check_callbacks,
    check_data,
    check_devices,
    check_fits,
    check_mixer,
    initial_values_line,
    optimizers_of,
    population_of,
    settings_of,
    unfreeze_rules,
    warn_of_unnamed,
    with_initial_values,
)
from jaxformer.training.callbacks import Callback
from jaxformer.training.cost.memory import state_bytes
from jaxformer.training.phases import Phase, make_phases
from jaxformer.training.population import Population
from jaxformer.training.run import train_phases
from jaxformer.training.run_view import Run, run_of
from jaxformer.training.setup import make_setup
from jaxformer.training.shapes import adapted_shapes
from jaxformer.training.user_optimizer import check_learning_rate

TRAIN_EVERYTHING: Rules = ((".*", "train"),)
DEFAULT_LEARNING_RATE = 1e-3
SIGNALS = 128  # exit codes above are those of signals


def train(
    task: Task,
    model: Model,
    partition: Partition | Rules = TRAIN_EVERYTHING,
    *,
    steps: int,
    params: Any = None,
    from_scratch: bool = False,
    batch_size: int = 128,
    learning_rate: float | Sequence[float] | None = None,
    seeds: int | Sequence[int] = 1,
    optimizer: Any = None,
    optimizer_name: str | None = None,
    unfreeze: Iterable[tuple[int, Rules]] = (),
    data: Data | DataSettings | None = None,
    workdir: str | Path | None = None,
    devices: DeviceSettings | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    **settings: Unpack[TrainOptions],
) -> Run:
    """Trains a model on a task and returns its scores, parameters and curves.

    All seeds and learning rates are trained in one compiled program, as members of a population.
    A member whose loss is not finite keeps its last good state and does not stop the others.

    Example:

        import jaxformer
        from jaxformer.models.decoder import decoder
        from jaxformer.tasks.retrieval import Retrieval

        task = Retrieval(max_pairs=3, vocab=16)
        sizes = dict(width=16, layers=2, heads=2, mlp_width=64)
        model = decoder(vocab_size=task.vocab_size, length=task.length, **sizes)
        rules = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
        run = jaxformer.train(task, model, rules, steps=20, batch_size=8, seeds=2)
        run.result.metrics["accuracy"]  # Mean(mean, sem, n) over the seeds, on the test set
        run.params["block_0"]["attn"]["query"]["kernel"]

    Args:
      task: the source of examples, and the loss (`jaxformer.tasks`).
      model: a module of `jaxformer.models`, or one of `jaxformer.wrap`, built for this task. A
        model of `jaxformer.load` needs `params` or `from_scratch`, because a module has no weights.
      partition: (pattern, label) rules over parameter paths; the first full match wins, and
        "frozen" is not trained. Also {pattern: label}, or the name of a variant of a decoder:
        "standard", "frozen_qk", "frozen_mlp", "mixit", "random", "random_mixit". A rule without
        effect and a misspelt alternative such as `qury` in ".*/(qury|key)/.*" are errors. Default:
        everything is trained.
      steps: training steps; no default. With 0, or with rules that freeze everything, the run is a
        null model of the others: the network at its initial values, with scores and parameters.
      params: the parameters at step 0, such as those of `jaxformer.load`, for all seeds. Default:
        they are drawn for each seed.
      from_scratch: draw new parameters for a model of `jaxformer.load`. Default False.
      batch_size: examples per step and member. Default 128.
      learning_rate: one, or several among which validation chooses. It multiplies the schedule,
        whose peak is 1. Default 1e-3.
      seeds: the number of seeds, which are then 0, 1, .., or a list of seeds. Default 1.
      optimizer: an AdamW or SGD of `jaxformer.core.optim`, an optax optimizer, a function of the
        rate, or {label: one of these}. Default AdamW with weight decay 1e-3. An optax optimizer
        such as `optax.adamw(1e-2)` has its own learning rate: leave out `learning_rate`, `schedule`
        and `warmup`; `clip` is then 0 unless given. A function such as
        `lambda rate: optax.adamw(rate)` uses all four.
      optimizer_name: identifies optax optimizers in a `workdir`; a call with another name is
        refused. Without a name only the structure of their state is compared.
      unfreeze: (step, rules) in increasing order; from this step on these rules hold. Default ().
      data: sizes of the data sets (`DataSettings`), or an object with the methods of
        `jaxformer.tasks.source.Data`. Default: fresh training examples, 1,000 for each held-out
        set; a task so small that these take more than half of it is split by hash.
      workdir: a folder for rows, checkpoints and result. The same call resumes the run in it, and
        is refused if the code of your task or module has been edited since. Default: nothing is
        saved.
      devices: sizes of the mesh axes. Default: the batch is split over all devices.
      callbacks: called between steps, such as `Every(100, function)` of
        `jaxformer.training.callbacks`, whose function gets (state, step) and ends the run by
        returning True. The parameters are in `state.trainable` and `state.frozen`, with an axis of
        members. Default ().
      progress: print the parameters with their labels, and a progress line. Default True.
      **settings: fields of `TrainSettings` (log_every=10, eval_every=steps/10, members="map",
        target, patience, probes, signal, throughput, loss_chunk, accumulate) and of `OptimSettings`
        (schedule="cosine", warmup=min(50, steps/4), clip=1.0). Intervals count steps.

    Returns:
      A `Run`: `result`, `params`, `curves`, `plot()`.

    Raises:
      UserError: an argument is wrong, the parts do not fit together, the task's examples are wrong,
        the model reads later tokens although its spec is causal, or all members diverged.
      KeyboardInterrupt: Ctrl-C stopped the run. With a workdir it is saved first, and the same call
        resumes it. A SIGTERM raises SystemExit, so that either ends a script with several calls; a
        notebook gets the stopped `Run`, whose `params` and `curves` it can look at.
    """
    use_compilation_cache()
    check_fits(task, model)
    model = with_initial_values(task, model, params, from_scratch)
    check_devices(devices)
    check_data(data)
    check_callbacks(callbacks)
    source = None
    if data is None:
        data, source = default_data(task, batch_size)
    prepared = _prepare(
        task,
        model,
        partition,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seeds=seeds,
        optimizer=optimizer,
        optimizer_name=optimizer_name,
        unfreeze=unfreeze,
        data=data,
        source=source,
        devices=devices,
        **settings,
    )
    phases, config_json = prepared.phases, prepared.config_json
    # Before the folder is opened: nothing is written for a task whose examples are wrong.
    drawn = heldout.draw(task, phases[-1].setup.data)
    drawn = drawn.identified_by(model_identity(model, drawn.sets.test.inputs))
    if workdir and (Path(workdir) / "config.json").exists():
        warn_of_unnamed(prepared.optimizers)
    opened = (
        open_workdir(workdir, config_json) if workdir else nullcontext(MemoryWorkdir(config_json))
    )
    with opened as folder:
        if progress:
            print(label_table(phases[0].setup.partition, phases[0].setup.shapes()))
            print(initial_values_line(model))
        trained = train_phases(
            phases,
            prepared.settings,
            folder,
            callbacks=callbacks,
            progress=progress,
            drawn=drawn,
        )
        code = trained.exit_code()
        if code > SIGNALS and not in_notebook():  # a script must not go on to its next call
            raise KeyboardInterrupt if code == SIGNALS + signal.SIGINT else SystemExit(code)
        result = None if code else trained.result()
        if result:
            folder.write("result.json", result.as_json())
        return run_of(trained, folder, result)


def plan(
    task: Task,
    model: Any,
    partition: Partition | Rules = TRAIN_EVERYTHING,
    *,
    target: str,
    steps: int = 1000,
    devices: DeviceSettings | None = None,
    inference: bool = False,
    **arguments: Any,
) -> Plan:
    """Compiles a step for a machine that may be absent, and returns its memory, FLOPs and time.

    The compilers for TPUs (`pip install 'jaxformer[tpu]'`) and for NVIDIA GPUs
    (`'jaxformer[compile-cuda]'`) need no accelerator. Set JAX_PLATFORMS=cpu on a machine without
    one. Nothing is allocated, so that a model of any size can be planned.

    Example:

        import jaxformer
        from jaxformer.models.decoder import decoder
        from jaxformer.tasks.retrieval import Retrieval

        task = Retrieval(max_pairs=3, vocab=16)
        sizes = dict(width=16, layers=2, heads=2, mlp_width=64)
        model = decoder(vocab_size=task.vocab_size, length=task.length, **sizes)
        plan = jaxformer.plan(task, model, target="cpu:1", batch_size=8)
        print(plan)  # memory of a device, FLOPs, communication, a lower bound of the time
        plan.peak, plan.fits, plan.step_seconds

    Args:
      task: as in `train`; for text, use `TokenTask(length)` of
        `jaxformer.planning.published`.
      model: as in `train`, or the config.json of a published model: its file, or its content.
      partition: as in `train`.
      target: "v5e:4x4", "v5p:2x2x1", "v6e:2x2", "h100:8", "h100:2x8" (hosts x GPUs), "h200:8",
        "a100:8" or "cpu:8".
      steps: training steps, for the schedule.
      devices: sizes of the mesh axes. Default: the batch is split over all devices.
      inference: plan the logits of a batch instead of a training step.
      **arguments: further arguments of `train`: batch_size, seeds, learning_rate, optimizer, ...

    Returns:
      A `Plan`; print it, or read its fields. Bytes and seconds are those of one device.

    Raises:
      UserError: the target is unknown, its compiler is not installed, or the mesh does not fit it.
    """
    machine = parse_target(target)
    if isinstance(model, str | Path | Mapping):
        task, model = published.shapes_only(task, model)
    check_fits(task, model)
    check_devices(devices)
    check_data(arguments.get("data"))
    one_device = DeviceSettings(data=1)  # of this machine; the plan has the mesh of the target
    prepared = _prepare(task, model, partition, steps=steps, devices=one_device, **arguments)
    setup = max((phase.setup for phase in prepared.phases), key=state_bytes)
    plan_of = plan_inference if inference else plan_step
    return plan_of(setup, devices or DeviceSettings(), machine)


class Prepared(NamedTuple):
    """The checked parts of a run."""

    phases: list[Phase]
    settings: TrainSettings
    devices: DeviceSettings
    optimizers: dict[str, Any]  # {label: optimizer}
    config_json: dict[str, Any]


def _prepare(
    task: Task,
    model: Any,
    partition: Partition | Rules = TRAIN_EVERYTHING,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: float | Sequence[float] | None = None,
    seeds: int | Sequence[int] = 1,
    optimizer: Any = None,
    optimizer_name: str | None = None,
    unfreeze: Iterable[tuple[int, Rules]] = (),
    data: Data | DataSettings | None = None,
    source: Data | None = None,
    devices: DeviceSettings | None = None,
    **settings: Any,
) -> Prepared:
    """Returns the parts of a run; the arguments are those of `jaxformer.train`.

    The caller has checked that task and model fit, and the kinds of `devices` and `data`.
    `source` are the data that the settings `data` describe, if the caller has made them.

    Raises:
      UserError: an argument is wrong, or the parts do not fit together.
    """
    check_mixer(partition, model)
    partition = partition if isinstance(partition, Partition) else Partition(partition)
    later = unfreeze_rules(unfreeze)
    optimizers = optimizers_of(
        optimizer,
        [partition, *(rules for _, rules in later)],
        lambda: adapted_shapes(model, task, [partition, *(rules for _, rules in later)]),
        optimizer_name,
    )
    rate_arguments = {"learning_rate": learning_rate}
    rate_arguments |= {name: settings.get(name) for name in ("schedule", "warmup")}
    has_own_rate = check_learning_rate(optimizers, rate_arguments)
    train_settings, optim_settings = settings_of(settings, steps, batch_size, has_own_rate)
    default_rate = 1.0 if has_own_rate else DEFAULT_LEARNING_RATE
    members = population_of(seeds, default_rate if learning_rate is None else learning_rate)
    if len(members.rates) > 1 and not train_settings.eval_every:
        raise UserError(
            f"validation chooses among the learning rates {members.rates}, and eval_every=0 turns "
            "it off. Give one learning rate, or an eval_every of at least 1."
        )
    data = data or DataSettings()
    data_section = {"name": type(data).__name__, **json_fields(data)}
    if isinstance(data, DataSettings):
        data_section = asdict(data)
        data = source or make_source(task, data, batch_size)

    def transformation(rules: Partition) -> optax.GradientTransformation:
        if not rules.trained_labels:  # the null model: everything keeps its random values
            return optax.identity()
        factor = optim.schedule(optim_settings.schedule, steps, optim_settings.warmup)
        return optim.optimizer(rules, optimizers, optim_settings.clip, factor)

    tx, devices = transformation(partition), devices or DeviceSettings()
    setup = make_setup(task, model, partition, tx, data, members, train_settings, devices)
    later_rules = [(step, rules.rules) for step, rules in later]
    phases = make_phases(setup, steps, later_rules, transformation)
    parts = build.sections(task, model)
    if isinstance(model, FromParams):  # its initial parameters identify the run
        parts["model"]["params"] = model.fingerprint()
    sections = {
        **parts,
        "data": data_section,
        "partition": partition.rules,
        "unfreeze": later_rules,
        "optim": asdict(optim_settings)
        | {
            "learning_rate": build.OWN_RATE if has_own_rate else members.rates,
            "labels": build.label_sections(optimizers),
        },
        "train": asdict(train_settings),
    }
    config_json = _config_json(type(task).__name__, members, sections) | build.tokens_of(task)
    return Prepared(phases, train_settings, devices, optimizers, config_json)


def _config_json(name: str, members: Population, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of config.json for a run without a config file."""
    # Recipes take a scale, which names a preset of sizes; "own" says that there is none.
    config = {"name": name, "recipe": "library", "arguments": {"scale": "own"}, **sections}
    config |= {"seed": members.seeds[0], "n_seeds": len(members.seeds), "seeds": members.seeds}
    config_digest = config_hash(config)
    return {"config": config, "config_file": "", "overrides": {}, "config_hash": config_digest}
