"""Compares the time and memory that a dry run predicts with those of the run, for seven configs.

    taskset -c 0 python benchmarks/plan.py

`--dry-run` estimates both from shapes; `--measure` times some steps. Each run is a separate
process. The config is trained once before anything is timed, so that the compilation cache has its
programs, as in a sweep. No run stops early (train.target = 2).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jaxformer.runtime.environment import processor

ROOT = Path(__file__).parents[1]
RUN = [sys.executable, str(ROOT / "experiments/run.py")]
CONFIGS = {
    "retrieval": "mixit/retrieval.py:variant=frozen_qk,scale=tiny",
    "memorization": "mixit/memorization.py:variant=mixit,scale=tiny",
    "k-hop": "mixit/hops.py:variant=standard,scale=tiny",
    "masked text, encoder": "two_failure_modes/fig1_losses.py:scale=tiny",
    "language model": "text/lm.py:variant=frozen_mlp,scale=tiny",
    "Dyck-1": "mixit/dyck.py:variant=frozen_qk,scale=tiny",
    "noisy recall": "associations/recall.py:scale=tiny",
}
EXTRA_FLAGS = {"noisy recall": ["--config.train.steps=200", "--config.optim.learning_rate=0.03"]}
UNITS = {"s": 1, "min": 60, "h": 3600, "MiB": 1, "GiB": 1024}


def main() -> None:
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores")
    print("seconds and MiB, each: estimated, measured, in the run (ratios to the run)")
    for name, config in CONFIGS.items():
        flags = [f"--config={ROOT / 'configs' / config}", "--config.train.target=2"]
        flags += EXTRA_FLAGS.get(name, [])
        with tempfile.TemporaryDirectory() as folder:
            run(flags, f"--workdir={folder}/first")
            estimated_seconds, estimated_memory = predicted(run(flags, "--dry-run")[0])
            measured_seconds, measured_memory = predicted(run(flags, "--measure")[0])
            seconds = run(flags, f"--workdir={folder}/run")[1]
            performance = json.loads(Path(folder, "run/result.json").read_text())["performance"]
        memory = performance["peak_memory"] / 2**20  # MiB
        print(
            f"{name:22} {estimated_seconds:6.0f} {measured_seconds:6.0f} {seconds:6.1f}  "
            f"({estimated_seconds / seconds:.2f}, {measured_seconds / seconds:.2f})   "
            f"{estimated_memory:6.0f} {measured_memory:6.0f} {memory:6.0f}  "
            f"({estimated_memory / memory:.2f}, {measured_memory / memory:.2f})",
            flush=True,
        )


def run(flags: list[str], *more: str) -> tuple[str, float]:
    """Returns the output and the wall time of the command, in seconds."""
    began = time.monotonic()
    done = subprocess.run([*RUN, *flags, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, time.monotonic() - began


def predicted(out: str) -> tuple[float, float]:
    """Returns the seconds and the MiB in the output of a dry run."""
    numbers = []
    for word, units in (("time", "s|min|h"), ("memory", "MiB|GiB")):
        line = [line for line in out.splitlines() if line.startswith(f"{word}: about")][-1]
        parts = re.findall(rf"([\d.,]+) ({units})\b", line.partition(" for ")[0])
        numbers.append(sum(float(n.replace(",", "")) * UNITS[unit] for n, unit in parts))
    return numbers[0], numbers[1]


if __name__ == "__main__":
    main()
