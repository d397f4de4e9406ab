"""CPU seconds of eight seeds: one program against eight processes, and a member's share of a step.

    taskset -c 0 python benchmarks/lab_population.py

Cold: every process has an empty compilation cache; imports, compilation, 400 steps, validation and
test count. Then a step at small scale with its data, members one after the other in one program
("map", the default) or side by side ("vmap"), against the step of a single member.
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
STEPS = 10  # a timed dispatch
REPEATS = 5


def main() -> None:
    print(
        "Eight seeds of retrieval, variant=standard,scale=tiny, 400 steps each, CPU seconds, cold"
    )
    apart = [command_seconds(f"--config.seed={seed}") for seed in range(MEMBERS)]
    print(
        f"  eight processes   {sum(apart):7.1f}   ({min(apart):.1f} to {max(apart):.1f} each)",
        flush=True,
    )
    for how in ("map", "vmap"):
        together = command_seconds(f"--config.n_seeds={MEMBERS}", f"--config.train.members={how}")
        share = 100 * together / sum(apart)
        print(f"  one program, {how:5}{together:7.1f}   {share:.0f} % of them", flush=True)

    print(
        "A step of retrieval, variant=standard,scale=small, CPU milliseconds a member, median of 5"
    )
    dispatches = {"single": dispatch(1, "map")}
    dispatches |= {how: dispatch(MEMBERS, how) for how in ("map", "vmap")}
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


def command_seconds(*words: str) -> float:
    """CPU seconds of a cold `run.py`, its children included."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "experiments/run.py"),
                "--config=configs/mixit/retrieval.py:variant=standard,scale=tiny",
                "--config.train.target=2.0",  # no early stop: equal work
                f"--workdir={folder}/run",
                *words,
            ],
            env=os.environ | {"XDG_CACHE_HOME": folder},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dispatch(members: int, how: str) -> Callable[[], Any]:
    """A compiled function that runs STEPS steps of all members, with their data."""
    config: Any = retrieval.get_config("variant=standard,scale=small")
    config.n_seeds, config.optim.learning_rate, config.train.members = members, (3e-3,), how
    built = build.phases(config)[0].setup
    step, batch_at, state = built.step(), built.batch_at(jnp.zeros(1, jnp.uint32)), built.create()
    run = jax.jit(
        lambda s: jax.lax.fori_loop(0, STEPS, lambda i, s: step(s, batch_at(s.step))[0], s)
    )
    jax.block_until_ready(run(state))
    return lambda: jax.block_until_ready(run(state))


if __name__ == "__main__":
    main()
