"""Runs the missing runs of the papers' ledger, most informative first, within a time budget.

    jaxformer reproduce --paper mixit --scale small --budget 30m --seeds 3

  --paper=NAME   mixit, random_attention, two_failure_modes, associations, attention_paths or all
  --only=TABLE   one table or figure, such as "Table 2, k-hop", or all that begin with "Table 2"
  --scale=SCALE  tiny, small or paper, which uses an accelerator if there is one (small)
  --seeds=N      seeds of every run that has seeds (those of its config)
  --budget=TIME  90s, 30m, 2h: starts only runs that end in time (no limit)
  --workdir=DIR  folder of the runs (runs/reproduce in the repository)
  --list         prints every table and figure with its verdict, and its runs with state and time
  --dry-run      prints the runs that would start, in order, with their times
  --plan         prints the machine, memory and time of each run, packed into jobs of a cluster
  --again        repeats recorded runs; ends with a table rerun / recorded / paper
  --out=DIR      folder of the runs of --again (runs/again in the repository)

Defaults are in parentheses.

Tables that lack one or two runs for their verdict come first, and the cheapest of them is the very
first. A run that several tables share is made once. Finished runs are recorded in results/. They
replace records with fewer seeds and records of configs that have changed since. `jaxformer
report --write` writes the pages from the records. Ctrl-C or SIGTERM saves and stops.
The next start resumes the interrupted run. A run that fails is reported and does not stop the
others; the exit code is then 1.

With --again, recorded cells are repeated at the scale and with the seeds of their records, unless
--scale or --seeds is given. results/ does not change.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli import flags
from experiments.ledger import read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import ledger
from experiments.papers import PAPERS
from experiments.schedule import cluster_plan, executors, launch, planning, rerun, show_plan
from experiments.schedule.estimates import Estimator
from experiments.schedule.recording import job_of_run, update_records
from jaxformer.core.errors import UserError, check_choice
from jaxformer.runtime.command_line import Parser, command, count, seconds

SCALES = ("tiny", "small", "paper")
DEFAULT_SCALE = "small"  # for missing runs; a repeated run has the scale of its record


@command
def main(argv: Sequence[str], papers: Mapping[str, Paper] = PAPERS) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--paper", default="")
    add("--scale", default="")
    add("--budget", type=seconds, default=math.inf)
    add("--seeds", type=count, default=0)
    add("--only", default="")
    executors.add_flags(parser)
    add("--workdir", type=Path, default=flags.WORKSPACE / "runs/reproduce")
    add("--list", action="store_true")
    add("--dry-run", action="store_true")
    add("--plan", action="store_true")
    add("--again", action="store_true")
    add("--out", type=Path)
    args = parser.parse_args(argv)
    if not args.paper:
        raise UserError(f"give --paper=NAME, one of {', '.join(papers)} or all.")
    check_choice("scale", args.scale or DEFAULT_SCALE, SCALES)
    if args.out and not args.again:
        raise UserError("--out is the folder of --again; missing runs use --workdir.")
    if args.list and args.again:
        raise UserError("--list shows missing runs; --again --dry-run shows the runs to repeat.")
    items = planning.select_items(papers, args.paper, args.only)
    records, problems = read.load(write.RESULTS)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    if args.again:
        args.out = args.out or flags.WORKSPACE / "runs/again"
        return rerun.main(args, items, records, papers, Estimator(records))
    args.scale = args.scale or DEFAULT_SCALE
    runs = planning.plan_runs(items, records, args.scale, args.seeds, Estimator(records))
    if args.list:
        show_plan.print_items(items, runs, ledger(papers, records))
        return 0
    open_runs = planning.order_runs(runs, items)
    queue = [job_of_run(run, args.workdir) for run in open_runs]
    run_of_folder = {job.workdir: run for job, run in zip(queue, open_runs, strict=True)}
    # Interrupted runs come first. The sort is stable.
    queue.sort(key=lambda job: not (job.resumes and job.is_started()))
    if not queue:
        print(show_plan.nothing_to_run(runs, args.scale))
        return 0
    if args.plan:
        cluster_plan.print_cluster_plan(queue)
        return 0
    code = executors.run_jobs(
        args,
        queue,
        args.workdir,
        "open runs",
        lambda outcome: update_records(outcome, run_of_folder[outcome.job.workdir], papers),
        lambda job: str(run_of_folder[job.workdir].cells[0]),
    )
    if code is None:
        return 0
    if any(job.is_finished() for job in queue):
        print("`jaxformer report --write` writes the pages.")
    return code


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
