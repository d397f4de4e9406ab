"""Compares the CPU time of eight seeds in one program with that of eight processes.

    taskset -c 0 python benchmarks/lab_population.py

The first table has whole runs with an empty compilation cache: imports, compilation, 400 steps,
validation and test. The second has the time of one training step divided by the number of members,
at small scale; drawing the batch is included. A member is one of the eight seeds. The members of a
program run one after the other ("map", the default) or side by side ("vmap").
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp

from configs.mixit import retrieval
from jaxformer import build

ROOT = Path(__file__).parents[1]
MEMBERS = 8
STEPS = 10  # per timed dispatch
REPEATS = 5


def main() -> None:
    print(
        "Eight seeds of retrieval, variant=standard,scale=tiny, 400 steps each, CPU seconds, cold"
    )
    separate = [command_seconds(f"--config.seed={seed}") for seed in range(MEMBERS)]
    print(
        f"  eight processes   {sum(separate):7.1f}   "
        f"({min(separate):.1f} to {max(separate):.1f} each)",
        flush=True,
    )
    for loop in ("map", "vmap"):
        together = command_seconds(f"--config.n_seeds={MEMBERS}", f"--config.train.members={loop}")
        share = 100 * together / sum(separate)
        print(
            f"  one program, {loop:5}{together:7.1f}   {share:.0f} % of eight processes", flush=True
        )

    print("A step of retrieval, variant=standard,scale=small, CPU ms per member, median of 5")
    dispatches = {"single": dispatch(1, "map")}
    dispatches |= {loop: dispatch(MEMBERS, loop) for loop in ("map", "vmap")}
    times: dict[str, list[float]] = {name: [] for name in dispatches}
    for _ in range(REPEATS):
        for name, run in dispatches.items():
            began = time.process_time()
            run()
            members = 1 if name == "single" else MEMBERS
            times[name].append(1e3 * (time.process_time() - began) / STEPS / members)
    for name, values in times.items():
        ratio = median(values) / median(times["single"])
        print(f"  {name:8}{median(values):8.2f}   {ratio:.2f} of a single step")


def command_seconds(*arguments: str) -> float:
    """Returns the CPU seconds of `run.py` and its children, with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "experiments/run.py"),
                "--config=configs/mixit/retrieval.py:variant=standard,scale=tiny",
                "--config.train.target=2.0",  # never reached, so that all runs do equal work
                f"--workdir={folder}/run",
                *arguments,
            ],
            env=os.environ | {"XDG_CACHE_HOME": folder},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dispatch(members: int, loop: str) -> Callable[[], Any]:
    """Returns a compiled function that draws the batches and runs STEPS steps of all members."""
    config: Any = retrieval.get_config("variant=standard,scale=small")
    config.n_seeds, config.optim.learning_rate, config.train.members = members, (3e-3,), loop
    setup = build.phases(config)[0].setup
    no_heldout = jnp.zeros(1, jnp.uint32)  # hashes of held-out examples to avoid: a dummy
    step, batch_at, state = setup.step(), setup.batch_at(no_heldout), setup.create()

    def next_state(_, state):
        return step(state, batch_at(state.step))[0]

    run = jax.jit(lambda state: jax.lax.fori_loop(0, STEPS, next_state, state))
    jax.block_until_ready(run(state))
    return lambda: jax.block_until_ready(run(state))


if __name__ == "__main__":
    main()
