"""The share of time in which slots are busy, by a clock that only the executor advances."""

import types
from itertools import pairwise

from experiments.schedule import executor, launch
from experiments.schedule.devices import cpu_slots
from experiments.schedule.jobs import Job
from experiments.schedule.launch import LocalExecutor

SLOTS, RUNS = 8, 24


class Clock:
    """Replaces the module `time`: time passes when the executor sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def simulated(seconds, tmp_path, monkeypatch):
    """Simulates runs of given seconds; returns the starts and the ends."""
    clock, began, ended = Clock(), [], []

    class Process:
        def __init__(self, command, **_):
            self.index = len(began)
            self.until = clock.now + seconds[self.index]
            began.append(clock.now)
            ended.append(self.until)
            self.returncode = None

        def poll(self):
            self.returncode = 0 if clock.now >= self.until else None
            return self.returncode

    monkeypatch.setattr(launch, "time", clock)
    monkeypatch.setattr(executor, "time", clock)
    fake = types.SimpleNamespace(Popen=Process, DEVNULL=-3, STDOUT=-2)
    monkeypatch.setattr(launch, "subprocess", fake)
    jobs = [Job(str(i), "c", {}, tmp_path / str(i)) for i in range(len(seconds))]
    with LocalExecutor(cpu_slots(SLOTS)) as local:
        assert len(list(local.run(jobs))) == len(seconds)
    return began, ended


def busy_until_the_last_starts(began, ended):
    """Returns the share of slots with a run, between the first and the last start."""
    last = max(began)
    moments = sorted({0.0, last, *(t for t in (*began, *ended) if t < last)})
    used = 0.0
    for a, b in pairwise(moments):
        used += (b - a) * sum(start <= a and end >= b for start, end in zip(began, ended))
    return used / (last * SLOTS)


def test_24_tiny_runs_keep_8_slots_busy_until_the_last(tmp_path, monkeypatch):
    lengths = [8.0 + (7 * i % 24) / 6 for i in range(RUNS)]  # 8 to 12 seconds, in no order
    began, ended = simulated(lengths, tmp_path, monkeypatch)
    assert busy_until_the_last_starts(began, ended) > 0.97
    assert sum(lengths) / (max(ended) * SLOTS) > 0.85  # the tail of the last round included


def test_a_slot_is_used_again_after_the_next_poll(tmp_path, monkeypatch):
    _, ended = simulated([5.0] * RUNS, tmp_path, monkeypatch)
    assert max(ended) < 3 * (5.0 + 2 * executor.POLL_SECONDS)
