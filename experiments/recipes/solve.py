"""Draws one figure of theory, of measured networks, or of both: float64, no training.

config.figure -> FIGURES[name](**settings) -> Outcome -> result.json, arrays.npz, figure.png
"""

import importlib
import inspect
import io
from typing import Any

import jax
import numpy as np

from experiments.shared import describe, plots
from experiments.shared.outcome import Outcome
from jaxformer.errors import UserError, did_you_mean, unknown
from jaxformer.records import Workdir, environment, write_atomically
from jaxformer.training import progress

# name -> "module:function" of experiments/papers; a function takes the fields of config.figure,
# and `seed` and `n_seeds` if it has them.
FIGURES: dict[str, str] = {
    "signal_maps": "two_failure_modes.attention:maps",
    "signal_phase": "two_failure_modes.attention:phase",
    "signal_overlap": "two_failure_modes.attention:overlap",
    "signal_moments": "two_failure_modes.attention:moments",
    "signal_spectrum": "two_failure_modes.attention:spectrum",
    "signal_trainability": "two_failure_modes.depth:trainability",
    "signal_depth": "two_failure_modes.depth:depth",
    "signal_tanh": "two_failure_modes.depth:tanh",
    "signal_no_residual": "two_failure_modes.depth:no_residual",
    "paths_accuracy": "attention_paths.accuracy:accuracy",
    "paths_alignment": "attention_paths.kernels:alignment",
    "paths_head_scores": "attention_paths.heads:head_scores",
    "paths_kernels": "attention_paths.kernels:path_kernels",
    "paths_networks": "attention_paths.heads:networks",
    "paths_order_parameter": "attention_paths.accuracy:order_parameter",
    "paths_robustness": "attention_paths.accuracy:robustness",
    "associations_allocation": "associations.allocation:allocation",
    "associations_embeddings": "associations.theorems:random_embeddings",
    "associations_theory": "associations.theorems:theory",
    "covariance_depth": "mixit.depth:covariance_depth",
    "covariance_trained": "mixit.depth_trained:covariance_trained",
    "universality": "mixit.universality:universality",
    "sde_causal": "mixit.sde:causal",
    "sde_one_step": "mixit.sde:one_step",
    "sde_paths": "mixit.sde_paths:paths",
    "sde_printed_variance": "mixit.sde:printed_variance",
}


def run(config, workdir: Workdir) -> int:
    clock = progress.Stopwatch()
    function, settings = setup(config)
    with jax.enable_x64(True):
        outcome: Outcome = function(**settings)
    write_arrays(workdir, outcome.arrays)
    plots.save(outcome.figure, workdir / "figure.png")
    held = workdir.read("config.json")
    result = {
        **{name: held[name] for name in ("config", "overrides", "config_hash")},
        "scale": config.arguments.scale,
        "seeds": list(range(config.seed, config.seed + config.n_seeds)),
        "metrics": outcome.metrics,
        "members": outcome.members,
        "baselines": outcome.baselines,
        "parameters": {},
        "environment": environment(),
        "seconds": clock.seconds(),
    }
    workdir.write("result.json", result)
    report(workdir)
    return 0


report = describe.print_result


def setup(config) -> tuple[Any, dict[str, Any]]:
    """(function, settings), the settings checked against the function's signature."""
    settings = config.figure.to_dict()
    name = settings.pop("name")
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    if config.n_seeds < 1:
        raise UserError(f"n_seeds must be at least 1, got {config.n_seeds}.")
    module, _, attribute = FIGURES[name].partition(":")
    function = getattr(importlib.import_module(f"experiments.papers.{module}"), attribute)
    known = inspect.signature(function).parameters
    for field in settings:
        if field not in known:
            hint = did_you_mean(field, known)
            raise UserError(f"figure {name!r} has no field {field!r}.{hint}")
    common = {"seed": config.seed, "n_seeds": config.n_seeds}
    return function, settings | {name: v for name, v in common.items() if name in known}


def uses_seeds(config) -> bool:
    return "n_seeds" in setup(config)[1]


def write_arrays(workdir: Workdir, arrays: dict[str, Any]) -> None:
    """arrays.npz: everything the figure shows, so that it can be drawn again."""
    buffer = io.BytesIO()
    plain: Any = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez_compressed(buffer, **plain)
    write_atomically(workdir / "arrays.npz", buffer.getvalue())


def dry_run(config) -> None:
    """Prints what would be drawn."""
    function, settings = setup(config)
    text = inspect.getdoc(function)
    print((text or function.__name__).splitlines()[0])
    print(*(f"  {name} = {value}" for name, value in settings.items()), sep="\n")
