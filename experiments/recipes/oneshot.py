"""Trains attention paths on one-shot episodes, then asks the theory what the network's heads do.

images -> episodes -> train (queries, keys and values learned) -> queries and keys frozen:
order parameter, GP limit, temperature scan -> head scores, pruning -> record
"""

import dataclasses
import math
import shutil
from pathlib import Path
from typing import Any

import jax

from experiments.cli import describe
from experiments.papers.attention_paths.oneshot import draw
from experiments.papers.attention_paths.study import (
    Study,
    read_study,
    study,
    summarise,
    write_study,
)
from experiments.recipes import finish_run, posterior_draws
from jaxformer import build
from jaxformer.core.errors import UserError, check_range
from jaxformer.data import images
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.progress import Interrupt, Stopwatch
from jaxformer.tasks.oneshot import Episodes, OneShot, episodes
from jaxformer.training import cost
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases
from jaxformer.training.setup import Phase


def run(config, workdir: Workdir) -> int:
    settings = build.settings(config)
    trained = train_phases(phases_of(config), settings, workdir, announce=describe.announce)
    if code := trained.exit_code():
        return code
    params, model = jax.device_get(trained.params), trained.session.setup.model
    chosen = [i for i, yes in enumerate(trained.session.chosen(trained.state)) if yes]
    studied: dict[int, Study] = {}  # by member
    with Interrupt() as interrupt:
        for number, i in enumerate(chosen, 1):
            print(f"theory of network {number} of {len(chosen)}", flush=True)
            place = workdir / f"studies/{i:06d}"
            network = jax.tree.map(lambda leaf, i=i: leaf[i], params)
            found = _study(model, network, _data(config, trained, i), place, interrupt)
            if found is None:
                return 128 + interrupt.signal
            studied[i] = found
            if interrupt.signal:
                print("stopped; this network is saved, the same command goes on.")
                return 128 + interrupt.signal
    metrics, arrays = summarise([*studied.values()])
    finish_run.write_arrays(workdir, arrays)
    result = _with_studies(trained, studied)
    finish_run.draw_curves(workdir, config.name, result)
    finish_run.write(workdir, dataclasses.replace(result, metrics=metrics), redraw)
    tidy(workdir)
    return 0


def tidy(workdir: Workdir) -> None:
    """Removes what a finished run does not need; also later, if it was killed before it could."""
    shutil.rmtree(workdir / "studies", ignore_errors=True)


def redraw(workdir: Workdir, name: str = "") -> Path:
    """The figure, here or in a file of another name, from config.json and arrays.npz alone."""
    return finish_run.redraw(workdir, name, lambda *held: {"figure": figure(*held)})


def figure(config, arrays):
    """Of the arrays of a run."""
    return draw(arrays, tuple(config.model.heads))


def phases_of(config) -> list[Phase]:
    """Images read, split and checked; nothing is compiled."""
    data, bayes = config.data, config.bayes
    if not bayes.widths or not bayes.temperatures or min(bayes.temperatures) <= 0:
        raise UserError("bayes needs widths, and temperatures above 0.")
    check_range("bayes.examples", bayes.examples, 1)
    check_range("the smallest of bayes.widths", min(bayes.widths), 1)
    check_range("bayes.draws", bayes.draws, 0)
    if 0 < bayes.draws < 8:
        raise UserError(f"bayes.draws must be 0, or at least 8 for two chains; got {bayes.draws}.")
    if not config.model.heads or min(config.model.heads) < 1:
        raise UserError(f"model.heads must be whole numbers above 0, got {config.model.heads}.")
    if len(data.classes) != 3:
        raise UserError(
            f"data.classes must be three numbers, for training, validation and test; got "
            f"{tuple(data.classes)}."
        )
    sizes = {"per_class": data.per_class, "size": data.size, "prepared": data.folder}
    held = images.load(data.images, data.paths, sum(data.classes), **sizes)
    parts = images.split(held, data.classes, data.seed)
    first, validation, test = (OneShot(part, data.patch) for part in parts)
    ood = {
        name: OneShot(images.load(name, (), 2, seed=1, **sizes), data.patch, shuffled=False)
        for name in data.ood
    }
    counts = (config.train.batch_size, data.validation_size, data.test_size)
    source = Episodes(first, validation, test, ood, jax.random.key(data.seed), *counts)
    return build.phases(config, build.setup(config, first, build.model(config, first), source))


def _study(model, network, data, place: Path, interrupt: Interrupt) -> Study | None:
    """That of one network, from its file if it was made before; its draws are saved on the way."""
    file = place.with_suffix(".npz")
    if file.exists():
        return read_study(file)

    def collect(sampler, each: int):
        asked = posterior_draws.Chains(sampler, each)
        return posterior_draws.collect(asked, jax.random.key(0), place, interrupt, Stopwatch())

    found = study(model, network, data, collect)
    if found is not None:
        write_study(file, found)
        shutil.rmtree(place, ignore_errors=True)
    return found


def _data(config, trained: Trained, member: int) -> dict[str, Any]:
    """Episodes for the Bayesian network: its own training set, the common held-out ones."""
    setup, source = trained.session.setup, _episodes(trained)
    key = jax.random.fold_in(setup.population.data_keys()[member], 2)
    heldout = source.heldout()
    return {
        "train": episodes(source.task, key, 0, config.bayes.examples),
        "validation": heldout.validation,
        "test": heldout.test,
        "ood": source.out_of_distribution(),
        "widths": tuple(config.bayes.widths),
        "temperatures": tuple(config.bayes.temperatures),
        "draws": config.bayes.draws,
    }


def _episodes(trained: Trained) -> Episodes:
    source = trained.session.setup.data
    assert isinstance(source, Episodes)
    return source


def _with_studies(trained: Trained, studied: dict[int, Study]) -> Result:
    """The result of training with what the theory says of each network."""
    result, source = trained.result(), _episodes(trained)
    members = [
        dict(
            member,
            metrics=studied[i].metrics if i in studied else {},
            temperature=studied[i].chosen if i in studied else None,
        )
        for i, member in enumerate(result.members)
    ]
    baselines = {
        f"{name}_{what}": value
        for name, batch in jax.device_get(source.out_of_distribution()).items()
        for what, value in source.ood[name].baselines(batch).items()
    }
    return dataclasses.replace(result, members=members, baselines={**result.baselines, **baselines})


def dry_run(config) -> None:
    phases = phases_of(config)
    setup = phases[0].setup
    describe.announce(setup)
    cost.check_memory(phases)
    first: Any = setup.task
    classes, per_class = first.images.pixels_CxKxSxS.shape[:2]
    print(f"  classes: {classes}\n  images a class: {per_class}\n  patch: {first.patch}")
    paths = math.prod(config.model.heads)
    solves = config.n_seeds * len(config.bayes.widths) * len(config.bayes.temperatures)
    print(
        f"would train {len(setup.population.members)} networks for {config.train.steps} steps and "
        f"solve {solves} order parameters of {paths} paths from {config.bayes.examples} examples"
    )
    if config.bayes.draws:
        print(f"would sample {config.bayes.draws} draws of the exact posterior for each network")
