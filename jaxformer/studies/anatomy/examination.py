"""Examines a trained network: its components, and the attention of the heads that matter."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxformer import loading
from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy import components, inside
from jaxformer.studies.anatomy.pairs import PromptPairs, read_pairs
from jaxformer.studies.anatomy.report import Report

MAX_HEADS = 4  # the number of heads whose attention is drawn


def of_model(
    source: str | Path, prompts: str | Path, write_line: Callable[[str], None], heads: bool = True
) -> Report:
    """Returns the report of a published model on pairs of prompts.

    Args:
      source: a folder, a GGUF file, "package:NAME" or a name on the hub.
      prompts: a file. Each line has a clean and a corrupted prompt, the right answer and the wrong
        one, separated by tabs.
      write_line: prints a line.
      heads: whether each head is measured, besides attention and MLP.
    """
    from jaxformer.models.pretrained import text

    if not Path(prompts).is_file():
        raise UserError(f"--prompts: there is no file {str(prompts)!r}.")
    folder = loading.published(source)
    if folder is None:
        raise UserError(f"{source} is no published model.")
    model, params, _ = loading.load(source)
    pairs = read_pairs(prompts, text.tokenizer_of(folder, model.spec.vocab_size))
    write_line(f"{source}: {len(pairs)} pairs of prompts, {model.spec.layers} blocks")
    settings = {"layers": model.spec.layers}
    report = Report(str(source), settings=settings)
    return with_inside(report, model, params, pairs, write_line, heads=heads)


def with_inside(
    report: Report,
    model: Any,
    params: Any,
    pairs: PromptPairs,
    write_line: Callable[[str], None],
    initial: Any = None,
    heads: bool = True,
) -> Report:
    """Returns the report with the effects of a network's components and the attention of heads.

    Args:
      report: the report so far.
      model: the model.
      params: its parameters.
      pairs: clean and corrupted prompts.
      write_line: prints a line.
      initial: the parameters before training; None if they are unknown.
      heads: whether each head is measured, besides attention and MLP.
    """

    def progress(done: int, steps: int) -> None:
        if done == steps or done % max(steps // 10, 1) == 0:
            write_line(f"  inside: {done} of {steps}")

    options: dict[str, Any] = {"heads": heads, "initial": initial, "progress": progress}
    report = replace(report, inside=inside.examine(model, params, pairs, **options))
    parts = [effect.part for _, effect in report.effect_sentences]
    heads_to_draw = [part for part in parts if "head_" in part][:MAX_HEADS]
    tokens = pairs.tokens[: components.MAX_PROMPTS]
    drawn = first_pairs(pairs, components.MAX_PROMPTS)
    maps = inside.attention_maps(model, params, drawn, heads_to_draw) if heads_to_draw else {}
    return replace(report, maps=maps, tokens=tokens)


def first_pairs(pairs: PromptPairs, n: int) -> PromptPairs:
    """Returns the first n pairs."""
    return PromptPairs(**{name: value[:n] for name, value in vars(pairs).items()})
