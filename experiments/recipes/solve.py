"""Computes and draws one figure of theory or of measured networks, in float64, without training.

config.figure -> FIGURES[name].measure(..) -> result.json, arrays.npz
config.json, arrays.npz -> FIGURES[name].draw(arrays, ..) -> figure.png

The figure can be drawn again later from the files of the run.
"""

import importlib
import inspect
import sys
from typing import Any

import jax

from experiments.papers.attention_paths import problem
from experiments.papers.outcome import Figure, Outcome, call, settings_of
from experiments.recipes import finish_run
from jaxformer.core.errors import UserError, check_choice, check_range, did_you_mean
from jaxformer.io.run_folder import Workdir, flatten_config
from jaxformer.runtime import progress
from jaxformer.training.population import check_seeds
from jaxformer.training.result import result_of

# Name -> "MODULE:FIGURE". The module of experiments/papers has measure_FIGURE and draw_FIGURE.
# The papers' records have these names; another figure is named by its module (`functions`).
FIGURES: dict[str, str] = {
    "signal_maps": "two_failure_modes.attention:maps",
    "signal_phase": "two_failure_modes.attention:phase",
    "signal_overlap": "two_failure_modes.score_rows:overlap",
    "signal_exponents": "two_failure_modes.score_rows:exponents",
    "signal_scores": "two_failure_modes.score_rows:scores",
    "signal_moments": "two_failure_modes.attention:moments",
    "signal_spectrum": "two_failure_modes.attention:spectrum",
    "signal_trainability": "two_failure_modes.boundary:trainability",
    "signal_critical": "two_failure_modes.boundary:critical",
    "signal_gradients": "two_failure_modes.gradients:gradients",
    "signal_lengths": "two_failure_modes.lengths:lengths",
    "signal_weight_laws": "two_failure_modes.weight_laws:weight_laws",
    "signal_depth": "two_failure_modes.depth:depth",
    "signal_tanh": "two_failure_modes.depth:tanh",
    "signal_no_residual": "two_failure_modes.depth:no_residual",
    "paths_accuracy": "attention_paths.accuracy:accuracy",
    "paths_alignment": "attention_paths.kernels:alignment",
    "paths_datasets": "attention_paths.datasets:datasets",
    "paths_effective": "attention_paths.effective_weights:effective",
    "paths_head_scores": "attention_paths.heads:head_scores",
    "paths_kernels": "attention_paths.kernels:path_kernels",
    "paths_networks": "attention_paths.heads:networks",
    "paths_order_parameter": "attention_paths.accuracy:order_parameter",
    "paths_robustness": "attention_paths.accuracy:robustness",
    "associations_allocation": "associations.allocation:allocation",
    "associations_bounds": "associations.bounds:bounds",
    "associations_chosen_layer": "associations.chosen_layer:chosen_layer",
    "associations_finetuned_parts": "associations.finetuned_parts:finetuned_parts",
    "associations_gsm8k": "associations.gsm8k:gsm8k",
    "associations_lemmas": "associations.lemmas:lemmas",
    "associations_published": "associations.published:published",
    "associations_embeddings": "associations.theorems:random_embeddings",
    "associations_samples": "associations.sample_complexity:samples",
    "associations_theory": "associations.theorems:theory",
    "covariance_depth": "mixit.depth:covariance_depth",
    "covariance_trained": "mixit.depth_trained:covariance_trained",
    "speed": "mixit.speed:speed",
    "universality": "mixit.universality:universality",
    "rank_collapse": "mixit.rank_collapse:rank_collapse",
    "sde_causal": "mixit.sde:causal",
    "sde_one_step": "mixit.sde:one_step",
    "sde_paths": "mixit.sde_paths:paths",
    "sde_printed_variance": "mixit.sde:printed_variance",
}

# Figures that sample one hidden Markov task for each seed. `data.file` can replace the task.
FIGURES_WITH_FILE = (
    "paths_accuracy",
    "paths_alignment",
    "paths_head_scores",
    "paths_kernels",
    "paths_networks",
    "paths_order_parameter",
)

# Integer fields that may be 0. In figure.questions and figure.sentences, 0 means all of them.
FIELDS_WITH_ZERO = (
    "figure.multipliers",
    "figure.warmup",
    "figure.loss_chunk",
    "figure.questions",
    "figure.sentences",
)


