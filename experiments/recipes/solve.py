"""Computes and draws one figure of theory or of measured networks, in float64, without training.

config.figure -> FIGURES[name].measure(..) -> result.json, arrays.npz
config.json, arrays.npz -> FIGURES[name].draw(arrays, ..) -> figure.png

The figure can be drawn again later from the files of the run.
"""

import importlib
import inspect
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

# Name -> "MODULE:FIGURE", a `Figure` in a module of experiments/papers. The papers' records have
# these names; another figure is named by its module (`figure_of`).
FIGURES: dict[str, str] = {
    "signal_maps": "two_failure_modes.attention:MAPS",
    "signal_phase": "two_failure_modes.attention:PHASE",
    "signal_overlap": "two_failure_modes.score_rows:OVERLAP",
    "signal_exponents": "two_failure_modes.score_rows:EXPONENTS",
    "signal_scores": "two_failure_modes.score_rows:SCORES",
    "signal_moments": "two_failure_modes.attention:MOMENTS",
    "signal_spectrum": "two_failure_modes.attention:SPECTRUM",
    "signal_trainability": "two_failure_modes.boundary:TRAINABILITY",
    "signal_critical": "two_failure_modes.boundary:CRITICAL",
    "signal_gradients": "two_failure_modes.gradients:GRADIENTS",
    "signal_lengths": "two_failure_modes.lengths:LENGTHS",
    "signal_weight_laws": "two_failure_modes.weight_laws:WEIGHT_LAWS",
    "signal_depth": "two_failure_modes.depth:DEPTH",
    "signal_tanh": "two_failure_modes.depth:TANH",
    "signal_no_residual": "two_failure_modes.depth:NO_RESIDUAL",
    "paths_accuracy": "attention_paths.accuracy:ACCURACY",
    "paths_alignment": "attention_paths.kernels:ALIGNMENT",
    "paths_datasets": "attention_paths.datasets:DATASETS",
    "paths_effective": "attention_paths.effective_weights:EFFECTIVE",
    "paths_head_scores": "attention_paths.heads:HEAD_SCORES",
    "paths_kernels": "attention_paths.kernels:PATH_KERNELS",
    "paths_networks": "attention_paths.heads:NETWORKS",
    "paths_order_parameter": "attention_paths.accuracy:ORDER_PARAMETER",
    "paths_robustness": "attention_paths.accuracy:ROBUSTNESS",
    "associations_allocation": "associations.allocation:ALLOCATION",
    "associations_bounds": "associations.bounds:BOUNDS",
    "associations_chosen_layer": "associations.chosen_layer:CHOSEN_LAYER",
    "associations_finetuned_parts": "associations.finetuned_parts:FINETUNED_PARTS",
    "associations_gsm8k": "associations.gsm8k:GSM8K",
    "associations_lemmas": "associations.lemmas:LEMMAS",
    "associations_published": "associations.published:PUBLISHED",
    "associations_embeddings": "associations.theorems:RANDOM_EMBEDDINGS",
    "associations_samples": "associations.sample_complexity:SAMPLES",
    "associations_theory": "associations.theorems:THEORY",
    "covariance_depth": "mixit.depth:COVARIANCE_DEPTH",
    "covariance_trained": "mixit.depth_trained:COVARIANCE_TRAINED",
    "speed": "mixit.speed:SPEED",
    "universality": "mixit.universality:UNIVERSALITY",
    "rank_collapse": "mixit.rank_collapse:RANK_COLLAPSE",
    "sde_causal": "mixit.sde:CAUSAL",
    "sde_one_step": "mixit.sde:ONE_STEP",
    "sde_paths": "mixit.sde_paths:PATHS",
    "sde_printed_variance": "mixit.sde:PRINTED_VARIANCE",
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
    drawn, settings = setup(config)
    return call(drawn.draw, settings | {"arrays": arrays})


redraw = finish_run.make_redraw(figure)


def setup(config) -> tuple[Figure, dict[str, Any]]:
    """Returns (figure, settings).

    Every setting must be a parameter of the function that measures the figure.
    """
    settings = config.figure.to_dict()
    name = settings.pop("name")
    check_seeds(config.n_seeds)
    check_range("seed", config.seed, 0)
    figure = figure_of(name)
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


def figure_of(name: str) -> Figure:
    """The figure of a name, such as "universality" or "package.module:MY_FIGURE".

    The second form needs no entry in FIGURES: the module has a `Figure` of that name.
    """
    if ":" in name:
        module_name, _, attribute = name.partition(":")
    else:
        check_choice("figure", name, FIGURES)
        module_name, _, attribute = f"experiments.papers.{FIGURES[name]}".partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not error.name or not module_name.startswith(error.name):
            raise
        raise UserError(f"figure {name!r}: there is no module {error.name!r}.") from None
    found = getattr(module, attribute, None)
    if not isinstance(found, Figure):
        known = [other for other, value in vars(module).items() if isinstance(value, Figure)]
        hint = did_you_mean(attribute, known)
        raise UserError(
            f"figure {name!r}: {module_name} has no Figure {attribute!r}.{hint} Write "
            f"{attribute} = Figure(measure=.., draw=..)."
        )
    return found


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
    if figure.check is not None:
        call(figure.check, settings)
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
