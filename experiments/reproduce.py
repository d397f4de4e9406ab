"""Runs what the ledger of the papers still lacks, most informative first, within a time budget.

    python experiments/reproduce.py --paper mixit --scale small --budget 30m --seeds 3

  --paper NAME     mixit, random_attention, two_failure_modes, associations, attention_paths or all
  --scale SCALE    tiny | small (default) | paper; the paper's uses whatever accelerator is there
  --budget TIME    90s, 30m, 2h: no run starts that would not end in time (default: no limit)
  --seeds N        seeds of every run that has seeds (default: what its config says)
  --only TABLE     one table or figure, such as "Table 2"
  --processes N    runs at a time (default: as many as the devices allow; 1 on a CPU)
  --devices-per-run N  GPUs or TPU chips of each run (default 1)
  --workdir DIR    where unfinished runs live (default: runs/reproduce in the repository)
  --executor slurm  jobs of Slurm in place of processes
  --slurm FILE.toml  for how long, where and on what these run (configs/slurm/example.toml)
  --status         how far each run is; starts nothing
  --list           every table and figure with its runs, their state, time and the verdict
  --dry-run        what would run, in which order, how long
  --again          what is recorded once more, here; ends with a table rerun / recorded / paper
  --out DIR        where the runs of --again live (default: runs/again in the repository)

First the tables that lack one or two runs for their verdict, the cheapest first, then the rest; a
run that several tables share runs once. Finished runs are recorded in results/, in place of one
with fewer seeds or of a config that has changed since; `python experiments/report.py` writes the
pages from them. Ctrl-C or SIGTERM saves and stops; the next start goes on with the interrupted run.
A run that fails is named and does not stop the others; the exit code is 1 then.

With --again finished cells run once more, at the scale and with the seeds of their records unless
--scale or --seeds says otherwise, and results/ stays as it is.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli import flags
from experiments.ledger import read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import ledger
from experiments.papers import PAPERS
from experiments.schedule import executors, launch, planning, rerun, show_plan
from experiments.schedule.estimates import Estimator
from experiments.schedule.recording import job_of, recorded
from experiments.schedule.running import check_budget, run_all, together
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import Parser, command, count, seconds

SCALES = ("tiny", "small", "paper")
SCALE = "small"  # of what is open; what is made again has that of its record


@command
def main(argv: Sequence[str], papers: Mapping[str, Paper] = PAPERS) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--paper", default="")
    parser.add_argument("--scale", default="")
    parser.add_argument("--budget", type=seconds, default=math.inf)
    parser.add_argument("--seeds", type=count, default=0)
    parser.add_argument("--only", default="")
    executors.add_flags(parser)
    parser.add_argument("--workdir", type=Path, default=flags.ROOT / "runs/reproduce")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(argv)
    if not asked.paper:
        raise UserError(f"say --paper=NAME, one of {', '.join(papers)} or all.")
    check_choice("scale", asked.scale or SCALE, SCALES)
    if asked.out and not asked.again:
        raise UserError("--out is where --again runs; what is open runs in --workdir.")
    if asked.list and asked.again:
        raise UserError("--list shows what is open; --again --dry-run shows what is made again.")
    wanted = planning.select(papers, asked.paper, asked.only)
    records, problems = read.load(write.RESULTS)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    if asked.again:
        asked.out = asked.out or flags.ROOT / "runs/again"
        return rerun.main(asked, wanted, records, papers, Estimator(records))
    asked.scale = asked.scale or SCALE
    found = planning.todos(wanted, records, asked.scale, asked.seeds, Estimator(records))
    if asked.list:
        show_plan.items(wanted, found, ledger(papers, records))
        return 0
    todos = planning.order(found, wanted)
    queue = [job_of(todo, asked.workdir) for todo in todos]
    by_folder = {job.workdir: todo for job, todo in zip(queue, todos, strict=True)}
    # Stable: those that were interrupted first.
    queue.sort(key=lambda job: not (job.resumes and job.is_started()))
    if not queue:
        print(show_plan.nothing_open(found, asked.scale))
        return 0
    check_budget(asked.budget, queue, lambda job: by_folder[job.workdir].names[0])
    if asked.status:
        executors.show_status(queue, asked.workdir)
        return 0
    places, launcher = executors.asked_for(asked, asked.workdir)
    if launcher and not math.isinf(asked.budget):
        raise UserError("--budget is the time of this machine; jobs of Slurm have --slurm's time.")
    if asked.dry_run:
        show_plan.queue(queue, asked.budget)
        return 0
    limit = "" if math.isinf(asked.budget) else f"; the budget is {duration(asked.budget)}"
    total = duration(together(queue, len(places)))
    print(f"open runs: {len(queue)}, about {total}{limit}", flush=True)
    code = run_all(
        queue,
        places,
        asked.budget,
        lambda outcome: recorded(outcome, by_folder[outcome.job.workdir], papers),
        launcher,
    )
    if any(job.is_finished() for job in queue):
        print("`python experiments/report.py` writes the pages.")
    return code


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
