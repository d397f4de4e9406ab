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
  --dry-run                 builds everything and prints parameters by label, FLOPs, memory, time
  --help                    this text and the list of configs

Ctrl-C or SIGTERM saves and stops; a second one stops at once.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
from jax.errors import JaxRuntimeError

from experiments import recipes
from experiments.shared import flags


def main(argv: Sequence[str]) -> int:
    from jaxformer import processes
    from jaxformer.errors import UserError

    try:
        processes.start()
        if not processes.is_writer():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (one voice for the whole job)
        command = flags.parse(argv)
        if command is None:
            print(__doc__)
            print("Configs:", *flags.known_configs(), sep="\n  ")
            return 0
        return run(command)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        print(
            "error: another process of this job stopped; the same command goes on from the last "
            f"checkpoint. ({str(error).splitlines()[0][:120]})",
            file=sys.stderr,
            flush=True,
        )
        os._exit(3)  # the usual exit would wait for the process that is gone


def run(command: flags.Command) -> int:
    from experiments.ledger.record import run_name
    from experiments.ledger.write import keep
    from jaxformer import build, processes
    from jaxformer.errors import UserError
    from jaxformer.records import config_hash, open_workdir

    _cache_compilations()
    config = command.config.copy_and_resolve_references()
    recipe = recipes.module(str(config.recipe))
    plain = flags.plain(config)
    recipes.check(plain)
    if command.dry_run:
        recipe.dry_run(config)
        return 0
    held = {
        "config": plain,
        "config_file": command.config_string,
        "overrides": command.overrides,
    }
    held["config_hash"] = config_hash(build.said(plain))
    folder = Path(command.workdir or Path("runs") / run_name(plain, held["config_hash"]))
    if command.draw is not None and (config.recipe != "solve" or not folder.is_dir()):
        raise UserError(f"--draw needs a finished run of the recipe 'solve'; {folder} has none.")
    with open_workdir(folder, held) as workdir:
        if command.draw is not None:
            print(f"drawn again: {recipe.redraw(workdir, command.draw)}")
            code = 0
        elif (workdir / "result.json").exists():
            print(f"{workdir.path} holds the finished run of this config:")
            recipe.report(workdir)
            code = 0
        else:
            code = recipe.run(config, workdir)
        if command.record and code == 0 and processes.is_writer():
            print(f"recorded as {keep(workdir)}")
        return code


def _cache_compilations() -> None:
    """Keeps compiled programs between runs, so that the second run starts at once."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "jaxformer"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
