"""Follows effects as networks grow towards the papers' sizes, by rules that are fixed first.

    jaxformer ladder plan               writes ladders/PLAN.json; commit it before any run
    jaxformer ladder run --budget=2h    makes the cheapest missing runs; the same command resumes
    jaxformer ladder judge              prints effect, trend and prediction of each ladder

A ladder is one quantity at three or more sizes, each about twice the one before, with the same
seeds at every size. Its rule, such as "stays above .2", is decided by the slope in the log of the
size. The plan has hashes of rules, sizes, configs and the code that judges; its hash draws the
seeds.

--card runs the sizes that need an accelerator, which test the predictions. --write puts the table
into docs/ladders.md and draws a picture of each ladder.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli import flags
from experiments.confirmation.runs import record_file, write_record
from experiments.ladders import plan, runs, table
from experiments.ledger.ladder import Ladder
from experiments.papers.ladders import LADDERS
from experiments.schedule import devices, launch
from experiments.schedule.running import check_budget, run_all
from experiments.site import ladder_picture as picture
from jaxformer.core.errors import UserError, check_choice, unknown
from jaxformer.core.text_format import counted, duration
from jaxformer.io.atomic_files import write_atomically
from jaxformer.runtime.command_line import Parser, command, seconds

VERBS = ("plan", "run", "judge")
NICENESS = 19  # runs give way to everything else on this machine
DOCS = flags.WORKSPACE / "docs/ladders.md"
PICTURES = flags.WORKSPACE / "docs/ladders"
BEGIN, END = "<!-- ladders -->", "<!-- end of ladders -->"


@command
def main(argv: Sequence[str], ladders: Mapping[str, Ladder] = LADDERS) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("verb", metavar="VERB", help="plan, run or judge")
    add(
        "--plan",
        type=Path,
        default=flags.WORKSPACE / "ladders/PLAN.json",
        metavar="FILE",
        help="the plan; its records are beside it (default: %(default)s)",
    )
    add("--name", default="ladders-1", help="name of a new plan (default: %(default)s)")
    add("--only", default="", metavar="LADDER", help="ladders whose name begins with this")
    add("--card", action="store_true", help="run: the sizes that need an accelerator")
    add("--write", action="store_true", help="judge: write docs/ladders.md and the pictures")
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
        default=flags.WORKSPACE / "runs/ladders",
        metavar="DIR",
        help="folder of the runs (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    check_choice("verb", args.verb, VERBS)
    if args.verb == "plan":
        return make_plan(args, ladders)
    planned = plan.read(args.plan)
    plan.check(planned, ladders)
    names = [name for name in ladders if name in planned.ladders and name.startswith(args.only)]
    if not names:
        raise unknown("ladder of the plan", args.only, planned.ladders)
    if args.verb == "run":
        return make_runs(args, planned, names)
    return judge(args, planned, {name: ladders[name] for name in names})


def make_plan(args, ladders: Mapping[str, Ladder]) -> int:
    """Writes the plan of all ladders, and prints what their sizes cost."""
    planned = plan.make(args.name, ladders.values())
    plan.write(planned, args.plan)
    cheap = runs.jobs_by_cost(planned, args.workdir, planned.ladders, on_card=False)
    hours = sum(job.seconds for job in cheap.values()) / 3600
    on_card = len(planned.runs) - len(cheap)
    print(
        f"wrote {args.plan}: {counted(len(planned.ladders), 'ladder')}, "
        f"{counted(len(cheap), 'run')} of about {hours:.1f} core hours, {on_card} more on a card"
    )
    print(f"hash {planned.hash}")
    return 0


def make_runs(args, planned: plan.LadderPlan, names: Sequence[str]) -> int:
    """Makes the missing runs, cheapest size first, and records each as it ends."""
    folder = args.plan.parent / "records"
    jobs = runs.jobs_by_cost(planned, args.workdir, names, on_card=args.card)
    if not jobs:
        raise UserError("no such ladder has a size for a card: leave out --card.")
    name_of = {job.workdir: name for name, job in jobs.items()}
    for name, job in jobs.items():
        if job.is_finished():
            write_record(job.workdir, record_file(folder, name))
    waiting = [job for name, job in jobs.items() if not record_file(folder, name).exists()]
    if not waiting:
        print(f"all {len(jobs)} runs are recorded: `jaxformer ladder judge`.")
        return 0
    check_budget(args.budget, waiting)

    def record(outcome) -> str:
        file = record_file(folder, name_of[outcome.job.workdir])
        write_record(outcome.job.workdir, file)
        return f"{outcome.job.name}: {duration(outcome.seconds)}, recorded as {file.name}"

    os.nice(NICENESS)
    slots = devices.slots_from_flags(args)
    return run_all(waiting, slots, args.budget, record)


def judge(args, planned: plan.LadderPlan, ladders: Mapping[str, Ladder]) -> int:
    """Prints the table of ladders; with --write also into the docs, with a picture of each."""
    chosen = planned._replace(ladders={name: planned.ladders[name] for name in ladders})
    records = args.plan.parent / "records"
    found = runs.judge_with_controls(chosen, ladders, records, args.workdir)
    all_judged = table.by_progress(found)
    for judged, control in all_judged:
        cells = dict(zip(table.COLUMNS, table.row(judged, control), strict=True))
        print(f"{cells.pop('ladder')}: {cells.pop('verdict')}")
        lines = [f"{name}: {cell}" for name, cell in cells.items()]
        for text in (*lines, *table.details(judged, control)):
            print(f"  {text}")
    if args.write:
        write_page(all_judged)
    return 0


def write_page(all_judged: Sequence) -> None:
    """Writes the table into docs/ladders.md, and the pictures beside it."""
    drawn, parts = [], [table.markdown(all_judged)]
    for judged, control in all_judged:
        ladder = judged.ladder
        if not picture.draw(judged, control, PICTURES / f"{ladder.name}.png"):
            continue
        drawn.append(judged)
        lines = "\n".join(f"- {line}" for line in table.details(judged, control))
        image = f"![{ladder.quantity}](ladders/{ladder.name}.png)"
        parts.append(f"## {ladder.name}\n\n{image}\n\n{lines}")
    text = DOCS.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n\n".join((before + BEGIN, *parts, END)) + after
    write_atomically(DOCS, made.encode())
    print(f"wrote {DOCS} and {counted(len(drawn), 'picture')}")


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
