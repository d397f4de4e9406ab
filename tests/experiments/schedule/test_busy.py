"""How busy a launcher keeps its places: by a clock that only the launcher moves."""

import types
from itertools import pairwise

from experiments.schedule import launch
from experiments.schedule.devices import cpu_slots
from experiments.schedule.jobs import Job
from experiments.schedule.launch import LocalExecutor

SLOTS, RUNS = 8, 24


class Clock:
    """time, as the launcher uses it: it passes when the launcher sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def simulated(seconds, tmp_path, monkeypatch):
    """(start, end) of each run by that clock; a run takes the seconds of its job."""
    clock, began, ended = Clock(), [], []

    class Process:
        def __init__(self, words, **_):
            self.place = len(began)
            self.until = clock.now + seconds[self.place]
            began.append(clock.now)
            ended.append(self.until)
            self.returncode = None

        def poll(self):
            self.returncode = 0 if clock.now >= self.until else None
            return self.returncode

    monkeypatch.setattr(launch, "time", clock)
    fake = types.SimpleNamespace(Popen=Process, DEVNULL=-3, STDOUT=-2)
    monkeypatch.setattr(launch, "subprocess", fake)
    jobs = [Job(str(i), "c", {}, tmp_path / str(i)) for i in range(len(seconds))]
    with LocalExecutor(cpu_slots(SLOTS)) as executor:
        assert len(list(executor.run(jobs))) == len(seconds)
    return began, ended


def busy_until_the_last_starts(began, ended):
    """The share of the places that have a run, from the first start to the last."""
    last = max(began)
    moments = sorted({0.0, last, *(t for t in (*began, *ended) if t < last)})
    used = 0.0
    for a, b in pairwise(moments):
        used += (b - a) * sum(start <= a and end >= b for start, end in zip(began, ended))
    return used / (last * SLOTS)


def test_24_tiny_runs_keep_8_places_busy_until_the_last(tmp_path, monkeypatch):
    lengths = [8.0 + (7 * i % 24) / 6 for i in range(RUNS)]  # 8 to 12 seconds, in no order
    began, ended = simulated(lengths, tmp_path, monkeypatch)
    assert busy_until_the_last_starts(began, ended) > 0.97
    assert sum(lengths) / (max(ended) * SLOTS) > 0.85  # the tail of the last round included


def test_a_place_is_taken_again_at_the_next_look(tmp_path, monkeypatch):
    _, ended = simulated([5.0] * RUNS, tmp_path, monkeypatch)
    assert max(ended) < 3 * (5.0 + 2 * launch.POLL_SECONDS)
