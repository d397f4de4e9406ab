"""The memory of a training step with a vocabulary of 128,256, as the compiler reports it.

    python benchmarks/text_memory.py

The language model of the MixiT papers: 12 layers, width 512, 8 heads, sequences of 256 tokens,
AdamW, in float32 with remat and scan. The step is compiled, but not run. The loss is computed for
"chunk of" positions at a time (0: for all positions at once). All numbers are GiB:

    state      parameters, moments and gradient
    chunk      logits of the positions in one chunk
    temporary  memory of the step in addition to its arguments and results
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch, Task
from jaxformer.training.cost import memory
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup

CHUNK, WINDOW = 4096, 256


@dataclass(frozen=True)
class RandomTokens(Task):
    """Uniform tokens from the vocabulary."""

    vocab_size: int = 128_256  # type: ignore[override]
    length: int = WINDOW  # type: ignore[override]
    n_scored: int = WINDOW  # type: ignore[override]

    def example(self, key, index):
        tokens = jax.random.randint(key, (WINDOW + 1,), 0, self.vocab_size, jnp.int32)
        return Batch(tokens[:-1], tokens[1:], jnp.ones(WINDOW))

    def baselines(self, batch):
        return {}


def make(batch_size: int, chunk: int):
    """Returns the setup of the training. Its seed, rate and schedule do not change the memory."""
    task, rules = RandomTokens(), Partition([(".*", "train")])
    sizes = dict(vocab_size=task.vocab_size, length=WINDOW, width=512, layers=12, heads=8)
    model = decoder(**sizes, mlp_width=2048, remat=True, scan=True)
    tx = optim.optimizer(rules, {"train": optim.AdamW()}, 1.0, optim.schedule("linear", 9, 1))
    data = make_source(task, DataSettings(), batch_size)
    settings = TrainSettings(batch_size=batch_size, loss_chunk=chunk)
    return make_setup(
        task, model, rules, tx, data, population(0, 1, (1e-3,)), settings, DeviceSettings()
    )


def main() -> None:
    print("batch chunk of    state    chunk temporary   peak   (peak - chunk) / state")
    for batch_size, chunk in ((8, CHUNK), (8, 512), (8, 0), (64, CHUNK)):
        setup = make(batch_size, chunk)
        parameter_bytes = 4 * sum(setup.counts().values())  # float32
        state = 4 * parameter_bytes  # parameters, two moments of Adam and the gradient
        logits = 4 * (chunk or batch_size * WINDOW) * setup.task.vocab_size
        step = jax.jit(setup.step(), donate_argnums=0)
        shapes = jax.eval_shape(setup.create), memory.batch_shapes(setup)
        usage = step.lower(*shapes).compile().memory_analysis()
        peak = usage.argument_size_in_bytes + usage.temp_size_in_bytes
        peak += usage.output_size_in_bytes - usage.alias_size_in_bytes
        numbers = " ".join(
            f"{x / 2**30:8.2f}" for x in (state, logits, usage.temp_size_in_bytes, peak)
        )
        print(f"{batch_size:5} {chunk:8} {numbers}   {(peak - logits) / state:.2f}", flush=True)


if __name__ == "__main__":
    main()
