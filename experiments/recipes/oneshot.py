"""Trains attention paths on one-shot episodes, then applies the theory to the trained heads.

Networks and theory are those of arXiv 2405.15926. The theory describes a Bayesian network with
fixed queries and keys by its order parameter U, a matrix over pairs of attention paths.

images -> episodes -> train queries, keys and values -> freeze queries and keys -> order parameter,
GP limit and temperature scan -> head scores and pruning -> record
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
from jaxformer.training.cost import memory
from jaxformer.training.phases import Phase
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases


def run(config, workdir: Workdir) -> int:
    settings = build.settings(config)
    trained = train_phases(phases_of(config), settings, workdir, announce=describe.announce)
    if code := trained.exit_code():
        return code
    params, model = jax.device_get(trained.params), trained.session.setup.model
    has_best_rate = trained.session.chosen(trained.state)  # of each member
    members = [i for i, is_best in enumerate(has_best_rate) if is_best]
    studies: dict[int, Study] = {}  # by member
    with Interrupt() as interrupt:
        for number, i in enumerate(members, 1):
            print(f"theory of network {number} of {len(members)}", flush=True)
            folder, data = workdir / f"studies/{i:06d}", _study_data(config, trained, i)
            network = jax.tree.map(lambda leaf, i=i: leaf[i], params)
            network_study = _study(model, network, data, folder, interrupt)
            if network_study is None:
                return 128 + interrupt.signal
            studies[i] = network_study
            if interrupt.signal:
                print(
                    f"stopped; network {number} is saved. Run the same command again: it resumes."
                )
                return 128 + interrupt.signal
    metrics, arrays = summarise([*studies.values()])
    finish_run.write_arrays(workdir, arrays)
    result = _with_studies(trained, studies)
    finish_run.draw_curves(workdir, config.name, result)
    finish_run.write(workdir, dataclasses.replace(result, metrics=metrics), redraw)
    tidy(workdir)
    return 0


def tidy(workdir: Workdir) -> None:
    """Deletes the study files of a finished run, whose arrays are in arrays.npz."""
    shutil.rmtree(workdir / "studies", ignore_errors=True)


def figure(config, arrays):
    """Draws the figure from the arrays of a run."""
    return draw(arrays, tuple(config.model.heads))


redraw = finish_run.make_redraw(figure)


def phases_of(config) -> list[Phase]:
    """Reads, splits and checks the images; returns the phases of training. Compiles nothing."""
    data, bayes = config.data, config.bayes
    if not bayes.widths or not bayes.temperatures or min(bayes.temperatures) <= 0:
        raise UserError("bayes needs widths, and temperatures above 0.")
    check_range("bayes.examples", bayes.examples, 1)
    check_range("the smallest of bayes.widths", min(bayes.widths), 1)
    check_range("bayes.draws", bayes.draws, 0)
    if 0 < bayes.draws < 8:
        raise UserError(f"bayes.draws must be 0, or at least 8 for two chains, got {bayes.draws}.")
    if not config.model.heads or min(config.model.heads) < 1:
        raise UserError(f"model.heads must be whole numbers above 0, got {config.model.heads}.")
    if len(data.classes) != 3:
        raise UserError(
            f"data.classes must be three numbers, for training, validation and test, got "
            f"{tuple(data.classes)}."
        )
    load_options = {"per_class": data.per_class, "size": data.size, "prepared": data.folder}
    loaded = images.load(data.images, data.paths, sum(data.classes), **load_options)
    parts = images.split(loaded, data.classes, data.seed)
    train_task, validation_task, test_task = (OneShot(part, data.patch) for part in parts)
    # Test tasks out of distribution: each has the images of another collection.
    ood = {
        name: OneShot(
            images.load(name, classes=2, seed=1, **load_options), data.patch, shuffled=False
        )
        for name in data.ood
    }
    episode_counts = (config.train.batch_size, data.validation_size, data.test_size)
    key = jax.random.key(data.seed)
    source = Episodes(train_task, validation_task, test_task, ood, key, *episode_counts)
    model = build.model(config, train_task)
    return build.phases(config, build.setup(config, train_task, model, source))


def _study(model, network, data, folder: Path, interrupt: Interrupt) -> Study | None:
    """Returns the study of one network, from its file if there is one.

    Args:
        network: the parameters of one member.
        data: the keyword arguments of `study`, from `_study_data`.
        folder: the folder for draws of the posterior. The file of the study is FOLDER.npz.
        interrupt: the signal handler.

    Returns:
        The study, or None if a signal stopped the sampler.
    """
    file = folder.with_suffix(".npz")
    if file.exists():
        return read_study(file)

    def collect(sampler, draws: int):
        chains = posterior_draws.Chains(sampler, draws)
        return posterior_draws.collect(chains, jax.random.key(0), folder, interrupt, Stopwatch())

    result = study(model, network, data, collect)
    if result is not None:
        write_study(file, result)
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _study_data(config, trained: Trained, member: int) -> dict[str, Any]:
    """Returns the data and settings of a member's study.

    Each member has its own training set; the held-out sets are common to all members.
    """
    setup, source = trained.session.setup, _episodes(trained)
    # The study has other episodes than training, because its key differs.
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


def _with_studies(trained: Trained, studies: dict[int, Study]) -> Result:
    """Returns the result of training with the metrics of each studied member."""
    result, source = trained.result(), _episodes(trained)
    members = [
        dict(
            member,
            metrics=studies[i].metrics if i in studies else {},
            temperature=studies[i].chosen if i in studies else None,
        )
        for i, member in enumerate(result.members)
    ]
    baselines = {
        f"{name}_{baseline}": value
        for name, batch in jax.device_get(source.out_of_distribution()).items()
        for baseline, value in source.ood[name].baselines(batch).items()
    }
    return dataclasses.replace(result, members=members, baselines={**result.baselines, **baselines})


def dry_run(config) -> None:
    phases = phases_of(config)
    setup = phases[0].setup
    describe.announce(setup)
    memory.check_memory(phases)
    task: Any = setup.task
    classes, per_class = task.images.pixels_CxKxSxS.shape[:2]
    print(f"  classes: {classes}\n  images a class: {per_class}\n  patch: {task.patch}")
    paths = math.prod(config.model.heads)
    solves = config.n_seeds * len(config.bayes.widths) * len(config.bayes.temperatures)
    print(
        f"would train {len(setup.population.members)} networks for {config.train.steps} steps and "
        f"solve {solves} order parameters of {paths} paths from {config.bayes.examples} examples"
    )
    if config.bayes.draws:
        print(f"would sample {config.bayes.draws} draws of the exact posterior for each network")
