"""Runs one experiment: a config names everything, a folder keeps everything.

    python experiments/run.py --config=configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny

  --config=FILE:ARGUMENTS   a config of configs/; its docstring says what it shows, how long it
                            takes and what to expect. ARGUMENTS: variant=...,scale=tiny|small|paper
  --config.FIELD=VALUE      overrides any field, e.g. --config.optim.learning_rate=1e-3
  --workdir=DIR             where the run lives (default: runs/NAME in the current folder). The same
                            command on the same folder resumes an interrupted run.
  --record                  copies the finished result into results/, where the report finds it
  --draw                    draws the figure of a finished run again, and measures nothing;
                            --draw=FILE.pdf draws it there (png, pdf or svg)
  --track=tensorboard,wandb,trackio
                            copies the rows there too (wandb is offline unless WANDB_MODE is set)
  --profile=START:STEPS     a trace of these steps of a training, in the run's folder
  --dry-run                 builds everything and prints parameters by label, FLOPs, memory, time
  --measure                 the same after a few steps, by which time and memory are measured
  --help                    this text and the list of configs; with --config=FILE, its docstring

Ctrl-C or SIGTERM saves and stops; a second one stops at once. Exit code 4: the run has ended, but
its chains are not to be trusted; its record says so and no verdict counts it.
"""

try:
    import experiments, jax  # noqa: E401, F401, I001 (experiments first: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import contextlib
import inspect
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from experiments import recipes
from experiments.cli import describe, flags
from experiments.ledger.record import run_name
from experiments.ledger.write import write_record
from experiments.recipes import finish_run
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir, config_hash, open_workdir
from jaxformer.runtime import processes
from jaxformer.runtime.command_line import Parser, command
from jaxformer.training import loggers


@command
def main(argv: Sequence[str]) -> int:
    asked = parse(argv)
    try:
        processes.start()
        if not processes.is_writer():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (one voice for the whole job)
        code = run(asked)
        processes.finish()
        return code
    except BaseException as error:
        processes.fail(error)  # of several processes this one ends here, and the others hear of it
        raise


def parse(argv: Sequence[str]) -> Namespace:
    """The flags; `config` is the whole config, `file` its name, `overrides` what they changed."""
    parser = Parser(__doc__, fields=True, manual=manual)
    parser.add_argument("--config", default="")
    parser.add_argument("--workdir", default="")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--draw", nargs="?", const="")
    parser.add_argument("--track", default="")
    parser.add_argument("--profile", default="")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--measure", action="store_true")
    asked = parser.parse_args(argv)
    asked.track = loggers.parse_track(asked.track)
    asked.profile = loggers.parse_profile(asked.profile)
    if not asked.config:
        known = ", ".join(flags.known_configs())
        raise UserError(f"no config given; say --config=FILE, one of {known}.")
    asked.file, asked.config = asked.config, flags.load_config(asked.config)
    asked.overrides = {
        name: flags.override(asked.config, name, text) for name, text in asked.fields.items()
    }
    return asked


def manual(asked: Namespace) -> str:
    """What --help prints: a config's docstring, or this one and the titles of all configs."""
    if asked.config:
        return flags.manual(asked.config)
    titles = [f"  {f}\n      {flags.manual(f).splitlines()[0]}" for f in flags.known_configs()]
    return "\n".join([str(__doc__), "Configs:", *titles])


def run(asked: Namespace) -> int:
    processes.cache_compiled_programs()
    config = asked.config.copy_and_resolve_references()
    recipe = recipes.module(str(config.recipe))
    plain = flags.plain(config)
    recipes.check(plain)
    if asked.profile and "train" not in recipes.RECIPES[config.recipe].sections:
        raise UserError(
            f"--profile needs steps of training; the recipe {config.recipe!r} has none."
        )
    if asked.dry_run or asked.measure:
        recipe.dry_run(config, **timed(asked, recipe))
        return 0
    held = {"config": plain, "config_file": asked.file, "overrides": asked.overrides}
    held["config_hash"] = config_hash(build.config_identity(plain))
    folder = Path(asked.workdir or Path("runs") / run_name(plain, held["config_hash"]))
    if asked.draw is not None and not hasattr(recipe, "redraw"):
        raise UserError(f"--draw draws arrays; runs of the recipe {config.recipe!r} keep none.")
    if asked.draw is not None and not folder.is_dir():
        raise UserError(f"--draw needs a finished run; there is none in {folder}.")
    if build.reads_tokens(plain) and not (folder / "result.json").exists():
        held |= build.tokens_of(build.task(config))
    code = 0
    with open_workdir(folder, held) as workdir:
        if asked.draw is not None:
            print(f"drawn again: {recipe.redraw(workdir, asked.draw)}")
        elif (workdir / "result.json").exists():
            if hasattr(recipe, "tidy"):
                recipe.tidy(workdir)
            if hasattr(recipe, "redraw") and finish_run.lacks_figure(workdir):
                recipe.redraw(workdir)
            print(f"{workdir.path} holds the finished run of this config:")
            describe.print_result(workdir)
            code = finish_run.code(workdir)
        else:
            with heard(asked, workdir, plain):
                code = recipe.run(config, workdir)
        if asked.record and code in (0, finish_run.UNTRUSTED) and processes.is_writer():
            print(f"recorded as {write_record(workdir)}")
        return code


def timed(asked: Namespace, recipe: ModuleType) -> dict[str, bool]:
    """What a dry run is told beside its config."""
    if asked.measure and "measured" not in inspect.signature(recipe.dry_run).parameters:
        raise UserError(
            f"--measure times a training step, of which the recipe {asked.config.recipe!r} has "
            "none that --dry-run knows: say --dry-run alone."
        )
    return {"measured": True} if asked.measure else {}


@contextlib.contextmanager
def heard(asked: Namespace, workdir: Workdir, plain: dict) -> Iterator[None]:
    """While the run goes on, those who were asked for hear of it."""
    made = [loggers.TRACKERS[name](workdir.path, plain) for name in asked.track]
    if asked.profile:
        made.append(loggers.Profile(workdir.path, *asked.profile))
    workdir.loggers = loggers.Loggers(made if processes.is_writer() else [])
    try:
        yield
    finally:
        workdir.loggers.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
