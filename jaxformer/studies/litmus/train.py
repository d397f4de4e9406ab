"""`jaxformer.litmus`: trains the variants of a decoder on a task and judges them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxformer import api, build
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings
from jaxformer.core.variants import VARIANTS, label
from jaxformer.io.atomic_files import json_value
from jaxformer.studies.litmus import rule
from jaxformer.studies.litmus.report import Litmus, make_litmus
from jaxformer.studies.variants import variant_of_decoder
from jaxformer.tasks import heldout
from jaxformer.tasks.heldout import default_data
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Task

TRAINED_VARIANTS = ("standard", "frozen_qk", "mixit", "random")
REQUIRED_VARIANTS = {"standard", "mixit"}
# Learning rates of the variants. Frozen parts need higher ones.
DEFAULT_RATE = 3e-3
DEFAULT_RATES = {"frozen_qk": 1e-2, "random": 3e-2, "random_mixit": 3e-2}


def litmus(
    task: Task,
    *,
    steps: int = 300,
    seeds: int | Sequence[int] = 3,
    learning_rate: float | Sequence[float] | None = None,
    batch_size: int = 64,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    causal: bool = True,
    variants: Sequence[str] = TRAINED_VARIANTS,
    name: str = "",
    workdir: str | Path | None = None,
    progress: bool = True,
    **arguments: Any,
) -> Litmus:
    """Tests whether a task needs attention that looks at the content.

    Trains a decoder whole (`standard`), with frozen random queries and keys (`frozen_qk`), with
    fixed random mixing instead of attention (`mixit`), and with trained embeddings only (`random`).
    `jaxformer litmus --help` has the rule that compares their accuracies with 95 % intervals.

    Example:

        import jaxformer
        from jaxformer.tasks.retrieval import Retrieval

        verdict = jaxformer.litmus(Retrieval(max_pairs=6, vocab=32))
        print(verdict.sentence)
        print(verdict.table)
        verdict.plot("litmus.png")

    Args:
      task: a task of `jaxformer.tasks` or your own, with at least one trivial predictor in its
        `baselines`.
      steps: the training steps of each network. Default 300.
      seeds: a number of seeds, or a list of them. Default 3.
      learning_rate: one, or several among which validation chooses for each variant. Default 3e-3,
        for `frozen_qk` 1e-2 and for `random` 3e-2.
      batch_size: examples per step and network. Default 64.
      width: the width of the decoder. Its MLPs are four times as wide. Default 64.
      layers: the number of blocks. Default 2.
      heads: the heads of a block. Default 4.
      causal: whether a token attends to earlier positions only. Default True.
      variants: the variants to train, at least standard and mixit.
      name: the name of the task in the sentence. Default: the class of the task.
      workdir: a folder for the run of each variant, litmus.json and litmus.png. Repeating the call
        resumes unfinished runs. Default: nothing is saved.
      progress: whether to print a line for each variant and a progress line. Default True.
      **arguments: further arguments of `jaxformer.train`, such as `data`, `devices` or `target`
        (default .99: training stops when validation reaches this accuracy).

    Returns:
      A `Litmus`: `sentence`, `verdict`, `table`, `rows`, `plot()`.

    Raises:
      UserError: `task` is no Task or has no trivial predictor, or an argument is wrong.
    """
    _check(task, variants)
    data = arguments.get("data")
    if data is None:  # chosen once, so that a note about a small task is printed once
        data, source = default_data(task, batch_size)
    else:
        source = make_source(task, data, batch_size) if isinstance(data, DataSettings) else data
    rule.strongest(heldout.draw(task, source).baselines)  # raises before anything is trained
    root = None if workdir is None else Path(workdir)
    arguments = {"target": 0.99} | arguments | {"data": data}
    trained, baselines = {}, {}
    for variant in dict.fromkeys(variants):
        if progress:
            print(f"{label(variant)}:", flush=True)
        _, rules = VARIANTS[variant]
        sizes = {"width": width, "layers": layers, "heads": heads, "causal": causal}
        default_rate = DEFAULT_RATES.get(variant, DEFAULT_RATE)
        run = api.train(
            task,
            variant_of_decoder(variant, task, **sizes),
            Partition(rules),
            steps=steps,
            batch_size=batch_size,
            learning_rate=default_rate if learning_rate is None else learning_rate,
            seeds=seeds,
            workdir=None if root is None else root / variant,
            progress=progress,
            **arguments,
        )
        trained[variant] = rule.read(json_value(run.result.as_json()), run.folder)
        baselines = baselines or run.result.baselines
    answer = make_litmus(name or _name(task), "", trained, rule.strongest(baselines))
    if root is not None:
        answer.save(root)
    return answer


def _check(task: Any, variants: Sequence[str]) -> None:
    """Raises UserError before anything is trained."""
    if not isinstance(task, Task):
        raise UserError(
            f"litmus needs a task of jaxformer.tasks or a subclass of Task, got {task!r:.100}. "
            "`jaxformer litmus NAME` tests a task of configs/."
        )
    for variant in variants:
        check_choice("variant", variant, VARIANTS)
    if missing := REQUIRED_VARIANTS - {*variants}:
        raise UserError(f"variants must contain standard and mixit; {missing.pop()} is missing.")


def _name(task: Task) -> str:
    names = {kind: name for name, kind in build.TASKS.items()}
    return names.get(type(task), type(task).__name__)
