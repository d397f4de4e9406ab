"""Measures statistics of captured activations at initialisation, in float64, over seeds.

build -> init -> capture -> statistics -> record
"""

from typing import Any

import jax
import jax.numpy as jnp

from experiments.papers import plots
from experiments.recipes import finish_run
from jaxformer import build
from jaxformer.capture import capture
from jaxformer.core.errors import check_choice
from jaxformer.core.label_table import label_table
from jaxformer.interp import observables
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.progress import Stopwatch
from jaxformer.training.cost import memory
from jaxformer.training.metrics import over_seeds
from jaxformer.training.population import check_seeds, population
from jaxformer.training.result import result_of

STATISTICS = {
    "attention_entropy": observables.causal_attention_entropy,
    "token_cosine": observables.token_cosine,
    "token_covariance": observables.token_covariance,
}


def run(config, workdir: Workdir) -> int:
    with jax.enable_x64(True):
        return _run(config, workdir)


def _run(config, workdir: Workdir) -> int:
    stopwatch = Stopwatch()
    task, model, n_seeds, measurements = setup(config)
    print(label_table(build.partition(config), shapes(model)))
    test = jax.tree.map(jnp.asarray, build.source(config, task, batch_size=1).heldout().test)

    @jax.jit
    def measure(key):
        params = model.init(key, test.inputs[:1])["params"]
        names = [name for name, _ in measurements]
        arrays = capture(model, params, test.inputs, names=names)
        return {
            f"{statistic}/{name}": STATISTICS[statistic](arrays[name]).mean()
            for name, statistic in measurements
        }

    # A population needs a learning rate; the initial networks do not depend on it.
    networks = population(config.seed, n_seeds, (1.0,))
    # Seeds run one after the other, so that only one network is in memory.
    members = [jax.device_get(measure(key)) for key in networks.init_keys()]
    metrics = {name: over_seeds([m[name] for m in members]) for name in members[0]}
    result = result_of(
        workdir,
        seeds=range(config.seed, config.seed + n_seeds),
        metrics=metrics,
        members=[
            {"seed": config.seed + i, "learning_rate": None, "metrics": m, "diverged_at": None}
            for i, m in enumerate(members)
        ],
        parameters=build.partition(config).count(shapes(model)),
        seconds=stopwatch.seconds(),
    )
    plots.by_layer(workdir / "by_layer.png", {config.arguments.variant: metrics})
    finish_run.write(workdir, result)
    return 0


def setup(config) -> tuple[Any, Any, int, list[tuple[str, str]]]:
    """Checks the config and returns (task, model, number of seeds, [(activation, statistic)])."""
    with jax.enable_x64(True):
        task = build.task(config)
        model = build.model(config, task)
    measurements = [(name, statistic) for name, statistic in config.measure]
    for _, statistic in measurements:
        check_choice("statistic", statistic, STATISTICS)
    check_seeds(config.n_seeds)
    memory.check_data(build.source(config, task, batch_size=1))
    build.partition(config).labels(shapes(model))  # raises UserError for wrong rules
    return task, model, config.n_seeds, measurements


def shapes(model) -> Any:
    """Returns the shapes of the parameters without computing them."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    with jax.enable_x64(True):
        return jax.eval_shape(lambda key: model.init(key, tokens)["params"], jax.random.key(0))


def dry_run(config) -> None:
    _, model, n_seeds, measurements = setup(config)
    print(label_table(build.partition(config), shapes(model)))
    print(f"would measure {len(measurements)} statistics over {n_seeds} seeds:")
    print(*(f"  {statistic} of {name}" for name, statistic in measurements), sep="\n")
