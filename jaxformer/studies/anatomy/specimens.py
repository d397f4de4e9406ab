"""The door of `examine`: a trained network, however it is named, becomes a `Specimen`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxformer import build, loading
from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.models.pretrained import text
from jaxformer.studies.anatomy import sources
from jaxformer.studies.anatomy.pairs import (
    PromptPairs,
    pairs_of_answers,
    pairs_of_examples,
    pairs_of_task,
    read_pairs,
)
from jaxformer.studies.anatomy.study import Study
from jaxformer.studies.anatomy.subject import check_task
from jaxformer.tasks.task import Task
from jaxformer.training.run_view import Run

# What the answers of a network are read from: a task, pairs, or a file of pairs.
Prompts = Task | PromptPairs | str | Path


MAX_NETWORKS = 5  # seeds of one network that are examined


class Specimen(NamedTuple):
    """A trained network and the pairs of prompts on which it is examined."""

    name: str
    model: Any
    params: Any
    pairs: PromptPairs
    initial: Any = None  # the parameters before training; None if they are unknown
    others: Sequence[Any] = ()  # the parameters of the same network, trained with other seeds


def specimen_of(source: Any, params: Any = None, prompts: Prompts | None = None) -> Specimen:
    """The specimen of a model with its parameters, a run or a published model."""
    if isinstance(source, Run):
        return of_open_run(source, prompts)
    if isinstance(source, str | Path):
        if params is not None:
            raise UserError(f"{source} has its own parameters: leave params out.")
        if str(source).startswith(known.PREFIX):
            return of_known(str(source), prompts)
        folder = Path(source)
        is_run = (folder / "config.json").is_file() and not loading.is_published(source)
        return of_run(folder, prompts) if is_run else of_published(str(source), prompts)
    if params is None:
        raise UserError(
            "expected a Run, the folder of a run, a published model, or a model with its "
            f"parameters, got {type(source).__name__} alone: {source!r:.100}."
        )
    name = type(source).__name__
    return Specimen(name, source, params, _pairs(prompts, name))


def of_known(name: str, prompts: Prompts | None) -> Specimen:
    """The specimen of a network of hand-set weights, such as "known:copy", on its own prompts."""
    network = known.network(name)
    pairs = pairs_of_answers(network.clean, network.corrupted, network.answers)
    pairs = pairs if prompts is None else _pairs(prompts, name)
    return Specimen(name, network.model, network.params, pairs)


def of_published(name: str, prompts: Prompts | None) -> Specimen:
    """The specimen of a folder, a GGUF file, "package:NAME" or a name on the hub."""
    if isinstance(prompts, str | Path):
        if not Path(prompts).is_file():
            raise UserError(f"--prompts: there is no file {str(prompts)!r}.")
        folder = loading.published(name)
        if folder is None:
            raise UserError(f"{name} is no published model.")
        model, params, _ = loading.load(name)
        tokenizer = text.tokenizer_of(folder, model.spec.vocab_size)
        pairs = read_pairs(prompts, tokenizer, model.spec.causal)
        return Specimen(name, model, params, pairs)
    pairs = _pairs(prompts, name)
    return Specimen(name, *loading.load(name)[:2], pairs)


def of_open_run(run: Run, prompts: Prompts | None) -> Specimen:
    """The specimen of a `Run`; its network need not be saved if this process has trained it."""
    if run.trained is None:
        assert run.folder is not None
        return of_run(run.folder, prompts)
    session = run.trained.session
    setup = session.setup
    if prompts is None:
        pairs = pairs_of_examples(setup.task, session.heldout.test)
    else:
        pairs = _pairs(prompts, run.name)
    key = setup.population.init_keys()[run.chosen()[0]]
    initial = loading.initial_params(setup.model, setup.task, key)
    return Specimen(run.name, setup.model, run.params, pairs, initial)


def of_run(folder: Path, prompts: Prompts | None = None) -> Specimen:
    """The specimen of a run's folder, by default on the test set of its own task."""
    loaded = loading.load_run(folder)
    # The initial values can be drawn again if the config of the run can build its task.
    can_draw = build.has_known_task(loaded.config)
    initial = loading.params_at_start(loaded) if can_draw else None
    task = None
    if isinstance(prompts, Task) and build.has_task(loaded.config, prompts):
        task, prompts = prompts, None
    if prompts is None:
        pairs = pairs_of_examples(*sources.heldout_of_run(folder, loaded.model, task))
    else:
        pairs = _pairs(prompts, folder.name)
    return Specimen(folder.name, loaded.model, loaded.params, pairs, initial)


def of_study(study: Study) -> Specimen:
    """The specimen of a study: the run that it explains, or the whole networks that it trained."""
    subject, network = study.subject, study.subject.network
    pairs = pairs_of_examples(subject.task, subject.drawn.sets.test)
    if subject.run is not None:
        return of_run(subject.run, pairs)
    key = jax.random.fold_in(jax.random.key(0), 0)  # the key of the member with seed 0
    params, initial = study.whole_params(), network.init(key)
    others = study.other_params(MAX_NETWORKS - 1)
    return Specimen(subject.name, network.model, params, pairs, initial, others)


def _pairs(prompts: Prompts | None, name: str) -> PromptPairs:
    """The pairs of a network that has neither a task nor a tokenizer of its own."""
    if isinstance(prompts, PromptPairs):
        return prompts
    if prompts is None or isinstance(prompts, str | Path):
        raise UserError(
            f"{name} has no prompts of its own and no tokenizer: give prompts=TASK or the pairs "
            "of jaxformer.studies.anatomy.pairs. Only published models read a file of prompts."
        )
    check_task(prompts)
    return pairs_of_task(prompts)
