"""The speed of each variant in the training loop, as a language model (Appendix C)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.core import optim
from jaxformer.core.errors import UserError, check_range
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.io.run_folder import MemoryWorkdir
from jaxformer.models.decoder import decoder
from jaxformer.tasks.source import make_source
from jaxformer.tasks.text import CausalText
from jaxformer.training.cost.throughput import Throughput
from jaxformer.training.metrics import Mean, over_seeds
from jaxformer.training.phases import Phase
from jaxformer.training.population import population
from jaxformer.training.run import train_phases
from jaxformer.training.setup import Setup, make_setup

BASE = "standard"  # the variant with which all others are compared


@dataclass(frozen=True)
class Padded(CausalText):
    """The packaged text with a larger vocabulary; the text uses only its first symbols."""

    vocab: int = 0

    @property
    def vocab_size(self) -> int:
        return self.vocab


def measure_speed(
    models: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, Sequence[tuple[str, str]]],
    vocab: int,
    length: int,
    batch_size: int,
    steps: int,
    rounds: int,
    loss_chunk: int,
    seed: int,
) -> Outcome:
    """Measures the tokens per second of each variant, relative to Standard.

    In every round each variant trains for `steps` steps. Each round begins with another variant, so
    a machine that slows down affects all of them. `speed` compares with Standard in the same
    round. `products` is Standard's FLOPs of matrix products divided by the variant's: the relative
    speed if a step did nothing else.
    """
    check_speed(models, rules, vocab, length, steps)
    settings = TrainSettings(
        batch_size=batch_size, steps=steps, log_every=steps, eval_every=0, loss_chunk=loss_chunk
    )
    sizes = {"vocab_size": vocab, "length": length}
    names = _order(models)
    setups = {n: _setup({**models[n], **sizes}, rules[n], settings, seed) for n in names}
    tokens_per_second, flops = {name: np.empty(rounds) for name in names}, {}
    for r in range(rounds):
        for name in map(str, np.roll(names, -r)):
            throughput = _measure(setups[name], settings)
            tokens_per_second[name][r] = throughput.numbers()["tokens_per_second"]
            flops[name] = throughput.flops
            rate = f"{tokens_per_second[name][r]:,.0f} tokens per second"
            print(f"round {r + 1}/{rounds}  {name}: {rate}", flush=True)
    speed = {name: tokens_per_second[name] / tokens_per_second[BASE] for name in names}
    flops_ratio = {name: flops[BASE] / flops[name] for name in names}
    metrics: dict[str, Mean] = {}
    for name in names:
        metrics[f"tokens_per_second/{name}"] = over_seeds(tokens_per_second[name])
        metrics[f"samples_per_second/{name}"] = over_seeds(tokens_per_second[name] / length)
        metrics[f"speed/{name}"] = over_seeds(speed[name])
        metrics[f"flops/{name}"] = exact(flops[name])
        metrics[f"products/{name}"] = exact(flops_ratio[name])
    arrays = {"speed": np.stack([*speed.values()]), "products": np.array([*flops_ratio.values()])}
    return Outcome(arrays, metrics)


def check_speed(
    models: Mapping[str, Any], rules: Mapping[str, Any], vocab: int, length: int, steps: int
) -> None:
    """Raises unless models and rules match, can be built, and the sizes allow a measurement."""
    if not models or models.keys() != rules.keys():
        raise UserError(
            f"figure.models and figure.rules must name the same variants, got {[*models]} and "
            f"{[*rules]}."
        )
    if BASE not in models:
        raise UserError(
            f"figure.models must have {BASE!r}, the variant that all others are compared with, got "
            f"{[*models]}."
        )
    symbols = CausalText().vocab_size
    if vocab < symbols:
        raise UserError(
            f"figure.vocab must be at least {symbols}, the number of symbols of the text, got "
            f"{vocab}."
        )
    check_range("figure.steps", steps, 2)  # the first step compiles and is not measured
    for name, fields in models.items():
        try:
            decoder(**fields, vocab_size=vocab, length=length)
        except UserError as error:
            raise UserError(f"figure.models.{name}: {error}") from None


def draw_speed(arrays, models):
    """Draws the measured speed and the speed that the matrix products allow."""
    figure, (axis,) = plots.row(1, (plots.PAGE, 2.3))
    # V is the axis of variants, R of rounds.
    speed_VxR, products_V = np.asarray(arrays["speed"]), np.asarray(arrays["products"])
    names = [name.replace("_", " ") for name in _order(models)]
    x = np.arange(len(names))
    measured_colour, products_colour = plots.COLOURS[:2]
    plots.means(axis, x, speed_VxR.T, fmt="o", color=measured_colour, label="measured")
    style = {"marker": "_", "markersize": 16, "linestyle": "none"}
    label = "what the matrix products allow"
    axis.plot(x, products_V, color=products_colour, label=label, **style)
    axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xticks(x, names)
    axis.set(ylabel="speed over Standard's", xlim=(-0.5, len(names) - 0.5))
    speeds = ", ".join(
        f"{name} {mean:.2f}" for name, mean in zip(names[1:], speed_VxR[1:].mean(1), strict=True)
    )
    plots.add_finding(
        figure,
        f"Tokens per second over Standard's: {speeds}",
        f"Bars: standard errors over {speed_VxR.shape[1]} rounds of one training by each variant.",
        axis,
    )
    return figure


def _order(models: Mapping[str, Any]) -> list[str]:
    """Returns the variants with Standard first; a config sorts them by name."""
    return sorted(models, key=lambda name: (name != BASE, name))


def _setup(fields: Mapping[str, Any], rules, settings: TrainSettings, seed: int) -> Setup:
    partition = Partition([(pattern, label) for pattern, label in rules])
    constant = optim.schedule("constant", settings.steps, 0)
    tx = optim.optimizer(partition, {"train": optim.AdamW(weight_decay=0.0)}, 1.0, constant)
    task = Padded(window=fields["length"], vocab=fields["vocab_size"])
    with jax.enable_x64(False):
        sizes = DataSettings(test_size=1, validation_size=1)
        data = make_source(task, sizes, settings.batch_size)
        model = decoder(**fields, dtype=jnp.float32, param_dtype=jnp.float32)
        parts = (task, model, partition, tx, data, population(seed, 1, (1e-3,)))
        return make_setup(*parts, settings, DeviceSettings())


def _measure(setup: Setup, settings: TrainSettings) -> Throughput:
    with jax.enable_x64(False):
        phases = [Phase(settings.steps, setup)]
        return train_phases(phases, settings, MemoryWorkdir({}), progress=False).session.speed


SPEED = Figure(measure=measure_speed, draw=draw_speed, check=check_speed)
