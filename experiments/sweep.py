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
  --processes=N             runs at a time (default 1)
  --dry-run                 how many runs and members, and how long

Learning rates and consecutive seeds share a program: they are members of one run. Finished runs are
skipped, interrupted ones go on: the same command again ends what is left. sweep.csv has a row for
each learning rate of each run. The best of a model is chosen on validation, reported on the test.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.ledger import read
from experiments.ledger.write import RESULTS
from experiments.schedule import grids, launch, sweep_table
from experiments.schedule.estimates import Estimator, run_all
from experiments.schedule.grids import Run
from experiments.schedule.launch import Launcher
from experiments.shared import options
from jaxformer.errors import UserError
from jaxformer.training.progress import clock

DEFAULTS = dict(
    config="", grid=(), file="", workdir="runs/sweep", seeds=0, processes=1, dry_run=False
)


def main(argv: Sequence[str]) -> int:
    if any(word in options.HELP for word in argv):
        print(__doc__)
        return 0
    try:
        return sweep(options.parse(argv, DEFAULTS, fields=True))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def sweep(asked: Mapping[str, Any]) -> int:
    root = Path(asked["workdir"])
    runs = expanded(asked)
    jobs = [launch.job(label(run), run.config, run.overrides, root) for run in runs]
    held = [launch.settings(run.config, run.overrides) for run in runs]
    estimate = Estimator(read.load(RESULTS)[0])
    times = {job.workdir: estimate(config) for job, config in zip(jobs, held, strict=True)}
    members = sum(map(_members, held))
    waiting = [job for job in jobs if not job.is_finished()]
    long = clock(sum(times[job.workdir] for job in waiting) / asked["processes"])
    print(f"{len(jobs)} runs with {members} members; {len(waiting)} to run, about {long}")
    if asked["dry_run"]:
        print(*(f"  {job.name}" for job in waiting), sep="\n")
        return 0
    with Launcher(asked["processes"]) as launcher:
        failed = run_all(launcher, waiting, times, asked["processes"])
    stopped = launcher.signal
    done = [(run, job) for run, job in zip(runs, jobs, strict=True) if job.is_finished()]
    if done:
        rows = sweep_table.gather(done)
        sweep_table.write(root / "sweep.csv", rows)
        sweep_table.show(rows)
        print(f"every member: {root / 'sweep.csv'}")
    if stopped:
        print(f"stopped after {len(done)} of {len(jobs)} runs; the same command goes on.")
    for outcome in failed:
        print(f"failed: {outcome.job.name}: {outcome.message} ({outcome.job.log()})")
    return 128 + stopped if stopped else 1 if failed else 0


def expanded(asked: Mapping[str, Any]) -> list[Run]:
    """The runs that the flags and the file ask for; each config once."""
    config, grid, fields = grids.read(asked["file"]) if asked["file"] else ("", {}, {})
    grid |= grids.parse_grid(asked["grid"])
    fields |= asked["config."] | ({"n_seeds": str(asked["seeds"])} if asked["seeds"] else {})
    config = asked["config"] or config
    if not config:
        raise UserError("say --config=FILE:ARGUMENTS, or --file=FILE.toml with one.")
    runs = grids.expand(config, grid, fields)
    if len(runs) == 1 and not grid:
        raise UserError("nothing to sweep: give --grid FIELD=VALUE,VALUE or {braces} in --config.")
    return runs


def label(run: Run) -> str:
    """ "retrieval frozen_qk, model.layers = 2"."""
    varied = [f"{name} = {value}" for name, value in run.varied.items()]
    return ", ".join([sweep_table.model(run), *varied])


def _members(config: Mapping[str, Any]) -> int:
    rates = config.get("optim", {}).get("learning_rate", (0.0,))
    return len(rates) * max(int(config["n_seeds"]), 1)


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
