"""`jaxformer.litmus`: trains the variants of a decoder on a task and judges them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxformer import api, build
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings
from jaxformer.core.variants import VARIANTS, label
from jaxformer.io.atomic_files import json_value
from jaxformer.stats import controls
from jaxformer.studies.budget import Spent
from jaxformer.studies.litmus import rule
from jaxformer.studies.litmus.report import Litmus, make_litmus
from jaxformer.studies.variants import variant_of_decoder
from jaxformer.tasks import heldout
from jaxformer.tasks.heldout import default_data
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Task
from jaxformer.training.run_view import Run

TRAINED_VARIANTS = ("standard", "frozen_qk", "mixit", "random")
REQUIRED_VARIANTS = {"standard", "mixit"}
# Learning rates among which one seed of a variant chooses. Frozen parts need higher ones.
RATES = (1e-3, 3e-3, 1e-2)
HIGHER_RATES = {
    "frozen_qk": (3e-3, 1e-2, 3e-2),
    "random": (1e-2, 3e-2, 1e-1),
    "random_mixit": (1e-2, 3e-2, 1e-1),
}


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
    budget: float = math.inf,
    progress: bool = True,
    **arguments: Any,
) -> Litmus:
    """Tests whether a task needs attention that looks at the content.

    Trains a decoder whole (`standard`), with frozen random queries and keys (`frozen_qk`), with
    fixed random mixing instead of attention (`mixit`), and with trained embeddings only (`random`).
    `jaxformer litmus --help` has the rule that compares their accuracies with 95 % intervals. One
    seed chooses the learning rate of each variant. A variant that scores less than Standard runs
    again with twice and four times its steps before it is judged; one that was not shown to be
    trained decides nothing.

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
      learning_rate: several, among which validation chooses for each variant, with a further one
        beyond their ends if the best lies there; or one, with which no variant that loses counts.
        Default 1e-3, 3e-3 and 1e-2; for `frozen_qk` three times and for `random` ten times these.
      batch_size: examples per step and network. Default 64.
      width: the width of the decoder. Its MLPs are four times as wide. Default 64.
      layers: the number of blocks. Default 2.
      heads: the heads of a block. Default 4.
      causal: whether a token attends to earlier positions only. Default True.
      variants: the variants to train, at least standard and mixit.
      name: the name of the task in the sentence. Default: the class of the task.
      workdir: a folder for the run of each variant, litmus.json and litmus.png. Repeating the call
        resumes unfinished runs. Default: nothing is saved.
      budget: seconds of training, as `jaxformer.anatomy` counts them. Longer runs that it does not
        allow leave a variant "not trained within the budget". Default: no limit.
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
    seed_list = [*range(seeds)] if isinstance(seeds, int) else [*seeds]
    sizes = {"width": width, "layers": layers, "heads": heads, "causal": causal}

    def train(variant: str, folder: str, **more: Any) -> Run:
        """Trains a variant in a folder of its own."""
        return api.train(
            task,
            variant_of_decoder(variant, task, **sizes),
            Partition(VARIANTS[variant].rules),
            batch_size=batch_size,
            workdir=None if root is None else root / folder,
            progress=progress,
            **more,
            **arguments,
        )

    def rates_of(variant: str) -> list[float]:
        if learning_rate is None:
            return [*HIGHER_RATES.get(variant, RATES)]
        return [learning_rate] if isinstance(learning_rate, int | float) else [*learning_rate]

    spent = Spent()
    runs: dict[str, rule.Runs] = {}
    trivial = ("", math.nan)
    for variant in dict.fromkeys(variants):
        if progress:
            print(f"{label(variant)}:", flush=True)
        tries, rates = [], rates_of(variant)
        if len(rates) > 1:
            tries = _tries(variant, rates, train, steps=steps, seeds=seed_list[:1])
            rates = [member["learning_rate"] for member in tries if member["chosen"]]
        run = train(variant, variant, steps=steps, seeds=seed_list, learning_rate=rates[0])
        runs[variant] = rule.Runs({1: json_value(run.result.as_json())}, run.folder, tries)
        trivial = rule.strongest(run.result.baselines)
    for variant in runs:
        # A run of twice the steps, and one of four times if the rule asks for it.
        while due := rule.next_run(runs[variant], runs["standard"], trivial[1]):
            times, least_seeds = due
            if spent.seconds() > budget:
                runs[variant] = runs[variant]._replace(missing=controls.WITHIN_BUDGET)
                break
            if progress:
                print(f"{label(variant)}, {times} times the steps:", flush=True)
            (rate,) = {m["learning_rate"] for m in runs[variant].results[1]["members"]}
            run = train(
                variant,
                f"{variant}-steps{times}x",
                steps=times * steps,
                seeds=_at_least(seed_list, least_seeds),
                learning_rate=rate,
            )
            results = {**runs[variant].results, times: json_value(run.result.as_json())}
            runs[variant] = runs[variant]._replace(results=results)
    answer = make_litmus(name or _name(task), "", runs, trivial)
    if root is not None:
        answer.save(root)
    return answer


def _tries(
    variant: str, rates: Sequence[float], train: Callable[..., Run], **options: Any
) -> list[dict[str, Any]]:
    """The members of one seed at several rates, of which the best one is `chosen`.

    Where the best rate lies at an end, the next one beyond it is tried, unless the task is solved.
    """
    members: list[dict[str, Any]] = []
    due, tried = [*rates], [*rates]
    while due:
        folder = f"{variant}-rates" + (f"-{due[0]:g}" if members else "")
        run = train(variant, folder, learning_rate=due, **options)
        members += json_value(run.result.as_json())["members"]
        best = max(members, key=_validation)
        members = [{**member, "chosen": member is best} for member in members]
        is_solved = _validation(best) >= controls.SOLVED
        further = controls.rate_beyond(rates, tried, best["learning_rate"])
        due = [] if further is None or is_solved else [further]
        tried += due
    return members


def _validation(member: Mapping[str, Any]) -> float:
    value = member.get("validation_accuracy")
    if value is None or member.get("diverged_at") is not None:
        return -math.inf
    return float(value)


def _at_least(seeds: Sequence[int], n: int) -> list[int]:
    """The seeds, and as many further ones as are needed."""
    more = (seed for seed in itertools.count() if seed not in seeds)
    return [*seeds, *itertools.islice(more, max(n - len(seeds), 0))]


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
