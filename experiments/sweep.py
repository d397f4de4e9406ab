"""Runs grids over config fields and reports the best member of each model.

    jaxformer sweep --workdir=runs/sweep \\
        --config='configs/mixit/retrieval.py:scale=small,variant={standard,frozen_qk}' \\
        --grid optim.learning_rate=1e-3,3e-3 --grid model.layers=2,4

  --config=FILE:ARGUMENTS  a config; each choice in braces makes a run
  --config.FIELD=VALUE     overrides a field in every run
  --grid=FIELD=VALUE,..    a field and its values; several grids make all combinations. Fields that
                           vary together: --grid model.width+model.mlp_width=64+256,128+512
  --file=FILE.toml         reads config, grid and fields from a file such as those in
                           configs/sweeps/; other flags add to it or replace it
  --workdir=DIR            folder of the runs and the table (runs/sweep)
  --seeds=N                seeds of every run
  --track=SERVICES         also sends the rows of every run to tensorboard,wandb
  --dry-run                builds each run, prints the number of runs and members, and the time

Defaults are in parentheses.

Learning rates and consecutive seeds are members of one run, which one program trains together. Run
the same command again: it skips finished runs and resumes interrupted ones. sweep.csv has a row for
each learning rate of each run. The best row of a model is chosen by validation scores, and its
scores on the test set are reported.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cli.completion import config_path
from experiments.cli.flags import load_with_overrides
from experiments.ledger import read, write
from experiments.schedule import executors, grids, launch, sweep_table
from experiments.schedule.estimates import Estimator
from experiments.schedule.grids import Run
from experiments.schedule.jobs import Job, config_dict, make_job
from experiments.schedule.running import parallel_seconds, remaining_seconds, run_all
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import counted, duration
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.training import loggers


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__, fields=True)
    add = parser.add_argument
    add("--config", default="")
    add("--grid", action="append", default=[])
    add("--file", default="")
    add("--workdir", type=Path, default=Path("runs/sweep"))
    add("--seeds", type=count)
    executors.add_flags(parser)
    add("--track", default="")
    add("--dry-run", action="store_true")
    args = parser.parse_args(argv)
    loggers.parse_track(args.track)
    runs = expand_runs(args)
    slots, make_executor = executors.executor_from_flags(args, args.workdir)
    configs = [config_dict(run.config, run.overrides) for run in runs]
    # Reading the records takes seconds, so it comes after the checks of the configs.
    args.estimate = Estimator(read.load(write.RESULTS)[0])
    jobs = [job_of_run(args, run, config) for run, config in zip(runs, configs, strict=True)]
    waiting = [job for job in jobs if not job.is_finished()]
    if args.status:
        executors.print_status(jobs, args.workdir)
        return 0
    if len(slots) > 1:  # the longest first, so that all slots are busy until the end
        waiting.sort(key=remaining_seconds, reverse=True)
    time = duration(parallel_seconds(waiting, len(slots)))
    members = sum(map(grids.count_members, configs))
    sweep_size = f"{counted(len(jobs), 'run')} with {counted(members, 'member')}"
    print(f"{sweep_size}; {len(waiting)} to run, about {time}")
    if args.dry_run:
        check_builds(runs)
        print(*(f"  {job.name}" for job in waiting), sep="\n")
        return 0
    code = run_all(waiting, slots, make_executor=make_executor)
    write_table(args, list(zip(runs, jobs, strict=True)))
    return code


def check_builds(runs: Sequence[Run]) -> None:
    """Raises UserError for the first run whose task, model or optimizer cannot be built.

    Nothing is computed, and the devices of the runs need not be present.
    """
    for run in runs:
        config: Any = load_with_overrides(run.config, run.overrides)
        if config.recipe != "train" or build.reads_tokens(config.to_dict()):
            continue
        try:
            build.model(config, build.task(config))
            build.settings(config)
            build.optimizer(config, build.partition(config))
        except UserError as error:
            raise UserError(f"{label(run)}: {error}") from None


def job_of_run(args: Namespace, run: Run, config: dict[str, Any]) -> Job:
    """The job of a run with this config."""
    return make_job(
        label(run),
        run.config,
        run.overrides,
        args.workdir,
        seconds=args.estimate(config),
        extra_flags=(f"--track={args.track}",) if args.track else (),
    )


def write_table(args: Namespace, runs: Sequence[tuple[Run, Job]]) -> None:
    """Writes and prints the table of the finished runs."""
    finished = [(run, job) for run, job in runs if job.is_finished()]
    if finished:
        rows = sweep_table.rows_of_runs(finished)
        sweep_table.write(args.workdir / "sweep.csv", rows)
        sweep_table.show(rows)
        print(f"every member: {args.workdir / 'sweep.csv'}")


def sweep_definition(args: Namespace) -> tuple[str, dict[str, list[str]], dict[str, str]]:
    """Returns (config, grid, fields) from the flags and the file."""
    config, grid, fields = grids.read_file(args.file) if args.file else ("", {}, {})
    grid |= grids.parse_grid(args.grid)
    fields |= args.fields | ({"n_seeds": str(args.seeds)} if args.seeds else {})
    config = config_path(args.config or config)
    if not config:
        raise UserError("give --config=FILE:ARGUMENTS, or --file=FILE.toml with one.")
    return config, grid, fields


def expand_runs(args: Namespace) -> list[Run]:
    """Returns the runs of the grid that the flags and the file define."""
    config, grid, fields = sweep_definition(args)
    runs = grids.expand(config, grid, fields)
    if len(runs) == 1 and not grid:
        raise UserError("nothing to sweep: give --grid FIELD=VALUE,VALUE or {braces} in --config.")
    return runs


def label(run: Run) -> str:
    """Returns a name such as "retrieval frozen_qk, model.layers = 2"."""
    varied = [f"{name} = {value}" for name, value in run.varied.items()]
    return ", ".join([sweep_table.model_name(run), *varied])


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
