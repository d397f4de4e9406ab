"""Plans memory and time of a config on machines that need not be present (`run.py --target=NAMES`).

Each target is compiled in a process of its own, because the compilers read environment variables
when they are loaded:

    python -m experiments.recipes.plan_targets TARGET FILE:ARGUMENTS [--config.FIELD=VALUE ..]

This command prints the plan as one line of JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments import recipes
from experiments.cli import flags
from experiments.cli.recipe_table import RECIPES
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import byte_size
from jaxformer.planning.compile_plan import plan_step
from jaxformer.planning.plan import Plan
from jaxformer.planning.targets import Target, check_compiler, parse_target
from jaxformer.training.cost.memory import state_bytes

INPUT_ERROR_CODE = 2
MODULE = "experiments.recipes.plan_targets"
ROOT = Path(__file__).parents[2]


def plan_targets(
    config_file: str, overrides: Mapping[str, str], targets: Sequence[Target]
) -> list[Plan]:
    """Returns the plan of a config for each target.

    Args:
        config_file: FILE:ARGUMENTS.
        overrides: {field: text} of the flags --config.FIELD=VALUE.
        targets: the machines.
    """
    for target in targets:
        check_compiler(target)
    return [_plan_in_process(config_file, overrides, target) for target in targets]


def use_no_accelerator() -> None:
    """Makes JAX use the CPU only, because its search for missing accelerators prints tracebacks."""
    jax.config.update("jax_platforms", "cpu")


def _plan_in_process(config_file: str, overrides: Mapping[str, str], target: Target) -> Plan:
    fields = [f"--config.{name}={text}" for name, text in overrides.items()]
    command = [sys.executable, "-m", MODULE, target.name, config_file, *fields]
    python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **target.environment(), "PYTHONPATH": python_path}
    # Otherwise the last line of a traceback is JAX's advice and not the error.
    environment["JAX_TRACEBACK_FILTERING"] = "off"
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = process.stdout.splitlines()
    if process.returncode == INPUT_ERROR_CODE and lines:
        raise UserError(lines[-1])
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"the compiler of {target.name} ended with code {process.returncode}: {reason}"
        )
    return Plan.from_json(json.loads(lines[-1]))


def print_plans(plans: Sequence[Plan]) -> None:
    """Prints one plan in full, or a table of several."""
    if len(plans) == 1:
        print(plans[0])
        return
    sizes = ("peak", "free", "FLOPs", "sent")
    header = ("target", "mesh", *sizes, "at least", "bound", "forecast", "compiled")
    rows = [header, *(_row(plan) for plan in plans)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    for plan in plans:
        if not plan.fits:
            for option in plan.to_try:
                print(f"{plan.target}: try {option}")


def _row(plan: Plan) -> tuple[str, ...]:
    mesh = " ".join(f"{axis}={size}" for axis, size in plan.mesh.items() if size > 1) or "-"
    free = byte_size(plan.capacity - plan.peak) if plan.fits else "does not fit"
    sent = byte_size(sum(exchange.sent_bytes for exchange in plan.exchanges))
    time, bound = (f"{plan.step_seconds:.3g} s", plan.bound) if plan.seconds else ("-", "-")
    sizes = (byte_size(plan.peak), free, f"{plan.flops:.3g}", sent)
    forecast = f"{plan.forecast_seconds:.3g} s" if plan.classes else "-"
    return (plan.target, mesh, *sizes, time, bound, forecast, f"{plan.compile_seconds:.0f} s")


def plan_config(config_file: str, overrides: Mapping[str, str], target: Target) -> Plan:
    """Compiles the training step of a config for a target, in this process."""
    config: Any = flags.load_config(config_file)
    for name, text in overrides.items():
        flags.override(config, name, text)
    config = config.copy_and_resolve_references()
    recipe = recipes.module(str(config.recipe))
    if "train" not in RECIPES[config.recipe].sections:
        raise UserError(
            f"--target compiles training steps, and the recipe {config.recipe!r} has none."
        )
    devices = build.device_settings(config)
    build.use_one_device(config)
    # A recipe whose phases of training differ from the config's defines `phases_of`.
    phases_of = getattr(recipe, "phases_of", build.phases)
    largest_setup = max((phase.setup for phase in phases_of(config)), key=state_bytes)
    return plan_step(largest_setup, devices, target)


def main(arguments: Sequence[str]) -> int:
    target, config_file, *fields = arguments
    pairs = (field.removeprefix("--config.").split("=", 1) for field in fields)
    try:
        plan = plan_config(config_file, dict(pairs), parse_target(target))
    except UserError as error:
        print(error)
        return INPUT_ERROR_CODE
    print(json.dumps(plan.as_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
