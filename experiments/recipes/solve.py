"""Draws one figure of theory, of measured networks, or of both: float64, no training.

config.figure -> FIGURES[name](**settings) -> Outcome -> result.json, arrays.npz, figure.png
"""

import importlib
import inspect
import io
from typing import Any

import jax
import numpy as np

from experiments import describe, plots, watch
from experiments.outcome import Outcome
from jaxformer.errors import UserError, did_you_mean, unknown
from jaxformer.records import Workdir, environment, write_atomically

# name -> "module:function" of experiments/figures; a function takes the fields of config.figure,
# and `seed` and `n_seeds` if it has them.
FIGURES: dict[str, str] = {
    "signal_maps": "signal_attention:maps",
    "signal_phase": "signal_attention:phase",
    "signal_overlap": "signal_attention:overlap",
    "signal_moments": "signal_attention:moments",
    "signal_spectrum": "signal_attention:spectrum",
    "signal_trainability": "signal_depth:trainability",
    "signal_depth": "signal_depth:depth",
    "signal_tanh": "signal_depth:tanh",
    "signal_no_residual": "signal_depth:no_residual",
    "paths_accuracy": "paths:accuracy",
    "paths_alignment": "paths_kernels:alignment",
    "paths_head_scores": "paths_heads:head_scores",
    "paths_kernels": "paths_kernels:path_kernels",
    "paths_networks": "paths_heads:networks",
    "paths_order_parameter": "paths:order_parameter",
    "paths_robustness": "paths:robustness",
    "associations_allocation": "allocation:allocation",
    "associations_embeddings": "associations:random_embeddings",
    "associations_theory": "associations:theory",
    "covariance_depth": "sde_depth:covariance_depth",
    "covariance_trained": "sde_trained:covariance_trained",
    "universality": "universality:universality",
    "sde_causal": "sde:causal",
    "sde_one_step": "sde:one_step",
    "sde_paths": "sde_paths:paths",
    "sde_printed_variance": "sde:printed_variance",
}


def run(config, workdir: Workdir) -> int:
    clock = watch.Stopwatch()
    function, settings = setup(config)
    with jax.enable_x64(True):
        outcome: Outcome = function(**settings)
    write_arrays(workdir, outcome.arrays)
    plots.save(outcome.figure, workdir / "figure.png")
    held = workdir.read("config.json")
    result = {
        **{name: held[name] for name in ("config", "overrides", "config_hash")},
        "scale": config.scale,
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
    function = getattr(importlib.import_module(f"experiments.figures.{module}"), attribute)
    known = inspect.signature(function).parameters
    for field in settings:
        if field not in known:
            hint = did_you_mean(field, known)
            raise UserError(f"figure {name!r} has no field {field!r}.{hint}")
    common = {"seed": config.seed, "n_seeds": config.n_seeds}
    return function, settings | {name: v for name, v in common.items() if name in known}


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
