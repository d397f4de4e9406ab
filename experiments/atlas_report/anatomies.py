"""The anatomies of an atlas: one network for all tasks, trained and examined task by task."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.atlas_report import table
from experiments.atlas_report.tasks import TASKS
from experiments.cli import flags
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.studies.anatomy import findings, retraining, study, subject
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.store import Store
from jaxformer.tasks.recall import Recall
from jaxformer.tasks.task import Task


class Scale(NamedTuple):
    """The network and its training, which all tasks share."""

    width: int
    layers: int
    heads: int
    steps: int
    rates: tuple[float, ...]


SCALES = {
    # Three rates, so that a loser can be shown to be trained; an anatomy goes beyond their ends.
    "tiny": Scale(32, 2, 4, 400, (3e-3, 1e-2, 3e-2)),
    "small": Scale(64, 2, 4, 1000, (1e-3, 3e-3, 1e-2)),
    "medium": Scale(128, 4, 4, 3000, (3e-4, 1e-3, 3e-3)),
}
# Tasks of the library, at the size of their tiny configs.
OF_CONFIGS = ("retrieval", "hops", "dyck", "addition", "modular_addition", "memorization")
RECALL = Recall(n_symbols=16, context=16, alpha=0.0, statistics="uniform", exclude_triggers=True)
NAMES = (*TASKS, *OF_CONFIGS, "recall")


def _config(name: str) -> Any:
    return flags.load_config(f"configs/mixit/{name}.py:scale=tiny")


def task(name: str) -> Task:
    if name in OF_CONFIGS:
        return build.task(_config(name))
    return RECALL if name == "recall" else TASKS[name]


def data(name: str) -> DataSettings | None:
    """The sizes of a task's data sets; None: the default ones."""
    if name != "modular_addition":
        return None
    return DataSettings(**_config(name).data)  # it has 289 examples, so its sets are small


def study_of(name: str, scale: Scale, folder: Path, seeds: int) -> study.Study:
    """The study of a task, whose members are kept in a folder."""
    sizes: dict[str, Any] = {"width": scale.width, "layers": scale.layers, "heads": scale.heads}
    sizes |= {"steps": scale.steps, "rates": scale.rates, "data": data(name)}
    what = subject.of_task(task(name), name=name, **sizes)
    store = Store(retraining.members_folder(folder, what))
    return study.Study(what, table.variants(scale.layers), store, seeds)


def train(found: study.Study, folder: Path, is_stopped: Callable[[], bool]) -> Report | None:
    """Trains what is missing; returns the report, None if the task was not learned.

    A report that was examined before is replaced only if its comparisons changed.
    """
    try:
        study.run(found, math.inf, is_stopped=is_stopped)
    except UserError as error:
        if found.cell(study.WHOLE_NETWORK) is None:
            raise
        print(f"  {error}", flush=True)
        return None
    report = findings.report_of(found)
    if not is_examined(report, folder):
        report.save(folder)
    return report


def is_examined(report: Report, folder: Path) -> bool:
    """Whether a folder has the look inside the networks of this report."""
    file = folder / "anatomy.json"
    if not file.exists():
        return False
    stored = json.loads(file.read_bytes())
    same = json.loads(json.dumps(report.table, default=str)) == stored["table"]
    return same and stored.get("examined") is not None


def examine(found: study.Study, report: Report, folder: Path) -> Report:
    """Adds the look inside the trained networks and saves the report."""
    report = findings.with_look_inside(report, found, lambda line: None)
    report.save(folder)
    return report


def not_learned(found: study.Study) -> dict[str, Any]:
    """The row of a task that this network and training do not learn."""
    whole = found.cell(study.WHOLE_NETWORK)
    assert whole is not None
    return {
        "score": whole.score.mean,
        "guessing": found.trivial()[1],
        "is_learned": False,
        "seeds": whole.score.n,
        "cells": {},
        "sentences": [],
        "trainings": len(found.store.members),
    }
