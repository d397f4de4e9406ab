"""Tests whether a task needs in-context reasoning: freezes parts of a transformer and compares.

    jaxformer litmus --task retrieval --scale tiny --seeds 3

  --task=NAME      a config of configs/ with variant=mixit
  --config=FILE    instead of --task: your training config with variant=... and scale=...
  --scale=SCALE    tiny (seconds), small (minutes) or paper (tiny)
  --seeds=N        seeds of every model (3)
  --rates=R,R      learning rates to choose from (those of the config, and their neighbours if it
                   has fewer than three)
  --budget=TIME    time of training, such as 30m, after which no longer run begins (no limit)
  --variants=V,V   models to train (standard,frozen_qk,mixit,random); standard and mixit are
                   required
  --workdir=DIR    folder of the runs (runs/litmus/TASK-SCALE). The same command resumes them

Defaults are in parentheses.

Standard trains all parameters. Frozen-QK keeps queries and keys at their random initial values.
MixiT mixes with a fixed matrix that does not depend on the content. Random trains the embeddings
only. Validation chooses the learning rate of each model. "Above" and "below" mean that the 95 %
interval of a difference excludes zero (Student's t over seeds, with the error of the test set).
"Trivial" is the strongest trivial predictor on the same test set. The first case that applies is
the verdict:

  cannot be told   Standard has one seed, or is not above trivial: there is nothing to explain. Or
                   MixiT is not below Standard, but the interval of their difference is wider than
                   the lead of Standard over trivial
  not needed       MixiT is not below Standard, and is above trivial
  cannot be told   MixiT is below Standard, but was not shown to be trained. A model that loses runs
                   again with 2 and 4 times its steps. It is trained if its best learning rate lies
                   inside the rates, and if twice the steps score the same
  helps            MixiT is above trivial and below Standard
  needed           MixiT is not above trivial with three rates, four times the steps with which
                   Standard solved the task, and five seeds: the task needs attention that looks at
                   the content. Then Frozen-QK shows whether random queries and keys are enough,
                   unless the interval of its difference from Standard is wider than that lead

Writes litmus.json (every number) and litmus.png into the workdir. In Python,
`jaxformer.litmus(task)` gives the same verdict on a task of your own.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import math
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli import flags
from experiments.cli.completion import config_path
from experiments.ledger import read, write
from experiments.schedule import devices, launch
from experiments.schedule.estimates import Estimator
from experiments.schedule.jobs import Job
from experiments.schedule.running import run_all
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.variants import label
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.command_line import Parser, command, count, seconds
from jaxformer.stats import controls
from jaxformer.studies.budget import Spent
from jaxformer.studies.litmus import rule
from jaxformer.studies.litmus.report import make_litmus

# Arguments of a config that the litmus test sets, and the flags for them.
FLAG_OF_ARGUMENT = {"variant": "--variants=V,V", "scale": "--scale=SCALE"}


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--task", default="")
    add("--config", type=config_path, default="")
    add("--scale", default="tiny")
    add("--seeds", type=count, default=3)
    add("--rates", default="")
    add("--budget", type=seconds, default=math.inf)
    add("--variants", default="standard,frozen_qk,mixit,random")
    devices.add_flags(parser)
    add("--workdir", type=Path)
    args = parser.parse_args(argv)
    name, file = task_of(args)
    root = args.workdir or Path(f"runs/litmus/{name.replace(' ', '-')}-{args.scale}")
    jobs = jobs_of(args, file, root)
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(f"{name}, {args.scale}: {len(jobs)} models, {len(waiting)} to train", flush=True)
    if code := run_all(waiting, devices.slots_from_flags(args)):
        return code
    runs = {variant: runs_of(job) for variant, job in jobs.items()}
    trivial = rule.strongest(runs["standard"].results[1]["baselines"])
    # Models that lose run again with more steps, as long as the rule asks for it.
    spent = Spent(is_here=False)
    while longer := longer_jobs(args, file, root, runs, trivial[1]):
        if spent.seconds() > args.budget:
            for variant in longer:
                runs[variant] = runs[variant]._replace(missing=controls.WITHIN_BUDGET)
            break
        waiting = [job for _, job in longer.values() if not job.is_finished()]
        if code := run_all(waiting, devices.slots_from_flags(args)):
            return code
        for variant, (times, job) in longer.items():
            result = Workdir(job.workdir).read("result.json")
            runs[variant] = runs[variant]._replace(results={**runs[variant].results, times: result})
    answer = make_litmus(name, args.scale, runs, trivial)
    answer.save(root)
    print(f"{answer.sentence}\nnumbers: {root / 'litmus.json'}, figure: {root / 'litmus.png'}")
    return 0


def task_of(args: Namespace) -> tuple[str, str]:
    """Returns (name of the task, its config "FILE:ARGUMENTS")."""
    files = flags.training_configs("mixit")
    if bool(args.task) == bool(args.config):
        raise UserError(f"give --task=NAME, one of {', '.join(files)}, or --config=FILE.")
    if args.config:
        file, _, arguments = args.config.partition(":")
        assignments = [part for part in arguments.split(",") if part]
        for assignment in assignments:
            if flag := FLAG_OF_ARGUMENT.get(assignment.partition("=")[0]):
                raise UserError(f"--config has {assignment}; use {flag} instead.")
        return " ".join([Path(file).stem, *assignments]), args.config
    check_choice("task", args.task, files)
    return args.task, files[args.task]


def jobs_of(args: Namespace, config: str, root: Path) -> dict[str, Job]:
    """Returns the job that trains each variant."""
    file, _, arguments = config.partition(":")
    variants = [variant for variant in args.variants.split(",") if variant]
    overrides = {"n_seeds": str(args.seeds)}
    if args.rates:
        overrides["optim.learning_rate"] = args.rates
    more_arguments = f",{arguments}" if arguments else ""
    texts = {
        variant: f"{file}:variant={variant},scale={args.scale}{more_arguments}"
        for variant in dict.fromkeys(variants)
    }
    configs, overrides_of = {}, {}
    for variant, text in texts.items():
        values = launch.config_dict(text, {})
        if (recipe := values["recipe"]) != "train":
            raise UserError(
                f"the litmus test needs a training config; the recipe of {file} is {recipe}."
            )
        overrides_of[variant] = dict(overrides)
        rates: list[float] = [*values["optim"]["learning_rate"]]
        if not args.rates and len(rates) < controls.LEAST_RATES:
            rates = with_neighbours(rates)
            overrides_of[variant]["optim.learning_rate"] = ",".join(f"{x:g}" for x in rates)
        configs[variant] = launch.config_dict(text, overrides_of[variant])
    if missing := {"standard", "mixit"} - set(texts):
        raise UserError(f"--variants must have standard and mixit, {missing.pop()} is missing.")
    # Reading the records takes seconds, so it comes after the checks of the configs.
    estimate = Estimator(read.load(write.RESULTS)[0])
    return {
        variant: launch.make_job(
            label(variant),
            text,
            overrides_of[variant],
            root,
            seconds=estimate(configs[variant]),
        )
        for variant, text in texts.items()
    }


def with_neighbours(rates: Sequence[float]) -> list[float]:
    """A rate three times lower and one three times higher beside those of a config."""
    low, high = min(rates), max(rates)
    return [float(f"{low / 3:.1g}"), *sorted(rates), float(f"{3 * high:.1g}")]


def runs_of(job: Job) -> rule.Runs:
    """The finished first run of a model."""
    return rule.Runs({1: Workdir(job.workdir).read("result.json")}, job.workdir)


def longer_jobs(
    args: Namespace, config: str, root: Path, runs: Mapping[str, rule.Runs], guess: float
) -> dict[str, tuple[int, Job]]:
    """{model: (times its steps, job)} of the runs that models which lose need next."""
    file, _, arguments = config.partition(":")
    more_arguments = f",{arguments}" if arguments else ""
    jobs = {}
    for variant, of_variant in runs.items():
        due = rule.next_run(of_variant, runs["standard"], guess)
        if due is None:
            continue
        times, least_seeds = due
        first = of_variant.results[1]
        chosen = next(member for member in first["members"] if member["chosen"])
        overrides = {
            "n_seeds": str(max(args.seeds, least_seeds)),
            "optim.learning_rate": f"{chosen['learning_rate']!r},",
            "train.steps": str(times * first["config"]["train"]["steps"]),
        }
        text = f"{file}:variant={variant},scale={args.scale}{more_arguments}"
        time_ratio = times * first["seconds"]["run"] if "seconds" in first else 0.0
        name = f"{label(variant)} {times}x"
        jobs[variant] = times, launch.make_job(name, text, overrides, root, seconds=time_ratio)
    return jobs


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
