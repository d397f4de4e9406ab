"""Runs one experiment: a config defines it, and a folder stores all of its files.

    jaxformer run mixit/retrieval:variant=frozen_qk,scale=tiny
    python experiments/run.py --config=configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny

The second line is the same command in a clone.

A config is FILE:ARGUMENTS. Its docstring describes the experiment, its time and its result.
--config.FIELD=VALUE overrides any field, such as --config.optim.learning_rate=1e-3. --help prints
this text and all configs; with --config=FILE it prints the docstring of that config.

Ctrl-C or SIGTERM saves and stops; a second one stops at once. Exit code 4: the run has ended, but
its chains failed their diagnostics; its record is marked and no verdict uses it.
"""

try:
    # First: makes a Ctrl-C during other imports print one line.
    import experiments, jax  # noqa: E401, F401, I001
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import contextlib
import inspect
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from experiments import recipes
from experiments.cli import describe, flags
from experiments.cli.completion import config_path
from experiments.cli.recipe_table import RECIPES
from experiments.ledger.record import run_name
from experiments.ledger.write import write_record
from experiments.recipes import finish_run, plan_targets
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir, config_hash, open_workdir
from jaxformer.planning.targets import parse_targets
from jaxformer.runtime import processes
from jaxformer.runtime.command_line import Parser, command
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.training import loggers


@command
def main(argv: Sequence[str]) -> int:
    args = parse(argv)
    try:
        processes.start()
        if not processes.is_writer():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only process 0 prints)
        code = run(args)
        processes.finish()
        return code
    except BaseException as error:
        processes.fail(error)  # informs the other processes of the job
        raise


def parse(argv: Sequence[str]) -> Namespace:
    """Parses the flags and loads the config.

    Returns:
        The flags, with `config` (the ConfigDict), `file` (its "FILE:ARGUMENTS") and `overrides`.
    """
    parser = Parser(__doc__, fields=True, manual=lambda args: manual(args, parser))
    add = parser.add_argument
    add(
        "--config",
        type=config_path,
        default="",
        metavar="FILE:ARGUMENTS",
        help="a config, such as mixit/retrieval; ARGUMENTS are variant=...,scale=tiny|small|paper",
    )
    add(
        "--workdir",
        default="",
        metavar="DIR",
        help="folder of the run (default: runs/NAME in the current folder). The same command on "
        "the same folder resumes an interrupted run",
    )
    add("--record", action="store_true", help="copy the result into results/ for the report")
    add(
        "--draw",
        nargs="?",
        const="",
        metavar="FILE",
        help="draw the figure of a finished run again and measure nothing; FILE is a png, pdf or "
        "svg (default: figure.png in the folder)",
    )
    add(
        "--track",
        default="",
        metavar="SERVICES",
        help="also send the rows to tensorboard,wandb (wandb is offline unless WANDB_MODE is set)",
    )
    add(
        "--profile",
        default="",
        metavar="START:STEPS",
        help="write a trace of these training steps into the run's folder",
    )
    add(
        "--all",
        action="store_true",
        help="print all metrics of the result: also those of groups, unseen examples and speed",
    )
    add(
        "--dry-run",
        action="store_true",
        help="build everything and print parameters by label, FLOPs, memory, time",
    )
    add(
        "--measure",
        action="store_true",
        help="like --dry-run, with time and memory measured over a few steps",
    )
    add(
        "--target",
        default="",
        metavar="MACHINES",
        help="with --dry-run: compile a step for machines that need not be present, such as "
        "v5e:4x4,h100:8, and print memory, FLOPs, communication and the shortest possible time",
    )
    args = parser.parse_args(argv)
    args.targets = parse_targets(args.target) if args.target else []
    if args.targets and args.measure:
        raise UserError(
            "--measure times steps on this machine, and --target compiles for another one: give "
            "one of them."
        )
    if args.targets and not args.dry_run:
        raise UserError("--target plans a run and does not start it: give --dry-run too.")
    if args.targets:
        plan_targets.use_no_accelerator()
    args.track = loggers.parse_track(args.track)
    args.profile = loggers.parse_profile(args.profile)
    if not args.config:
        raise UserError(
            "no config given; give one, such as `jaxformer run mixit/retrieval:scale=tiny`. "
            "`jaxformer configs` lists all configs."
        )
    args.file, args.config = args.config, flags.load_config(args.config)
    # Another text clears the fingerprint of the config's, so that a given one must come after it.
    in_order = sorted(args.fields.items(), key=lambda field: field[0] == "task.fingerprint")
    args.overrides = {name: flags.override(args.config, name, text) for name, text in in_order}
    return args


