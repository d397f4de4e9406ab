"""Each run has devices, cores and memory of its own; the devices are pretended."""

import json
import os
import sys

import pytest

from experiments import sweep
from experiments.schedule import devices, launch
from experiments.schedule.devices import Devices, make_slots
from experiments.schedule.jobs import Job
from experiments.schedule.launch import LocalExecutor
from jaxformer.core.errors import UserError

EIGHT = Devices("cuda", tuple("01234567"))
GPUS = "CUDA_VISIBLE_DEVICES"
# Writes what it sees, and ends when all of its round have begun: so that each has a slot.
SEES = """
import json, os, pathlib, sys, time
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
folder = pathlib.Path(words["--workdir"])
folder.mkdir(parents=True)
cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
seen = {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "cores": cores}
(folder / "seen.json").write_text(json.dumps(seen))
deadline = time.monotonic() + 60
while len([*folder.parent.glob("*/seen.json")]) < 8 and time.monotonic() < deadline:
    time.sleep(0.01)
(folder / "result.json").touch()
"""


def values(made, name):
    return [slot.environment.get(name) for slot in made]


def test_eight_runs_at_a_time_see_a_gpu_each(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", SEES))
    jobs = [Job(f"run {i}", "c", {}, tmp_path / str(i)) for i in range(12)]
    mine = sorted(devices.available_cores())[:1]
    made = [slot._replace(cores=tuple(mine)) for slot in make_slots(EIGHT)]
    with LocalExecutor(made) as executor:
        outcomes = list(executor.run(jobs))
    assert [outcome.code for outcome in outcomes] == [0] * 12
    seen = [json.loads((job.workdir / "seen.json").read_text()) for job in jobs]
    assert [one["gpus"] for one in seen[:8]] == list("01234567")
    assert {one["gpus"] for one in seen[8:]} <= set("01234567")
    assert all(one["cores"] == mine for one in seen)


def test_devices_are_dealt_out_in_groups_and_those_of_the_launcher_are_kept_to():
    assert values(make_slots(EIGHT), GPUS) == list("01234567")
    assert values(make_slots(EIGHT, per_run=3), GPUS) == ["0,1,2", "3,4,5"]
    assert values(make_slots(EIGHT, processes=2), GPUS) == ["0", "1"]
    some = Devices("cuda", devices._device_names("3,GPU-8932f937,-1,4"))
    assert values(make_slots(some, environment={GPUS: "3,GPU-8932f937,-1,4"}), GPUS) == [
        "3",
        "GPU-8932f937",
    ]


def test_runs_that_share_a_gpu_share_its_memory():
    made = make_slots(Devices("cuda", ("0", "1")), processes=4)
    assert values(made, GPUS) == ["0", "1", "0", "1"]
    assert set(values(made, "XLA_PYTHON_CLIENT_MEM_FRACTION")) == {"0.450"}
    alone = make_slots(Devices("cuda", ("0", "1")), processes=2)
    assert values(alone, "XLA_PYTHON_CLIENT_MEM_FRACTION") == [None, None]
    said = make_slots(Devices("cuda", ("0",)), 2, None, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"})
    assert values(said, "XLA_PYTHON_CLIENT_MEM_FRACTION") == [None, None]  # the user's stays


def test_a_run_sees_its_own_chips_of_a_tpu():
    made = make_slots(Devices("tpu", tuple("0123")))
    assert values(made, "TPU_VISIBLE_CHIPS") == list("0123")
    assert set(values(made, "TPU_CHIPS_PER_PROCESS_BOUNDS")) == {"1,1,1"}
    assert make_slots(Devices("tpu", tuple("0123")), per_run=4)[0].environment == {}
    with pytest.raises(UserError, match=r"must be 1, 2, 4, 8 or all chips of a TPU, got 3 of 4"):
        make_slots(Devices("tpu", tuple("0123")), per_run=3)
    with pytest.raises(UserError, match="cannot share a chip"):
        make_slots(Devices("tpu", ("0",)), processes=2)


def test_cores_are_dealt_out_where_there_are_enough():
    made = make_slots(Devices("cpu", ("0",)), 2, cores=(0, 1, 4, 5))
    assert [slot.cores for slot in made] == [(0, 1), (4, 5)]
    assert made[0].environment == {}
    few = make_slots(Devices("cpu", ("0",)), 2, cores=(0, 1))
    assert few[0].cores == () and few[0].environment["OMP_NUM_THREADS"] == "1"
    assert (
        make_slots(Devices("cpu", ("0",)), cores=(0, 1, 2))[0] == devices.Slot()
    )  # it has them all


def test_what_there_is_is_found_without_jax(monkeypatch):
    monkeypatch.setattr(devices, "_is_installed", lambda package: package == "jax_cuda13_plugin")
    assert devices.detect_devices({GPUS: "2,3"}) == Devices("cuda", ("2", "3"))
    assert devices.detect_devices({GPUS: ""}).kind == "cpu"
    assert devices.detect_devices({GPUS: "2,3", "JAX_PLATFORMS": "cpu"}).kind == "cpu"
    assert devices.detect_devices({GPUS: "2", "JAX_PLATFORMS": "tpu,cuda,cpu"}).kind == "cuda"
    monkeypatch.setattr(devices, "_is_installed", lambda package: package == "libtpu")
    assert devices.detect_devices({GPUS: "2", "TPU_VISIBLE_CHIPS": "1"}) == Devices("tpu", ("1",))


@pytest.mark.parametrize(
    "words, platforms, message",
    [
        (["--devices-per-run=2"], "cpu", "--devices-per-run must be at most 1: there is 1 CPU."),
        (["--devices-per-run=0"], "cpu", "--devices-per-run must be a whole number"),
        (["--processes=999999"], "cpu", "--processes must be at most 1000, got 999999."),
        ([], "tpu", "JAX_PLATFORMS=tpu, and this machine shows no TPU chip to JAX"),
    ],
)
def test_what_is_not_there_is_one_line(words, platforms, message, monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "JAX_PLATFORMS", platforms)
    monkeypatch.setattr(devices, "_is_installed", lambda package: False)
    assert sweep.main(["--file=configs/sweeps/tiny.toml", "--dry-run", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error
