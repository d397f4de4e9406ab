"""The door of a fine-tuning study: a published model and a prepared text become a report."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.core.settings import DataSettings, TrainSettings
from jaxformer.io.run_folder import config_hash
from jaxformer.loading import load
from jaxformer.models.pretrained.text import Text
from jaxformer.models.pretrained_init import from_params
from jaxformer.models.source import attached
from jaxformer.runtime.progress import Interrupt
from jaxformer.studies.anatomy.judge import MARGIN, SEEDS_AT_LOOK
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member
from jaxformer.studies.anatomy.study import run as run_study
from jaxformer.studies.budget import until_verdicts
from jaxformer.studies.finetuning.report import FinetuningReport
from jaxformer.studies.finetuning.study import Study
from jaxformer.studies.finetuning.training import (
    WEIGHT_DECAY,
    Trainer,
    Tuned,
    of_json,
    warmup,
)
from jaxformer.studies.finetuning.updates import (
    BIASES,
    FULL,
    NORMS,
    RANKS,
    Update,
    chosen_updates,
    updates_of,
)
from jaxformer.tasks.chunked_loss import check_head
from jaxformer.tasks.language import NextToken
from jaxformer.training.arguments import check_fits

BUDGET_SECONDS = 600.0
STEPS, BATCH_SIZE, WINDOW = 50, 4, 128
TEST_TEXTS, VALIDATION_TEXTS = 64, 32
PREPARE = (
    "prepare it with the model's tokenizer, "
    "jaxformer prepare text:FILE --tokenizer=MODEL --out=DIR."
)
TOKENS_COMPARED = 1000  # of a text, with the pieces of the model's tokenizer
LOSS_CHUNK = 128  # positions whose logits are in memory at a time
# The learning rates that each kind of update tries, each about three times the one before.
FULL_RATES, ADAPTER_RATES, VECTOR_RATES = (3e-5, 1e-4, 3e-4), (1e-3, 3e-3, 1e-2), (3e-3, 1e-2, 3e-2)


def study_finetuning(
    source: str | Path,
    tokens: str | Path,
    *,
    window: int = WINDOW,
    steps: int = STEPS,
    batch_size: int = BATCH_SIZE,
    ranks: Sequence[int] = RANKS,
    rates: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    only: Sequence[str] | None = None,
    seeds: int = SEEDS_AT_LOOK[-1],
    budget: float = BUDGET_SECONDS,
    margin: float = MARGIN,
    texts: int = TEST_TEXTS,
    validation_texts: int = VALIDATION_TEXTS,
    folder: Path | None = None,
    write_line: Callable[[str], None] = print,
) -> tuple[FinetuningReport, int]:
    """Trains a published model on a text, each time another part of it; see `jaxformer.anatomy`.

    Args:
        source: the model, as `jaxformer.load` reads it.
        tokens: a text that `jaxformer prepare` wrote with the tokenizer of the model.
        window: tokens of a text, in training and for scores.
        steps: training steps of each member.
        batch_size: texts in a step.
        ranks: the ranks of adapters.
        rates: learning rates that every update tries, or {"full": .., "adapters": ..,
            "vectors": ..}; vectors are norms and biases. With one rate, nothing is chosen.
        only: names of updates, such as "attention, rank 4"; None compares all.
        seeds: the largest number of seeds of an update.
        budget: seconds of training, of the processor on a CPU.
        margin: the share of the gain that an update which is enough may lose.
        texts: held-out texts on which all members are scored.
        validation_texts: other held-out texts, which choose the learning rates.
        folder: the folder for the trained members; None saves nothing.
        write_line: prints a line.

    Returns:
        (the report, the signal that stopped the study or 0)
    """
    check_range("seeds", seeds, 1, 1000)
    check_range("steps", steps, 1)
    if not 0 < margin < 1:
        raise UserError(f"margin must lie between 0 and 1, both excluded, got {margin:g}.")
    for rank in ranks:
        check_range("a rank", rank, 1, 10**6)
    model, params, _ = load(source)
    task = text_of(model, str(tokens), window)
    check_fits(task, model)
    updates = updates_of(params, ranks)
    if only is not None:
        updates = chosen_updates(updates, only)
    data = DataSettings(test_size=texts, validation_size=validation_texts)
    settings = TrainSettings(
        batch_size=batch_size, steps=steps, members="vmap", loss_chunk=loss_chunk(model)
    )
    identity = {
        "model": from_params(model, params).fingerprint(),
        "text": task.prepared.fingerprint,
        "window": window,
        "steps": steps,
        "batch_size": batch_size,
        "warmup": warmup(steps),
        "weight_decay": WEIGHT_DECAY,
        "data": asdict(data),
    }
    if task.prepared.start >= 0:  # texts of other tokenizers keep the names of older folders
        identity["start"] = task.prepared.start
    members = folder and folder / f"members-{config_hash(identity)[:12]}"
    study = Study(
        Trainer(model, params, task, updates, data, settings),
        updates,
        rates_of(rates),
        Store(members, of_json),
        seeds,
        margin,
    )
    name = f"{source} on {task.tokens or 'the packaged chain'}"
    write_line(plan_line(name, study, budget))
    if seeds == 1:
        write_line(
            "note: one seed has no interval, so nothing can be decided; take three seeds or more."
        )
    stopped = train_within(study, budget, write_line)
    trained = [x for x in study.store.members.values() if x.curve]
    return (
        FinetuningReport(
            name,
            study.table(),
            params,
            settings={"steps": steps, "texts in a batch": batch_size},
            costs={
                "trainings": len(trained),
                "seconds": math.fsum(member.seconds for member in trained),
            },
        ),
        stopped,
    )


def train_within(study: Study, budget: float, write_line: Callable[[str], None]) -> int:
    """Trains the members of a study within a budget; returns the signal that stopped it or 0."""

    def report_member(member: Member, tuned: Tuned) -> None:
        note = "" if tuned.diverged_at is None else f", diverged at step {tuned.diverged_at}"
        score = f"{math.fsum(tuned.test) / len(tuned.test):.4f}"
        where = f"learning rate {member.rate:g}, seed {member.seed}, {tuned.seconds:.0f} s"
        write_line(f"  {member.variant.name}: {score} ({where}{note})")

    write_line(f"  as loaded: {math.fsum(study.before.test) / len(study.before.test):.4f}")
    with Interrupt() as interrupt:
        is_complete = run_study(
            study, budget, report_member, is_stopped=lambda: bool(interrupt.signal)
        )
        stopped = interrupt.signal
    if stopped and study.cell(FULL) is None:
        raise KeyboardInterrupt
    if not is_complete:
        reason = "stopped" if stopped else "the budget is used up"
        larger = "" if stopped else " with a larger budget"
        again = f" The same command{larger} continues." if study.store.folder else ""
        write_line(f"{reason}: not every update was compared.{again}")
    return stopped


def plan_line(name: str, study: Study, budget: float) -> str:
    """The line that is printed before the first training."""
    return (
        f"{name}: {study.trainer.settings.steps} steps; {len(study.updates)} updates against the "
        f"full one of everything, {until_verdicts(study.minimum(), budget)}"
    )


def text_of(model: Any, tokens: str, window: int) -> NextToken:
    """The task of predicting the next token of a text, for the vocabulary of a model."""
    task = NextToken(tokens=tokens, window=window)
    known, wanted = getattr(model.spec, "vocab_size", 0), task.vocab_size
    if wanted > known:
        raise UserError(
            f"the text {tokens or 'of the packaged chain'} has {wanted:,} kinds of tokens and the "
            f"model {known:,}: {PREPARE}"
        )
    check_tokenizer(model, task)
    return NextToken(tokens=tokens, window=window, vocab=known if wanted < known else 0)


def check_tokenizer(model: Any, task: NextToken) -> None:
    """Raises UserError if the tokens of a text are other pieces of text for the model."""
    words, prepared = attached(model), task.prepared
    if not isinstance(words, Text):
        return
    first, stop = prepared.part("train")[:2]
    tokens = np.unique(prepared.tokens(first, min(stop, first + TOKENS_COMPARED))).tolist()
    ours, theirs = words.tokenizer.decode, prepared.tokenizer.decode
    # Two files of one tokenizer may differ in spaces; another tokenizer shares almost nothing.
    equal = sum(ours([token]).strip() == theirs([token]).strip() for token in tokens)
    if 2 * equal < len(tokens):
        raise UserError(
            f"the text {task.tokens or 'of the packaged chain'} has the tokens of another "
            f"tokenizer than the model's: {PREPARE}"
        )


def loss_chunk(model: Any) -> int:
    """Positions whose logits are in memory at a time; 0 if the model must compute all at once."""
    try:
        check_head(model)
    except UserError:
        return 0
    return LOSS_CHUNK


def rates_of(
    given: Sequence[float] | Mapping[str, Sequence[float]] | None,
) -> Callable[[Update], Sequence[float]]:
    """A function from an update to the learning rates that it tries, in increasing order."""
    defaults = {"full": FULL_RATES, "adapters": ADAPTER_RATES, "vectors": VECTOR_RATES}
    if given is None:
        by_kind: Mapping[str, Sequence[float]] = defaults
    elif isinstance(given, Mapping):
        by_kind = {**defaults, **given}
    else:
        by_kind = dict.fromkeys(defaults, tuple(given))

    def rates(update: Update) -> Sequence[float]:
        if update.rank:
            return by_kind["adapters"]
        return by_kind["vectors" if update.part in (NORMS, BIASES) else "full"]

    return rates
