"""Trains attention paths on one-shot episodes, then asks the theory what the network's heads do.

images -> episodes -> fit (queries, keys and values learned) -> queries and keys frozen:
order parameter, GP limit, temperature scan -> head scores, pruning -> record
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.attention_paths.oneshot import draw_figure
from experiments.papers.attention_paths.study import study, summarise
from experiments.recipes.solve import write_arrays
from experiments.shared import describe, plots
from jaxformer import build, sharding
from jaxformer.checkpoint import Checkpoints, compare, flatten_state, unflatten_state
from jaxformer.data import images
from jaxformer.errors import UserError
from jaxformer.models.attention_paths import AttentionPaths
from jaxformer.partition import Partition
from jaxformer.records import Workdir, environment
from jaxformer.tasks.oneshot import OneShot, episodes
from jaxformer.tasks.source import Heldout
from jaxformer.tasks.task import Batch
from jaxformer.training import population as populations
from jaxformer.training import progress
from jaxformer.training.loop import fit
from jaxformer.training.session import Session
from jaxformer.training.setup import Setup


@dataclass(frozen=True, eq=False)
class Episodes:
    """What `Source` is to token tasks: classes, not examples, are held out."""

    task: OneShot
    validation: OneShot
    test: OneShot
    ood: dict[str, OneShot]
    key: jax.Array
    batch_size: int
    validation_size: int
    test_size: int

    def heldout(self) -> Heldout:
        test = episodes(self.test, jax.random.fold_in(self.key, 0), 0, self.test_size)
        chosen_on = episodes(
            self.validation, jax.random.fold_in(self.key, 1), 0, self.validation_size
        )
        return Heldout(test, chosen_on, jnp.zeros(1, jnp.uint32))

    def unlike(self) -> dict[str, Batch]:
        """The out-of-distribution test sets."""
        key = jax.random.fold_in(self.key, 2)
        return {name: episodes(task, key, 0, self.test_size) for name, task in self.ood.items()}

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        def one(place):
            return self.task.example(jax.random.fold_in(member_key, place), place)

        places = jnp.asarray(step, jnp.uint32) * self.batch_size
        return jax.vmap(one)(places + jnp.arange(self.batch_size, dtype=jnp.uint32))


class EpisodeSetup(Setup):
    """Like Setup, except that tokens are vectors and the network answers with a number."""

    def init(self, key: jax.Array) -> Any:
        empty = jnp.zeros((1, self.task.length, self.task.dimension))  # type: ignore[attr-defined]
        return self.model.init(key, empty)["params"]

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array | None) -> jax.Array:
        return self.model.apply({"params": params}, tokens)


def setup(config) -> EpisodeSetup:
    """Images read, split and checked; nothing is compiled."""
    if build.x64():
        raise UserError("training runs in float32; switch JAX_ENABLE_X64 off.")
    data, bayes = config.data, config.bayes
    for name in ("steps", "log_every", "eval_every", "batch_size"):
        if config.train[name] < 1:
            raise UserError(f"train.{name} must be at least 1, got {config.train[name]}.")
    if not bayes.widths or not bayes.temperatures or min(bayes.temperatures) <= 0:
        raise UserError("bayes needs widths, and temperatures above 0.")
    if not config.model.heads or min(config.model.heads) < 1:
        raise UserError(f"model.heads must be whole numbers above 0, got {config.model.heads}.")
    if len(data.classes) != 3:
        raise UserError(
            f"data.classes must be three numbers, for training, validation and test; got "
            f"{tuple(data.classes)}."
        )
    sizes = {"per_class": data.per_class, "size": data.size}
    held = images.load(data.images, data.paths, sum(data.classes), **sizes)
    train, validation, test = (
        OneShot(part, data.patch) for part in images.split(held, data.classes, data.seed)
    )
    ood = {
        name: OneShot(images.load(name, (), 2, seed=1, **sizes), data.patch, shuffled=False)
        for name in data.ood
    }
    source: Any = Episodes(
        train,
        validation,
        test,
        ood,
        jax.random.key(data.seed),
        config.train.batch_size,
        data.validation_size,
        data.test_size,
    )
    partition = build.partition(config)
    built = EpisodeSetup(
        task=train,
        model=AttentionPaths(
            tuple(config.model.heads),
            config.model.width,
            config.model.query_width,
            readout="mean",
            parameterization="standard",
        ),
        partition=partition,
        tx=build.optimizer(config, partition),
        source=source,
        members=populations.population(config.seed, config.n_seeds, config.optim.learning_rate),
        how=config.train.members,
        mesh=sharding.make_mesh(**config.devices),
    )
    sharding.check_batch(config.train.batch_size, built.mesh.shape)
    partition.labels(built.shapes())
    return built


def run(config, workdir: Workdir) -> int:
    built, clock = setup(config), progress.Stopwatch()
    describe.print_labels(built.partition, built.shapes())
    with Checkpoints(workdir / "ckpt") as checkpoints, progress.Interrupt() as interrupt:
        state = built.create()
        if (found := checkpoints.restore()) is not None:
            compare(found.arrays, flatten_state(state), f"the checkpoint of step {found.step}")
            state = sharding.place(unflatten_state(found.arrays, state), state)
            clock.add(found.note["seconds"])
            print(f"resuming from step {found.step}")
        workdir.cut(int(state.step))
        session = Session(config, built, workdir, checkpoints, interrupt, clock)
        if not session.finished(int(state.step)):
            state = fit(
                state,
                built.step(),
                built.batch_at(session.heldout.fingerprints),
                steps=config.train.steps,
                record=session.record,
                hooks=session.hooks(int(state.step)),
                align=config.train.log_every,
            )
        checkpoints.wait()
        diverged = np.asarray(state.diverged_at)
        if (diverged >= 0).any():
            raise UserError(
                f"the loss was not finite at step {diverged.max()}; try a lower "
                "--config.optim.learning_rate."
            )
        if not session.finished(int(state.step)):
            print(f"stopped; step {checkpoints.latest()} is saved, the same command goes on.")
            return 128 + interrupt.signal
        networks = _networks(built, session, state)
        studied = []
        for number, network in enumerate(networks):
            print(f"theory of network {number + 1} of {len(networks)}", flush=True)
            studied.append(study(built.model, network.params, _data(config, built, network)))
            if interrupt.signal:
                print("stopped; the network is saved, the same command goes on.")
                return 128 + interrupt.signal
    metrics, arrays = summarise(studied)
    result = _result(config, workdir, built, session, networks, studied, metrics)
    write_arrays(workdir, arrays)
    plots.save(draw_figure(studied, metrics, tuple(config.model.heads)), workdir / "figure.png")
    runs = {config.name: workdir.rows()}
    chosen = {config.name: [member["chosen"] for member in result["members"]]}
    plots.curves(workdir / "curves.png", runs, result["baselines"], chosen)
    workdir.write("result.json", result | {"seconds": clock.seconds()})
    report(workdir)
    return 0


report = describe.print_result


class Network(NamedTuple):
    """A member with the learning rate that validation chose."""

    index: int
    seed: int
    params: Any


def _networks(built: Setup, session: Session, state) -> list[Network]:
    rows = [row for row in session.workdir.rows() if "validation" in row]
    chosen = built.members.choose(rows[-1]["validation"]["accuracy"])
    params = jax.device_get(Partition.merge(state.trainable, state.frozen))
    return [
        Network(i, seed, jax.tree.map(lambda leaf, i=i: leaf[i], params))
        for i, (seed, _) in enumerate(built.members.members)
        if chosen[i]
    ]


def _data(config, built: Setup, network: Network) -> dict[str, Any]:
    """Episodes for the Bayesian network: its own training set, the common held-out ones."""
    source: Any = built.source
    key = jax.random.fold_in(built.members.data_keys()[network.index], 2)
    heldout = source.heldout()
    return {
        "train": episodes(source.task, key, 0, config.bayes.examples),
        "validation": heldout.validation,
        "test": heldout.test,
        "ood": source.unlike(),
        "widths": tuple(config.bayes.widths),
        "temperatures": tuple(config.bayes.temperatures),
    }


def _result(config, workdir, built, session, networks, studied, metrics) -> dict[str, Any]:
    held = workdir.read("config.json")
    kept = {network.index: found for network, found in zip(networks, studied)}
    heldout, unlike = jax.device_get((session.heldout, built.source.unlike()))
    baselines = built.task.baselines(heldout.test)
    for name, batch in unlike.items():
        scores = built.source.ood[name].baselines(batch)
        baselines |= {f"{name}_{what}": value for what, value in scores.items()}
    return {
        **{name: held[name] for name in ("config", "overrides", "config_hash")},
        "scale": config.arguments.scale,
        "seeds": [network.seed for network in networks],
        "steps": config.train.steps,
        "metrics": metrics,
        "members": [
            {
                "seed": seed,
                "learning_rate": rate,
                "chosen": i in kept,
                "metrics": kept[i].metrics if i in kept else {},
                "temperature": kept[i].chosen if i in kept else None,
                "diverged_at": None,
            }
            for i, (seed, rate) in enumerate(built.members.members)
        ],
        "baselines": baselines,
        "parameters": built.partition.count(built.shapes()),
        "environment": environment(),
    }


def dry_run(config) -> None:
    """Prints what a run would train and solve."""
    built = setup(config)
    describe.print_labels(built.partition, built.shapes())
    print(*(f"  {name}: {value}" for name, value in built.task.describe().items()), sep="\n")
    paths = math.prod(config.model.heads)
    solves = config.n_seeds * len(config.bayes.widths) * len(config.bayes.temperatures)
    print(
        f"would train {len(built.members.members)} networks for {config.train.steps} steps and "
        f"solve {solves} order parameters of {paths} paths from {config.bayes.examples} examples"
    )
