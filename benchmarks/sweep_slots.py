"""The share of time that a launcher keeps its slots busy, and the idle time between two runs.

    python benchmarks/sweep_slots.py          10 seconds, mostly waiting

The benchmark starts 24 runs on 8 slots. Each run is a process that sleeps for 2 to 3 seconds: runs
that compute would share the cores, and the idle times would not be due to the launcher alone.
"""

import sys
import tempfile
from pathlib import Path

from experiments.schedule import launch
from experiments.schedule.devices import cpu_slots
from experiments.schedule.jobs import Job

SLOTS, RUNS = 8, 24
# A run as a Python program: it sleeps, then writes when it began and when it ended. The text of
# --config is the number of seconds.
RUN = """
import os, pathlib, sys, time
began = time.monotonic()
flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
time.sleep(float(flags["--config"]))
folder = pathlib.Path(flags["--workdir"])
folder.mkdir()
(folder / "result.json").write_text(f"{began} {time.monotonic()}")
"""


def main() -> None:
    launch.PROGRAM = (sys.executable, "-S", "-c", RUN)
    with tempfile.TemporaryDirectory() as root:
        durations = [2 + (7 * i % RUNS) / RUNS for i in range(RUNS)]  # seconds
        jobs = [
            Job(str(i), str(seconds), {}, Path(root) / str(i))
            for i, seconds in enumerate(durations)
        ]
        with launch.LocalExecutor(cpu_slots(SLOTS)) as executor:
            assert all(outcome.code == 0 for outcome in executor.run(jobs))
        times = [
            tuple(map(float, (job.workdir / "result.json").read_text().split())) for job in jobs
        ]
    starts, ends = (sorted(moments) for moments in zip(*times))
    first_start, last_start = starts[0], starts[-1]
    # Slot-seconds of work until the last run starts.
    busy = sum(min(end, last_start) - start for start, end in times)
    # The first runs start at once on all slots; each later one follows the end of another.
    idle = [start - end for start, end in zip(starts[SLOTS:], ends)]
    print(f"{RUNS} runs on {SLOTS} slots")
    print(f"busy until the last run starts   {busy / (last_start - first_start) / SLOTS:.1%}")
    mean = sum(idle) / len(idle)
    print(f"a slot is idle between two runs  {mean:.3f} s (at most {max(idle):.3f})")


if __name__ == "__main__":
    main()
