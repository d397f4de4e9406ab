"""Time and memory that a dry run promises, beside those of the run itself, for six configs.

    taskset -c 0 python benchmarks/plan.py

Each run is a process of its own with programs already compiled, as those of a sweep are: it is
trained once before anything is timed. No run stops early (train.target = 2).
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
MORE = {"noisy recall": ["--config.train.steps=200", "--config.optim.learning_rate=0.03"]}
UNITS = {"s": 1, "min": 60, "h": 3600, "MiB": 1, "GiB": 1024}


def main() -> None:
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores")
    print("config                 seconds: guessed, measured, run (measured/run)   MiB: the same")
    for name, config in CONFIGS.items():
        words = [f"--config={ROOT / 'configs' / config}", "--config.train.target=2"]
        words += MORE.get(name, [])
        with tempfile.TemporaryDirectory() as folder:
            run(words, f"--workdir={folder}/first")
            guessed, measured = (read(run(words, how)[0]) for how in ("--dry-run", "--measure"))
            seconds = run(words, f"--workdir={folder}/run")[1]
            held = json.loads(Path(folder, "run/result.json").read_text())["performance"]
        memory = held["peak_memory"] / 2**20
        print(
            f"{name:22} {guessed[0]:6.0f} {measured[0]:6.0f} {seconds:6.1f}  "
            f"({measured[0] / seconds:.2f})   {guessed[1]:6.0f} {measured[1]:6.0f} {memory:6.0f}  "
            f"({guessed[1] / memory:.2f}, {measured[1] / memory:.2f})",
            flush=True,
        )


def run(words: list[str], *more: str) -> tuple[str, float]:
    """Returns the output of the command and its seconds."""
    began = time.monotonic()
    done = subprocess.run([*RUN, *words, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, time.monotonic() - began


def read(out: str) -> tuple[float, float]:
    """(seconds, MiB) of the lines of a dry run."""
    found = []
    for word, units in (("time", "s|min|h"), ("memory", "MiB|GiB")):
        line = [line for line in out.splitlines() if line.startswith(f"{word}: about")][-1]
        parts = re.findall(rf"([\d.,]+) ({units})\b", line.partition(" for ")[0])
        found.append(sum(float(n.replace(",", "")) * UNITS[unit] for n, unit in parts))
    return found[0], found[1]


if __name__ == "__main__":
    main()
