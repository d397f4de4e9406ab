"""Trains a network again and again, each time with one part changed, within a budget."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range, one_line
from jaxformer.core.text_format import counted, duration
from jaxformer.io.run_folder import config_hash
from jaxformer.runtime.progress import Interrupt
from jaxformer.stats import controls
from jaxformer.studies.anatomy import judge, parts
from jaxformer.studies.anatomy.findings import SNAPSHOTS, report_of, with_look_inside, with_moments
from jaxformer.studies.anatomy.given_parts import GivenParts, given_parts
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.smallest import Elimination, candidates, search
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Study
from jaxformer.studies.anatomy.study import run as run_study
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.studies.anatomy.text_tables import text_table
from jaxformer.studies.anatomy.training import Trained, is_change
from jaxformer.studies.anatomy.workers import TrainAll, workers
from jaxformer.studies.budget import Spent, until_verdicts

# Lines about a network from a theory, given the subject and its trained parameters, if any.
Theory = Callable[[Subject, Any], Sequence[str]]
# Makes the function that trains members elsewhere, such as in jobs of a cluster.
Executor = Callable[[Study, Interrupt], TrainAll]


def examine_training(
    subject: Subject,
    *,
    methods: Sequence[str],
    by_layer: bool,
    smallest: bool = False,
    during: int = 0,
    named: GivenParts | None = None,
    seeds: int,
    budget: float,
    margin: float,
    folder: Path | None,
    write_line: Callable[[str], None],
    processes: int = 1,
    make_subject: Callable[[], Subject] | None = None,
    theory: Theory | None = None,
    executor: Executor | None = None,
) -> tuple[Report, int]:
    """Trains the variants of a subject, judges them and examines the trained network.

    Args:
      subject: task, network and settings.
      methods, by_layer, smallest, during, named, seeds, budget, margin: as in `anatomy`.
      folder: the folder for the trained members; None saves nothing.
      write_line: prints a line.
      processes: trainings at once. More than one needs `make_subject`.
      make_subject: returns the subject in another process.
      theory, executor: as in `anatomy`.

    Returns:
      (the report, the signal that stopped it or 0)
    """
    for method in methods:
        check_choice("method", method, parts.METHODS)
    if during:  # one step has nothing to be compared with
        check_range("during", during, 2, SNAPSHOTS)
    check_range("seeds", seeds, 1, 1000)
    if not 0 < margin < 1:
        raise UserError(f"margin must lie between 0 and 1, both excluded, got {margin:g}.")
    if not budget > 0:  # also nan, which no time exceeds
        raise UserError(f"budget must be above 0 seconds, got {budget}.")
    # Neither is called before something was trained, so a mistake would come late.
    for name, function in (("theory", theory), ("executor", executor)):
        if function is not None and not callable(function):
            raise UserError(f"{name} must be a function, got {function!r:.60}.")
    shapes = subject.network.shapes
    if named is None:
        network_parts = parts.parts_of(shapes, by_layer)
    else:
        network_parts = given_parts(named, shapes)
    variants = [
        variant
        for variant in parts.variants_of(network_parts, methods, subject.mixing is not None)
        if variant.method == parts.FIXED_MIXING or is_change(subject.network, variant)
    ]
    store = Store(folder and members_folder(folder, subject, named))
    study = Study(subject, variants, store, seeds, margin)
    write_line(plan_line(subject, study, budget))
    if seeds == 1:
        write_line(
            "note: one seed has no interval, so nothing can be decided; take three seeds or more."
        )

    training_seconds: list[float] = []
    is_table_shown = study.has_first_table

    def report_member(member: Member, trained: Trained) -> None:
        nonlocal is_table_shown
        score = trained.test[study.metric]
        rate = f"learning rate {member.rate:g}, seed {member.seed}"
        if member.times > 1:
            rate += f", {member.times} times the steps"
        note = "" if trained.diverged_at is None else f", diverged at step {trained.diverged_at}"
        seconds = f"{trained.seconds:.0f} s"
        result = f"{study.metric} {score.mean:.4g} ({rate}, {seconds}{note})"
        write_line(f"  {member.variant.name}: {result}")
        training_seconds.append(trained.seconds)
        # The first training of each process includes compilation: the estimate uses the next one.
        if executor is None and len(training_seconds) == processes + 1:
            n_missing = max(study.minimum() - len(study.store.members), 0)
            seconds_left = n_missing * trained.seconds / processes
            write_line(f"  first verdicts on all parts in about {duration(seconds_left)}")
        if not is_table_shown and study.has_first_table:
            is_table_shown = True
            write_line(f"\nwith one seed, which decides nothing:\n{text_table(study.table())}\n")

    with contextlib.ExitStack() as stack:
        train_all = None
        if executor is None and processes > 1:
            assert make_subject is not None
            train_all = stack.enter_context(workers(processes, make_subject))
        interrupt = stack.enter_context(Interrupt())
        if executor is not None:
            train_all = executor(study, interrupt)
        is_complete = run_study(
            study,
            budget,
            report_member,
            is_stopped=lambda: bool(interrupt.signal),
            train_all=train_all,
            processes=processes,
        )
        found: list[Elimination] = []
        if smallest and not interrupt.signal and study.cell(parts.WHOLE_NETWORK) is not None:
            found = eliminations(
                study,
                given_parts(named, shapes) if named else parts.parts_of(shapes, by_layer=True),
                train_all=train_all,
                seconds=budget,
                is_stopped=lambda: bool(interrupt.signal),
                write_line=write_line,
            )
        stopped = interrupt.signal
    # Without a score of the whole network there is nothing to report.
    if stopped and study.cell(parts.WHOLE_NETWORK) is None:
        raise KeyboardInterrupt
    table = study.table()
    if not is_complete or not table.is_decided:
        write_line(stop_line(study, stopped, is_complete, folder))
    params = None if stopped else study.whole_params()
    lines = [] if theory is None else theory_lines(theory, subject, params, write_line)
    report = dataclasses.replace(report_of(study, lines), smallest=tuple(found))
    if stopped:
        return report, stopped
    report = with_look_inside(report, study, write_line)
    return (with_moments(report, study, during, write_line) if during else report), stopped


def eliminations(
    study: Study, network_parts: Sequence[parts.Part], **options: Any
) -> list[Elimination]:
    """Searches for the smallest set of trained parts, then for the smallest network."""
    budget, spent = options.pop("seconds"), Spent(is_here=options["train_all"] is None)
    found = []
    for method, title in ((parts.FROZEN, "set of trained parts"), (parts.REMOVED, "network")):
        chosen = candidates(network_parts, method)
        if chosen and not options["is_stopped"]():
            options["write_line"](f"searching for the smallest {title}")
            left = budget - spent.seconds()
            found.append(search(study, chosen, method, seconds=left, **options))
    return found


def theory_lines(
    theory: Theory, subject: Subject, params: Any, write_line: Callable[[str], None]
) -> Sequence[str]:
    """The lines of a theory. All trainings are done, so a failure costs the lines alone."""
    try:
        return theory(subject, params)
    except Exception as error:
        write_line(f"note: the theory has no lines: {type(error).__name__}: {one_line(error)}")
        return []


def plan_line(subject: Subject, study: Study, budget: float) -> str:
    """Returns the line that is printed before the first training."""
    return (
        f"{subject.name}: {subject.parameters():,} parameters, {subject.network.steps} steps; "
        f"{len(study.variants)} variants, {until_verdicts(study.minimum(), budget)}"
    )


def members_folder(folder: Path, subject: Subject, named: GivenParts | None = None) -> Path:
    """Returns the folder of the trained members of a subject, whose files have names of parts."""
    # Older versions stored a removed MLP under the same name although nothing of it was zero.
    special = parts.zeroed_as_a_whole(subject.network.shapes) if named is None else dict(named)
    parts_hash = f"-{config_hash(special)[:12]}" if special or named is not None else ""
    members = folder / f"members-{subject.hash[:12]}{parts_hash}"
    older = folder / f"members-{subject.older_hash[:12]}{parts_hash}"
    if older != members and older.is_dir() and not members.exists():
        print(
            f"warning: {older} does not say with which initial values and training examples its "
            "members were trained, because an older version wrote it: an edit since then would not "
            f"be noticed. It is {members.name} from now on.",
            file=sys.stderr,
        )
        older.rename(members)
    return members


def stop_line(study: Study, stopped: int, is_complete: bool, folder: Path | None) -> str:
    """Returns the line that explains why some verdicts are open."""
    rows = study.table().rows
    n_open = sum(row.outcome == judge.OPEN for row in rows)
    n_missing = len(study.variants) - len(rows)
    state = f"{n_open + n_missing} of {len(study.variants)} comparisons are open"
    if n_untrained := sum(row.outcome == judge.NOT_TRAINED for row in rows):
        within = "" if is_complete else f" {controls.WITHIN_BUDGET}"
        state += f", and {n_untrained} lost but were not trained{within}"
    if is_complete:
        return f"{state} after {counted(study.max_seeds, 'seed')}: more seeds may decide them."
    reason = "stopped" if stopped else "the budget is used up"
    larger = "" if stopped else " with a larger budget"
    again = f" The same command{larger} continues." if folder else ""
    return f"{reason}: {state}.{again}"
