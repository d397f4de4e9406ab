"""The share of time that a launcher keeps its slots busy, and the idle time between two runs.

    python benchmarks/sweep_slots.py          about 10 seconds, of which few are of the processor

24 runs on 8 slots. A run is a process that sleeps for 2 to 3 seconds, so that the launcher is
measured and not the cores that the runs would share.
"""

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from experiments.schedule import launch
from experiments.schedule.devices import cpu_slots
from experiments.schedule.jobs import Job

SLOTS, RUNS = 8, 24
RUN = """
import os, pathlib, sys, time
began = time.monotonic()
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
time.sleep(float(words["--config"]))
folder = pathlib.Path(words["--workdir"])
folder.mkdir()
(folder / "result.json").write_text(f"{began} {time.monotonic()}")
"""


def main() -> None:
    launch.PROGRAM = (sys.executable, "-S", "-c", RUN)
    with tempfile.TemporaryDirectory() as root:
        lengths = [2 + (7 * i % RUNS) / RUNS for i in range(RUNS)]
        jobs = [Job(str(i), str(n), {}, Path(root) / str(i)) for i, n in enumerate(lengths)]
        with launch.LocalExecutor(cpu_slots(SLOTS)) as executor:
            assert all(outcome.code == 0 for outcome in executor.run(jobs))
        times = [
            tuple(map(float, (job.workdir / "result.json").read_text().split())) for job in jobs
        ]
    first, last = min(a for a, _ in times), max(a for a, _ in times)
    moments = sorted({first, last, *(t for pair in times for t in pair if first < t < last)})
    used = sum((b - a) * sum(x <= a and y >= b for x, y in times) for a, b in pairwise(moments))
    ends = sorted(end for _, end in times)[: RUNS - SLOTS]
    starts = sorted(begin for begin, _ in times)[SLOTS:]
    empty = [start - end for start, end in zip(starts, ends)]
    print(f"{RUNS} runs on {SLOTS} slots")
    print(f"busy until the last one starts   {used / (last - first) / SLOTS:.1%}")
    mean = sum(empty) / len(empty)
    print(f"a slot is empty between two     {mean:.3f} s (at most {max(empty):.3f})")


if __name__ == "__main__":
    main()
