"""Runs grids over config fields, and says which member of each model is best.

    python experiments/sweep.py --workdir=runs/sweep \\
        --config='configs/mixit/retrieval.py:scale=small,variant={standard,frozen_qk}' \\
        --grid optim.learning_rate=1e-3,3e-3 --grid model.layers=2,4

  --config=FILE:ARGUMENTS   a config; words in braces make one run each
  --grid FIELD=VALUE,..     a field and its values; several grids make all combinations. Fields that
                            go together: --grid model.width+model.mlp_width=64+256,128+512
  --config.FIELD=VALUE      a field of every run
  --file=FILE.toml          config, grid and fields from a file, such as those of the papers in
                            configs/sweeps/; the flags above add to it or replace it
  --workdir=DIR             where the runs and the table live (default: runs/sweep)
  --seeds=N                 seeds of every run
  --processes=N             runs at a time (default: as many as the devices allow; 1 on a CPU)
  --devices-per-run=N       GPUs or TPU chips of each run (default 1)
  --executor=slurm          jobs of Slurm in place of processes
  --slurm=FILE.toml         for how long, where and on what these run (configs/slurm/example.toml)
  --status                  how far each run is; starts nothing
  --track=tensorboard,wandb,trackio
                            copies the rows of every run there too
  --search=tpe              in place of the grid: Optuna proposes runs; random draws them
  --trials=N                how many it proposes (default 50)
  --range FIELD=LOW:HIGH    what it chooses from beside the grid's values; LOW:HIGH:log by decades
  --dry-run                 how many runs and members, and how long

Learning rates and consecutive seeds share a program: they are members of one run. Finished runs are
skipped, interrupted ones go on: the same command again ends what is left. sweep.csv has a row for
each learning rate of each run. The best of a model is chosen on validation, reported on the test.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.ledger import read, write
from experiments.schedule import devices, executors, grids, launch, search, sweep_table
from experiments.schedule.estimates import Estimator
from experiments.schedule.grids import Run
from experiments.schedule.jobs import Job
from experiments.schedule.running import rest, run_all
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.training import loggers


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__, fields=True)
    parser.add_argument("--config", default="")
    parser.add_argument("--grid", action="append", default=[])
    parser.add_argument("--file", default="")
    parser.add_argument("--workdir", type=Path, default=Path("runs/sweep"))
    parser.add_argument("--seeds", type=count)
    executors.add_flags(parser)
    parser.add_argument("--track", default="")
    parser.add_argument("--search", default="")
    parser.add_argument("--trials", type=count, default=50)
    parser.add_argument("--range", action="append", default=[])
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args(argv)
    loggers.parse_track(asked.track)
    if asked.search:
        return searched(asked)
    if asked.range:
        raise UserError("--range needs --search=tpe; a grid has --grid FIELD=VALUE,VALUE.")
    runs = expanded(asked)
    places, launcher = executors.asked_for(asked, asked.workdir)
    held = [launch.settings(run.config, run.overrides) for run in runs]
    asked.estimate = Estimator(read.load(write.RESULTS)[0])  # seconds, so that mistakes come first
    jobs = [job_of(asked, run, config) for run, config in zip(runs, held, strict=True)]
    waiting = [job for job in jobs if not job.is_finished()]
    if asked.status:
        executors.show_status(jobs, asked.workdir)
        return 0
    if len(places) > 1:  # the longest first, so that all places are busy until the last
        waiting.sort(key=rest, reverse=True)
    times = [rest(job) for job in waiting]
    long = duration(max(sum(times) / len(places), *times, 0.0))
    members = sum(map(grids.members, held))
    print(f"{len(jobs)} runs with {members} members; {len(waiting)} to run, about {long}")
    if asked.dry_run:
        print(*(f"  {job.name}" for job in waiting), sep="\n")
        return 0
    code = run_all(waiting, places, launch=launcher)
    summarise(asked, list(zip(runs, jobs, strict=True)))
    return code


def searched(asked: Namespace) -> int:
    """Runs what a search proposes; the table has every run that finished."""
    config, grid, fields = said(asked)
    space = search.space(config, grid, asked)
    search.check(asked, config, space, fields)
    places = devices.asked_places(asked)
    if asked.dry_run:
        print(f"{asked.trials} trials by {asked.search}, {len(places)} at a time, of")
        print(*(f"  {name}: {search.words(choice)}" for name, choice in space.items()), sep="\n")
        return 0
    asked.estimate = Estimator(read.load(write.RESULTS)[0])
    study, runs = search.Search(asked, config, space, fields), {}
    code = search.run_search(study, places, lambda run: job_of(asked, run), runs)
    for trial in study.study.get_trials():  # those of earlier starts too
        if len(trial.params) == len(space):
            run = search.run_of(config, trial.params, fields)
            runs.setdefault(job_of(asked, run).workdir, run)
    summarise(asked, [(run, job_of(asked, run)) for run in runs.values()])
    return code


def job_of(asked: Namespace, run: Run, held: dict[str, Any] | None = None) -> Job:
    """The job of a run; `held` are its settings, where they are known."""
    more = (f"--track={asked.track}",) * bool(asked.track)
    seconds = asked.estimate(held or launch.settings(run.config, run.overrides))
    options: dict = {"seconds": seconds, "more": more}
    return launch.job(label(run), run.config, run.overrides, asked.workdir, **options)


def summarise(asked: Namespace, runs: Sequence[tuple[Run, Job]]) -> None:
    """The table of what has finished."""
    done = [(run, job) for run, job in runs if job.is_finished()]
    if done:
        rows = sweep_table.gather(done)
        sweep_table.write(asked.workdir / "sweep.csv", rows)
        sweep_table.show(rows)
        print(f"every member: {asked.workdir / 'sweep.csv'}")


def said(asked: Namespace) -> tuple[str, dict[str, list[str]], dict[str, str]]:
    """(config, grid, fields) of the flags and the file."""
    config, grid, fields = grids.read(asked.file) if asked.file else ("", {}, {})
    grid |= grids.parse_grid(asked.grid)
    fields |= asked.fields | ({"n_seeds": str(asked.seeds)} if asked.seeds else {})
    config = asked.config or config
    if not config:
        raise UserError("say --config=FILE:ARGUMENTS, or --file=FILE.toml with one.")
    return config, grid, fields


def expanded(asked: Namespace) -> list[Run]:
    """The runs that the flags and the file ask for; each config once."""
    config, grid, fields = said(asked)
    runs = grids.expand(config, grid, fields)
    if len(runs) == 1 and not grid:
        raise UserError("nothing to sweep: give --grid FIELD=VALUE,VALUE or {braces} in --config.")
    return runs


def label(run: Run) -> str:
    """ "retrieval frozen_qk, model.layers = 2"."""
    varied = [f"{name} = {value}" for name, value in run.varied.items()]
    return ", ".join([sweep_table.model_name(run), *varied])


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
