"""Confirms the rows of the ledger: rules frozen first, fresh seeds afterwards, one look.

    jaxformer confirm plan                writes confirmation/PLAN.json; commit it
    jaxformer confirm draw                draws the random value of its seeds; commit that too
    jaxformer confirm run --budget=10h    makes its runs; the same command resumes them
    jaxformer confirm judge               prints and writes the verdicts

A plan has hashes of rules, cells, learning rates, numbers of seeds and the code that judges. If one
of them changes, the plan is invalid. Seeds are drawn from its hash and a random value, which is
drawn after the plan was committed. No run can be extended.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import importlib
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.cli import flags
from experiments.confirmation import judgement, plan, planning, runs
from experiments.ledger import read, write
from experiments.ledger.choose import names_beginning_with
from experiments.ledger.item import Paper, checked
from experiments.ledger.ledger import ledger
from experiments.papers import PAPERS
from experiments.schedule import devices, launch
from experiments.schedule.running import check_budget, run_all
from experiments.site.markdown import linked_rows
from jaxformer.core.errors import UserError, check_choice, one_line, unknown
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import Parser, command, seconds

VERBS = ("plan", "draw", "run", "judge")


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("verb", metavar="VERB", help="plan, draw, run or judge")
    add(
        "--plan",
        type=Path,
        default=flags.WORKSPACE / "confirmation/PLAN.json",
        metavar="FILE",
        help="the plan; its records and verdicts are beside it (default: %(default)s)",
    )
    add("--name", default="confirm-1", help="name of a new plan (default: %(default)s)")
    add(
        "--claims",
        default="",
        metavar="MODULE:NAME",
        help="your own claims: a Paper or a tuple of papers (default: the five papers)",
    )
    add(
        "--without",
        type=Path,
        metavar="FILE",
        help="another plan, whose rows a new plan leaves out",
    )
    add("--only", default="", metavar="ROW", help="plan, or run, this row, or all that begin so")
    add(
        "--budget",
        type=seconds,
        default=math.inf,
        metavar="TIME",
        help="90s, 30m, 2h: stop after this time (default: no limit)",
    )
    devices.add_flags(parser)
    add(
        "--workdir",
        type=Path,
        default=flags.WORKSPACE / "runs/confirm",
        metavar="DIR",
        help="folder of the runs (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    check_choice("verb", args.verb, VERBS)
    papers = load_claims(args.claims) if args.claims else PAPERS
    if args.verb == "plan":
        return make_plan(args, papers)
    if args.verb == "draw":
        print(f"drew {plan.draw_value(args.plan)}; commit {args.plan.with_name(plan.VALUE)}")
        return 0
    planned = plan.read(args.plan)
    plan.check(planned, papers)
    return make_runs(args, planned) if args.verb == "run" else judge(args, planned, papers)


def load_claims(text: str) -> dict[str, Paper]:
    """Imports the papers of "MODULE:NAME" and checks their rules."""
    module_name, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the current folder
    try:
        claims: Any = getattr(importlib.import_module(module_name), name or "CLAIMS")
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        raise UserError(f"--claims={text}: {reason}") from None
    papers = (claims,) if isinstance(claims, Paper) else claims
    is_tuple = isinstance(papers, tuple | list) and len(papers) > 0
    if not is_tuple or not all(isinstance(paper, Paper) for paper in papers):
        raise UserError(f"--claims={text} must be a Paper or a tuple of papers.")
    return {paper.key: checked(paper) for paper in papers}


def make_plan(args, papers: Mapping[str, Paper]) -> int:
    """Writes the plan of the rows that new seeds can confirm, and prints its stages."""
    records, problems = read.load(write.RESULTS)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    rows = ledger(papers, records)
    if args.only:
        names = names_beginning_with([row.item.name for row in rows], args.only)
        rows = [row for row in rows if row.item.name in names]
    if args.without:
        left_out = {(row.paper, row.item) for row in plan.read(args.without).rows}
        rows = [row for row in rows if (row.paper.key, row.item.name) not in left_out]
    # The rows that the README links are worth most.
    readme = flags.WORKSPACE / "README.md"
    headlines = linked_rows(readme.read_text()) if readme.exists() else ()
    planned = planning.make(args.name, rows, headlines, plan.SECOND)
    if not planned.rows:
        reasons = [f"{row.item.name}: {line}" for row in rows for line in row.problems]
        raise UserError(
            "no row has a verdict that new seeds could confirm; run its cells with --record. "
            + " ".join(reasons[:3])
        )
    plan.write(planned, args.plan)
    for stage in planning.STAGES:
        in_stage = [row for row in planned.rows if row.stage == stage]
        print(f"stage {stage}: {len(in_stage)} rows")
    hours = sum(run.seconds for run in planned.runs.values()) / 3600
    print(f"wrote {args.plan}: {len(planned.rows)} rows, {len(planned.runs)} runs, {hours:.1f} h")
    print(f"hash {planned.hash}")
    return 0


def make_runs(args, planned: plan.Plan) -> int:
    """Makes the runs of a plan that have no record yet, in the order of its rows."""
    folder = args.plan.parent / "records"
    jobs = runs.jobs(planned, args.workdir)
    name_of = {job.workdir: name for name, job in jobs.items()}
    recorded = runs.read_records(planned, folder, jobs)
    rows, items = planned.rows, [row.item for row in planned.rows]
    if args.only:
        names = names_beginning_with(items, args.only)
        rows = [row for row in rows if row.item in names]
    if not rows:
        raise unknown("row of the plan", args.only, items)
    wanted = set().union(*(row.runs for row in rows))
    unrecorded = [job for name, job in jobs.items() if name not in recorded and name in wanted]
    for job in unrecorded:
        if job.is_finished():
            runs.write_record(job.workdir, runs.record_file(folder, name_of[job.workdir]))
    waiting = [job for job in unrecorded if not job.is_finished()]
    if not waiting:
        which = f"the rows {args.only!r} of {planned.name}" if args.only else planned.name
        print(f"all {len(wanted)} runs of {which} are done: `jaxformer confirm judge`.")
        return 0
    check_budget(args.budget, waiting)

    def record(outcome) -> str:
        file = runs.record_file(folder, name_of[outcome.job.workdir])
        runs.write_record(outcome.job.workdir, file)
        return f"{outcome.job.name}: {duration(outcome.seconds)}, recorded as {file.name}"

    slots = devices.slots_from_flags(args)
    return run_all(waiting, slots, args.budget, record)


def judge(args, planned: plan.Plan, papers: Mapping[str, Paper]) -> int:
    """Prints and writes the verdicts of the rows whose runs are recorded."""
    rows = ledger(papers, read.load(write.RESULTS)[0])
    explored = {(row.paper.key, row.item.name): row.records for row in rows}
    judged = judgement.judge(planned, papers, args.plan.parent / "records", explored)
    for row in judged:
        if not row.is_run:
            continue
        primary = f"primary rule {row.primary_verdict}"
        _, numbers = row.rules[row.primary]
        print(f"{row.outcome}: {row.paper} {row.item}: {row.exploratory}, now {row.verdict}")
        print(f"  {row.fresh}; {primary}: {row.primary}: {numbers}")
        for line in row.problems:
            print(f"  {line}")
    counts = Counter(row.outcome for row in judged)
    print(", ".join(f"{counts[name]} {name}" for name in judgement.ORDER if counts[name]))
    file = args.plan.parent / "VERDICTS.json"
    judgement.write(planned, judged, file)
    print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
