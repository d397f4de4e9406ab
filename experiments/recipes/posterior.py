"""Samples the Bayesian posterior by NUTS and saves the chains at intervals.

problem -> Sampler -> advance and save, repeated -> expectations with Monte Carlo errors -> record

The posterior is that of an attention-path network (arXiv 2405.15926). A run that is killed at any
moment resumes from the last saved state. It ends with the same draws as an uninterrupted run.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.attention_paths import posterior as drawing
from experiments.papers.attention_paths import problem
from experiments.recipes import finish_run, posterior_draws
from jaxformer.core.errors import UserError, check_range
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.progress import Interrupt, Stopwatch
from jaxformer.training.metrics import Mean
from jaxformer.training.result import result_of
from theory import attention_paths
from theory.attention_paths.diagnostics import monte_carlo_error

# Diagnostics that become metrics of the run.
DIAGNOSTICS = ("divergences", "r_hat", "ess", "num_steps", "num_steps_max", "tree_depth_max")


class Setup(NamedTuple):
    """The data and the Markov chains of a config."""

    data: problem.Example  # inputs after fixed attention, with labels
    chains: posterior_draws.Chains

    @property
    def sampler(self) -> attention_paths.Sampler:
        return self.chains.sampler


def setup(config) -> Setup:
    """Builds the data and the sampler and checks every argument. Compiles nothing."""
    settings = config.posterior.to_dict()
    draws, width = settings.pop("draws"), settings.pop("width")
    min_ess, max_draws = settings.pop("least_ess"), settings.pop("most_draws")
    check_range("posterior.least_ess", min_ess, 0.0)
    check_range("posterior.most_draws", max_draws, 0)
    file = config.data.file
    data = problem.example(config.seed, **({"file": file} if file else config.task.to_dict()))
    width = width[0] if len(width) == 1 else width
    temperature = settings.pop("temperature")
    sampler = attention_paths.Sampler.build(
        data.attentioned, data.labels, width, temperature, data.heads, **settings
    )
    per_chain = math.ceil(draws / sampler.chains)
    if per_chain < 4:
        raise UserError(
            "posterior.draws must be at least 4 for each chain, to estimate an error; got "
            f"{draws} draws in {sampler.chains} chains."
        )
    max_per_chain = math.ceil(max_draws / sampler.chains)
    return Setup(data, posterior_draws.Chains(sampler, per_chain, min_ess, max_per_chain))


def run(config, workdir: Workdir) -> int:
    with jax.enable_x64(True):
        built, stopwatch = setup(config), Stopwatch()
        with Interrupt() as interrupt:
            key = jax.random.key(config.seed)
            chunks = posterior_draws.collect(built.chains, key, workdir.path, interrupt, stopwatch)
        if chunks is None:
            return 128 + interrupt.signal
        posterior = built.sampler.posterior(chunks)
        metrics, baselines, arrays = summarise(built, posterior)
        arrays |= drawing.figure_arrays(built.data.names, posterior, metrics)
    finish_run.write_arrays(workdir, arrays)
    result = result_of(
        workdir,
        seeds=[config.seed],
        metrics=metrics,
        baselines=baselines,
        parameters={"sampled": _dimension(built.sampler)},
        diagnostics=posterior.diagnostics,
        trusted=not posterior.doubts,
        doubts=posterior.doubts or None,
        seconds=stopwatch.seconds(),
    )
    finish_run.write(workdir, result, redraw)
    tidy(workdir)
    return finish_run.exit_code(workdir)


def figure(_, arrays):
    return drawing.draw(arrays)


redraw = finish_run.make_redraw(figure)


def tidy(workdir: Workdir) -> None:
    """Deletes the saved draws of a finished run, which arrays.npz contains."""
    posterior_draws.tidy(workdir.path)


def summarise(built: Setup, posterior) -> tuple[dict[str, Mean], dict[str, float], dict[str, Any]]:
    """Returns (metrics, baselines, arrays).

    U is the order parameter, a matrix over pairs of attention paths. The metrics are E[U] and the
    mean energy with Monte Carlo errors, the accuracy, and diagnostics. The baselines are accuracies
    of the theory, of the GP limit, and of guessing.
    """
    data, sampler = built.data, built.sampler
    rows, columns = np.triu_indices(len(data.names))
    names = [f"U/{data.names[i]},{data.names[j]}" for i, j in zip(rows, columns)]
    energies = posterior.energies()
    values = np.concatenate([posterior.U[:, rows, columns], energies[:, None]], 1)
    by_chain = values.reshape(sampler.chains, -1, values.shape[1])
    means = [_mean(values_CxS) for values_CxS in np.moveaxis(by_chain, 2, 0)]
    metrics = dict(zip((*names, "energy"), means, strict=True))
    accuracy = data.accuracy(posterior.mean(data.attentioned_test))
    n_tests = len(data.labels_test)
    error = (accuracy * (1 - accuracy) / n_tests) ** 0.5 if data.has_class_labels else math.nan
    metrics["accuracy"] = Mean(accuracy, error, n_tests)
    for name in DIAGNOSTICS:
        metrics[name] = Mean(float(posterior.diagnostics[name]), math.nan, len(posterior.U))

    temperature = sampler.problem.temperature
    theory = attention_paths.order_parameter(
        data.attentioned, data.labels, sampler.problem.widths, temperature, data.heads
    )
    mean, _ = attention_paths.predict(theory, data.attentioned, data.labels, data.attentioned_test)
    baselines = {
        "accuracy_theory": data.accuracy(mean),
        "accuracy_gp_limit": data.accuracy_at(np.eye(len(data.names)), temperature),
        "accuracy_chance": data.chance(),
    }
    arrays = {
        "U": posterior.U,
        "U_theory": theory.U,
        "U_effective": posterior.gram_effective(),
        "U_effective_theory": attention_paths.gram_effective(theory, data.attentioned.shape[2]),
        "energies": energies,
        "mean_test": posterior.mean(data.attentioned_test),
        "variance_test": posterior.variance(data.attentioned_test),
        "labels_test": data.labels_test,
    }
    if posterior.theta is not None:
        arrays["theta"] = posterior.theta
    return metrics, baselines, arrays


def _mean(values_CxS: np.ndarray) -> Mean:
    """Returns the mean of draws with its Monte Carlo error and effective sample size.

    Args:
        values_CxS: C chains of S draws. A constant chain gives NaN as error and size 0.
    """
    error, variance = float(monte_carlo_error(values_CxS)), float(values_CxS.var())
    effective = int(variance / error**2) if error > 0 else 0
    return Mean(float(values_CxS.mean()), error if effective else math.nan, effective)


def _dimension(sampler: attention_paths.Sampler) -> int:
    """Returns the dimension of the space that NUTS samples."""
    problem = sampler.problem
    if sampler.method == "collapsed":  # NUTS samples theta; the weights are integrated out
        return problem.layout.size
    widths, n = problem.widths, problem.attentioned.shape[2]
    layers = zip(widths, problem.heads, widths[1:])
    value_weights = sum(n_in * heads * n_out for n_in, heads, n_out in layers)
    # The input map, the values of all layers, and the readout.
    return n * widths[0] + value_weights + widths[-1]


def dry_run(config) -> None:
    with jax.enable_x64(True):
        built = setup(config)
    sampler, draws = built.sampler, built.chains.draws
    print(
        f"would sample {_dimension(sampler):,} numbers ({sampler.method}): {sampler.chains} chains "
        f"of {sampler.warmup} warm-up steps and {draws} draws, {len(built.data.names)} paths, "
        f"widths {sampler.problem.widths}"
    )