def run(config, workdir: Workdir) -> int:
    stopwatch = progress.Stopwatch()
    figure, settings = checked(config)
    n_seeds = settings.get("n_seeds", config.n_seeds)
    with jax.enable_x64(True):
        outcome: Outcome = call(figure.measure, settings)
    finish_run.write_arrays(workdir, outcome.arrays)
    result = result_of(
        workdir,
        seeds=range(config.seed, config.seed + n_seeds),
        metrics=outcome.metrics,
        seconds=stopwatch.seconds(),
        baselines=outcome.baselines,
        alarms=outcome.alarms or None,
        diagnostics=outcome.chains or None,  # of Markov chains
    )
    for alarm in outcome.alarms:
        print(alarm)
    finish_run.write(workdir, result, redraw)
    return 0


def figure(config, arrays):
    """Draws the figure from the arrays of a run."""
    functions, settings = setup(config)
    return call(functions.draw, settings | {"arrays": arrays})


redraw = finish_run.make_redraw(figure)


def setup(config) -> tuple[Figure, dict[str, Any]]:
    """Returns (figure, settings).

    Every setting must be a parameter of the function that measures the figure.
    """
    settings = config.figure.to_dict()
    name = settings.pop("name")
    check_seeds(config.n_seeds)
    check_range("seed", config.seed, 0)
    figure = functions(name)
    parameters = settings_of(figure.measure)
    common = {"seed": config.seed, "n_seeds": config.n_seeds}
    if _file(config):
        if name not in FIGURES_WITH_FILE:
            raise UserError(
                f"figure {name!r} takes no data.file: it draws its own data. Figures that take "
                f"one: {', '.join(FIGURES_WITH_FILE)}."
            )
        settings["task"] = {"file": _file(config)}
        common["n_seeds"] = 1  # a file has one data set
    for field in settings:
        if field not in parameters:
            hint = did_you_mean(field, parameters)
            raise UserError(f"figure {name!r} has no field {field!r}.{hint}")
    for field, value in flatten_config(settings).items():
        check_numbers(f"figure.{field}", value)
    if "file" in settings.get("task", {}):
        problem.example(config.seed, **settings["task"])  # raises for a wrong file
    elif "task" in settings:
        problem.check(settings["task"]["design"], settings["task"]["readout"])
    return figure, settings | {name: v for name, v in common.items() if name in parameters}


def functions(name: str) -> Figure:
    """The functions of a figure, such as "universality" or "package.module:figure".

    The second form needs no entry in FIGURES: the module has measure_figure and draw_figure.
    """
    if ":" in name:
        module_name, _, suffix = name.partition(":")
    else:
        check_choice("figure", name, FIGURES)
        module_name, _, suffix = f"experiments.papers.{FIGURES[name]}".partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not error.name or not module_name.startswith(error.name):
            raise
        raise UserError(f"figure {name!r}: there is no module {error.name!r}.") from None
    names = [f"measure_{suffix}", f"draw_{suffix}"]
    for function in names:
        if not hasattr(module, function):
            known = [other for other in vars(module) if other.startswith(("measure_", "draw_"))]
            hint = did_you_mean(function, known)
            raise UserError(f"figure {name!r}: {module_name} has no {function}.{hint}")
    return Figure(*(getattr(module, function) for function in names))


def check_numbers(field: str, value: Any) -> None:
    """Raises UserError if a number is not allowed.

    Counts must be at least 1, or 0 for some fields. Other numbers must be finite and at least 0.
    """
    if isinstance(value, list | tuple):
        for entry in value:
            check_numbers(field, entry)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        is_count = isinstance(value, int) and field not in FIELDS_WITH_ZERO
        check_range(field, value, 1 if is_count else 0)


def checked(config) -> tuple[Figure, dict[str, Any]]:
    """Returns (figure, settings) after the figure's own check.

    Drawing needs no such check, so `figure` calls `setup` only.
    """
    figure, settings = setup(config)
    module = sys.modules[figure.measure.__module__]
    name = figure.measure.__name__.replace("measure_", "check_", 1)
    if hasattr(module, name):
        call(getattr(module, name), settings)
    return figure, settings


def uses_seeds(config) -> bool:
    """Returns whether more seeds change the results of a config."""
    return "n_seeds" in setup(config)[1] and not _file(config)


def _file(config) -> str:
    """Returns the user's data file of a config, or ""."""
    return config.data.file if "data" in config else ""


def dry_run(config) -> None:
    figure, settings = checked(config)
    print((inspect.getdoc(figure.measure) or config.figure.name).splitlines()[0])
    print(*(f"  {name} = {value}" for name, value in settings.items()), sep="\n")
