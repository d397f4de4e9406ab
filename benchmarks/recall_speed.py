"""CPU seconds a training step of noisy recall, with data generation; run on one core.

    taskset -c 0 python benchmarks/recall_speed.py

d = 64, T = 64, B = 64, 65 symbols. "gathered" works on the last layer at the scored positions only
(max_scored), "full" at all of them. The PyTorch peer is not here: the authors' script on one core
took 0.086 s a step as written and 0.070 with one forward pass.
"""

import os
import time
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import jax.numpy as jnp

from configs.associations import recall
from experiments.training import setup

STEPS = 100


def config(max_scored: int) -> Any:
    config: Any = recall.get_config("scale=small")
    config.n_seeds, config.model.width = 1, 64
    config.task.n_symbols, config.task.max_scored = 65, max_scored
    config.train.batch_size = 64
    return config


def seconds(function, *args) -> float:
    """CPU seconds a step: `function` runs STEPS of them in one program."""
    jax.block_until_ready(function(*args))
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        jax.block_until_ready(function(*args))
        best = min(best, (time.process_time() - start) / STEPS)
    return best


def main() -> None:
    rows = []
    for name, max_scored in (("gathered, K = 32", 32), ("full", 64)):
        built = setup(config(max_scored))
        nothing = jnp.zeros(1, jnp.uint32)
        batch_at, step, state = built.batch_at(nothing), built.step(), built.create()
        run = jax.jit(
            lambda s, step=step, batch_at=batch_at: jax.lax.fori_loop(
                0, STEPS, lambda i, s: step(s, batch_at(s.step))[0], s
            )
        )
        rows.append((f"step with data, {name}", seconds(run, state)))

    def data(first):
        def body(i, total):
            return total + jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, batch_at(first + i)))

        return jax.lax.fori_loop(0, STEPS, body, jnp.zeros(()))

    rows.append(("data generation alone", seconds(jax.jit(data), jnp.zeros((), jnp.int32))))
    for name, value in rows:
        print(f"{name:40} {1e3 * value:8.2f} ms CPU")
    print(f"data are {100 * rows[-1][1] / rows[0][1]:.1f} % of a gathered step")


if __name__ == "__main__":
    main()
