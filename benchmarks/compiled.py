"""The memory and FLOPs of a training step at the papers' shapes, as the compiler reports them.

    python benchmarks/compiled.py [NAME ..]

The step is compiled for the backend of this machine, but not run.

    state      parameters and the moments of Adam
    temporary  memory in addition to the state; the sum of both is the peak of one member (one seed)
    FLOP       matrix products of the program, including recomputed ones

A CPU has no matrix products in half precision: it makes float32 copies of the factors. A GPU needs
less memory in half precision than these numbers.
"""

import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.runtime.environment import processor
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch, Task
from jaxformer.training.cost import flops, memory
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup


class Shape(NamedTuple):
    """The shapes of a published experiment."""

    layers: int
    width: int
    heads: int
    length: int
    vocab: int
    batch: int
    scored: int  # positions whose logits the loss uses


SHAPES = {
    "retrieval": Shape(2, 1024, 4, 61, 256, 1024, 1),
    "memorisation": Shape(2, 128, 4, 3, 1024, 32_768, 1),
    "k-hop": Shape(5, 512, 8, 99, 23, 128, 99),
    "language model": Shape(12, 512, 8, 256, 128_256, 512, 256),
}
HALF = {"dtype": jnp.bfloat16}
REMAT, SCAN, FUSED = {"remat": True}, {"scan": True}, {"fused": True}
KEEP_DENSE = FUSED | {"remat_keep": "dense"}
CHUNK = {"loss_chunk": 4096}
# {shape: (description, fields of the model, training settings) of each compiled step}
CASES: dict[str, list[tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "retrieval": [("float32", {}, {}), ("bfloat16", HALF, {})],
    "memorisation": [("float32", {}, {})],
    "k-hop": [("float32", {}, {}), ("bfloat16", HALF, {})],
    "language model": [
        ("float32, loss in chunks", {}, CHUNK),
        ("bfloat16, loss in chunks", HALF, CHUNK),
        ("the same, remat", HALF | REMAT, CHUNK),
        ("the same, scan", HALF | SCAN, CHUNK),
        ("the same, scan, fused", HALF | SCAN | FUSED, CHUNK),
        ("the same, scan, fused, remat that keeps dense", HALF | SCAN | REMAT | KEEP_DENSE, CHUNK),
        ("the same, scan, remat", HALF | SCAN | REMAT, CHUNK),
        ("the same, in 4 parts", HALF, CHUNK | {"accumulate": 4}),
    ],
}


@dataclass(frozen=True)
class Tokens(Task):
    """A task of given sizes, whose examples are zeros and never used."""

    vocab_size: int = 0
    length: int = 0
    n_scored: int = 0

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        zeros_T = jnp.zeros(self.length, jnp.int32)
        return Batch(zeros_T, zeros_T, jnp.ones(self.length))

    def baselines(self, batch: Batch) -> dict[str, float]:
        return {}


def main(names: list[str]) -> None:
    device = jax.devices()[0]
    device_name = processor() if device.platform == "cpu" else device.device_kind
    print(f"{device_name}, jax {jax.__version__}")
    print("| shape | options | state, GiB | temporary | sum | TFLOP per step | compiling, s |")
    print("|---|---|---|---|---|---|---|")
    for name in names or CASES:
        shape = SHAPES[name]
        # The initials of the fields, such as L2 W1024 H4 for layers, width and heads.
        sizes = " ".join(f"{field[0].upper()}{size}" for field, size in shape._asdict().items())
        print(f"| {name}: {sizes} |")
        for options, model, train in CASES[name]:
            state, temporary, operations, seconds = compiled(shape, model, train)
            print(
                f"| | {options} | {state / 2**30:.2f} | {temporary / 2**30:.2f} | "
                f"{(state + temporary) / 2**30:.2f} | {operations / 1e12:.3g} | {seconds:.0f} |",
                flush=True,
            )


def compiled(shape: Shape, model: dict, train: dict) -> tuple[float, float, float, float]:
    """Returns the bytes of the state, the temporary bytes, the FLOPs and the seconds to compile."""
    task = Tokens(shape.vocab, shape.length, shape.scored)
    network = decoder(
        vocab_size=shape.vocab,
        length=shape.length,
        width=shape.width,
        layers=shape.layers,
        heads=shape.heads,
        mlp_width=4 * shape.width,
        **model,
    )
    rules = Partition(((".*", "train"),))
    tx = optim.optimizer(rules, {"train": optim.AdamW()}, 1.0, optim.schedule("cosine", 1000, 10))
    data = make_source(task, DataSettings(), shape.batch)
    members = population(0, 1, (1e-3,))
    settings = TrainSettings(shape.batch, **train)
    devices = DeviceSettings(data=1)
    setup = make_setup(task, network, rules, tx, data, members, settings, devices)
    began = time.monotonic()
    state, batch = jax.eval_shape(setup.create), memory.batch_shapes(setup)
    traced = jax.jit(setup.step(), donate_argnums=0).trace(state, batch)
    usage = traced.lower().compile().memory_analysis()
    # Results that reuse the memory of arguments are counted among the arguments.
    results = usage.output_size_in_bytes - usage.alias_size_in_bytes
    state_bytes = usage.argument_size_in_bytes + results
    seconds = time.monotonic() - began
    return state_bytes, usage.temp_size_in_bytes, flops.program_flops(traced.jaxpr.jaxpr), seconds


if __name__ == "__main__":
    main(sys.argv[1:])
