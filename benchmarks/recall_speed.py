"""Compares the CPU time of a training step of noisy recall, with its data, with a PyTorch loop.

    taskset -c 0 python benchmarks/recall_speed.py

Both sides use width 64, 64 tokens, batches of 64, 65 symbols, one thread, float32 and SGD with
momentum. The "gathered" row computes the last layer only at the scored positions, at most K of them
(max_scored). The peer, the PyTorch loop, is in peers/recall_torch.py; without PyTorch its rows are
left out. All rows are measured alternately, five times; a number is the median.
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from configs.associations import recall
from jaxformer import build

ROUNDS, STEPS, PEER_STEPS = 5, 50, 10
WIDTH, LENGTH, BATCH, SYMBOLS = 64, 64, 64, 65
OURS, DATA, PEER = "jaxformer, gathered, K = 32", "jaxformer, data only", "PyTorch"


def main() -> None:
    runs = ours() | peer()
    seconds = {name: [] for name in runs}
    for run in runs.values():
        run()  # compile, and warm the caches
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.process_time()
            steps = run()
            seconds[name].append((time.process_time() - start) / steps)
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    print(f"{'CPU milliseconds per step':44} {'median':>8} {'spread':>15}")
    for name, values in seconds.items():
        low, high = 1e3 * min(values), 1e3 * max(values)
        print(f"{name:44} {1e3 * median[name]:8.2f} {low:7.2f} {high:7.2f}")
    print(f"the data take {100 * median[DATA] / median[OURS]:.1f} % of a step of jaxformer")
    for name in [name for name in median if name.startswith(PEER) and "only" not in name]:
        print(f"{name}: {median[name] / median[OURS]:.1f} times a step of jaxformer")


def ours() -> dict[str, Callable[[], int]]:
    """Returns functions by name, each of which runs some steps and returns their number."""
    runs = {}
    for name, max_scored in ((OURS, 32), ("jaxformer, all positions", LENGTH)):
        setup = build.phases(config(max_scored))[0].setup
        no_heldout = jnp.zeros(1, jnp.uint32)  # hashes of held-out examples to avoid: a dummy
        batch_at = setup.batch_at(no_heldout)
        step, state = setup.step(), setup.create()

        def many(state, step=step, batch_at=batch_at):
            return jax.lax.fori_loop(0, STEPS, lambda i, s: step(s, batch_at(s.step))[0], state)

        runs[name] = _timed(jax.jit(many), state)

    # The batches are those of the last setup of the loop above.
    def data(first):
        def body(i, total):
            return total + jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, batch_at(first + i)))

        return jax.lax.fori_loop(0, STEPS, body, jnp.zeros(()))

    runs[DATA] = _timed(jax.jit(data), jnp.zeros((), jnp.int32))
    return runs


def peer() -> dict[str, Callable[[], int]]:
    """Returns such functions for PyTorch, or prints a message if it is not installed."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: its rows are left out (pip install torch).")
        return {}
    from peers.recall_torch import Data, Trainer

    torch.set_num_threads(1)
    task: Any = build.task(config(LENGTH))
    unigram, bigram = task.probabilities()
    # The bigram row of the trigger is never used, nor is a row that sums to 0.
    source = Data(unigram, bigram, task.trigger_tokens[0], task.noise_token, task.alpha, LENGTH)
    trainer = Trainer(task.vocab_size, LENGTH, WIDTH)

    def train(batches):
        def run() -> int:
            for _ in range(PEER_STEPS):
                trainer.step(*batches(BATCH))
            return PEER_STEPS

        return run

    def draw(batches):
        def run() -> int:
            for _ in range(PEER_STEPS):
                batches(BATCH)
            return PEER_STEPS

        return run

    return {
        PEER: train(source.batch),
        f"{PEER}, data only": draw(source.batch),
        f"{PEER}, batched multinomial": train(source.walk),
        f"{PEER}, batched multinomial, data only": draw(source.walk),
    }


def config(max_scored: int) -> Any:
    config: Any = recall.get_config("scale=small")
    config.n_seeds, config.model.width = 1, WIDTH
    config.task.update(n_symbols=SYMBOLS, context=LENGTH, max_scored=max_scored)
    config.train.batch_size = BATCH
    return config


def _timed(function, *args) -> Callable[[], int]:
    def run() -> int:
        jax.block_until_ready(function(*args))
        return STEPS

    return run


if __name__ == "__main__":
    main()