def manual(args: Namespace, parser: Parser) -> str:
    """Returns the text of --help: a config's docstring, or the flags and a list of configs."""
    if args.config:
        return flags.config_docstring(args.config)
    titles = [
        f"  {file}\n      {flags.config_docstring(file).splitlines()[0]}"
        for file in flags.config_files()
    ]
    return "\n".join([parser.format_help(), "Configs:", *titles])


def run(args: Namespace) -> int:
    """Runs, resumes, draws or dry-runs a config; returns the exit code."""
    use_compilation_cache()
    config = args.config.copy_and_resolve_references()
    recipe = recipes.module(str(config.recipe))
    config_dict = flags.to_dict(config)
    recipes.check(config_dict)
    if args.profile and "train" not in RECIPES[config.recipe].sections:
        raise UserError(
            f"--profile needs steps of training; the recipe {config.recipe!r} has none."
        )
    if args.targets:
        plan_targets.print_plans(plan_targets.plan_targets(args.file, args.fields, args.targets))
        return 0
    if args.dry_run or args.measure:
        recipe.dry_run(config, **dry_run_options(args, recipe))
        return 0
    identity = {"config": config_dict, "config_file": args.file, "overrides": args.overrides}
    identity["config_hash"] = config_hash(build.config_identity(config_dict))
    default_folder = Path("runs") / run_name(config_dict, identity["config_hash"])
    folder = Path(args.workdir or default_folder)
    if args.draw is not None and not hasattr(recipe, "redraw"):
        raise UserError(f"--draw draws arrays; runs of the recipe {config.recipe!r} store none.")
    if args.draw is not None and not folder.is_dir():
        raise UserError(f"--draw needs a finished run; there is none in {folder}.")
    if build.reads_tokens(config_dict) and not (folder / "result.json").exists():
        identity |= build.tokens_of(build.task(config))
    code = 0
    with removed_if_refused(folder), open_workdir(folder, identity) as workdir:
        if args.draw is not None:
            print(f"drawn again: {recipe.redraw(workdir, args.draw)}")
        elif (workdir / "result.json").exists():
            if hasattr(recipe, "tidy"):
                recipe.tidy(workdir)
            if hasattr(recipe, "redraw") and finish_run.lacks_figure(workdir):
                recipe.redraw(workdir)
            print(f"{workdir.path} holds the finished run of this config:")
            describe.print_result(workdir, args.all)
            code = finish_run.exit_code(workdir)
        else:
            with attached_loggers(args, workdir, config_dict):
                code = recipe.run(config, workdir)
            if (workdir / "result.json").exists():
                describe.print_result(workdir, args.all)
        if args.record and code in (0, finish_run.UNTRUSTED) and processes.is_writer():
            print(f"recorded as {write_record(workdir)}")
            from experiments.site import after_record  # 2 s: the claims of all papers

            for line in after_record.verdict_lines(config_dict, args.file):
                print(line)
        return code


@contextlib.contextmanager
def removed_if_refused(folder: Path) -> Iterator[None]:
    """Deletes a new folder if a UserError ends the run before its first row or checkpoint."""
    is_new = not folder.exists()
    try:
        yield
    except UserError:
        names = {file.name for file in folder.glob("*")} if folder.is_dir() else set()
        if is_new and processes.is_writer() and names <= {"config.json", "env.json", ".lock"}:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def dry_run_options(args: Namespace, recipe: ModuleType) -> dict[str, bool]:
    """Returns the keyword arguments of the recipe's `dry_run`."""
    if args.measure and "measured" not in inspect.signature(recipe.dry_run).parameters:
        raise UserError(
            f"--measure times training steps, and the recipe {args.config.recipe!r} cannot measure "
            "them: give --dry-run alone."
        )
    return {"measured": True} if args.measure else {}


@contextlib.contextmanager
def attached_loggers(args: Namespace, workdir: Workdir, config: dict) -> Iterator[None]:
    """Attaches the loggers of --track and --profile to a run, and closes them afterwards."""
    new_loggers = [loggers.TRACKERS[name](workdir.path, config) for name in args.track]
    if args.profile:
        new_loggers.append(loggers.Profile(workdir.path, *args.profile))
    workdir.loggers = loggers.Loggers(new_loggers if processes.is_writer() else [])
    try:
        yield
    finally:
        workdir.loggers.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
