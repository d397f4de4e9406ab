"""Each run has its own devices, cores and memory. The devices are simulated."""

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
from tests.experiments.conftest import wrong_errors

EIGHT = Devices("cuda", tuple("01234567"))
GPUS = "CUDA_VISIBLE_DEVICES"
# Writes its devices and cores. It ends when eight runs have started, so that each has a slot.
PROGRAM = """
import json, os, pathlib, sys, time
arguments = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
folder = pathlib.Path(arguments["--workdir"])
folder.mkdir(parents=True)
cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
seen = {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "cores": cores}
(folder / "seen.json").write_text(json.dumps(seen))
deadline = time.monotonic() + 60
while len([*folder.parent.glob("*/seen.json")]) < 8 and time.monotonic() < deadline:
    time.sleep(0.01)
(folder / "result.json").touch()
"""


def values(slots, name):
    """Returns an environment variable of each slot."""
    return [slot.environment.get(name) for slot in slots]


def test_eight_runs_at_a_time_see_a_gpu_each(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", PROGRAM))
    jobs = [Job(f"run {i}", "c", {}, tmp_path / str(i)) for i in range(12)]
    cores = sorted(devices.available_cores())[:1]
    slots = [slot._replace(cores=tuple(cores)) for slot in make_slots(EIGHT)]
    with LocalExecutor(slots) as executor:
        outcomes = list(executor.run(jobs))
    assert [outcome.code for outcome in outcomes] == [0] * 12
    seen = [json.loads((job.workdir / "seen.json").read_text()) for job in jobs]
    assert [run["gpus"] for run in seen[:8]] == list("01234567")
    assert {run["gpus"] for run in seen[8:]} <= set("01234567")
    assert all(run["cores"] == cores for run in seen)


def test_slots_divide_the_devices_that_the_launcher_may_see():
    assert values(make_slots(EIGHT), GPUS) == list("01234567")
    assert values(make_slots(EIGHT, per_run=3), GPUS) == ["0,1,2", "3,4,5"]
    assert values(make_slots(EIGHT, processes=2), GPUS) == ["0", "1"]
    some = Devices("cuda", devices._device_names("3,GPU-8932f937,-1,4"))
    assert values(make_slots(some, environment={GPUS: "3,GPU-8932f937,-1,4"}), GPUS) == [
        "3",
        "GPU-8932f937",
    ]


def test_runs_that_share_a_gpu_share_its_memory():
    slots = make_slots(Devices("cuda", ("0", "1")), processes=4)
    assert values(slots, GPUS) == ["0", "1", "0", "1"]
    assert set(values(slots, "XLA_PYTHON_CLIENT_MEM_FRACTION")) == {"0.450"}
    alone = make_slots(Devices("cuda", ("0", "1")), processes=2)
    assert values(alone, "XLA_PYTHON_CLIENT_MEM_FRACTION") == [None, None]
    user_variables = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}
    slots = make_slots(Devices("cuda", ("0",)), 2, None, user_variables)
    assert values(slots, "XLA_PYTHON_CLIENT_MEM_FRACTION") == [None, None]


def test_a_run_sees_its_own_chips_of_a_tpu():
    slots = make_slots(Devices("tpu", tuple("0123")))
    assert values(slots, "TPU_VISIBLE_CHIPS") == list("0123")
    assert set(values(slots, "TPU_CHIPS_PER_PROCESS_BOUNDS")) == {"1,1,1"}
    assert make_slots(Devices("tpu", tuple("0123")), per_run=4)[0].environment == {}
    with pytest.raises(UserError, match=r"must be 1, 2, 4, 8 or all chips of a TPU, got 3 of 4"):
        make_slots(Devices("tpu", tuple("0123")), per_run=3)
    with pytest.raises(UserError, match="cannot share a chip"):
        make_slots(Devices("tpu", ("0",)), processes=2)


def test_cores_are_divided_if_each_run_has_two():
    slots = make_slots(Devices("cpu", ("0",)), 2, cores=(0, 1, 4, 5))
    assert [slot.cores for slot in slots] == [(0, 1), (4, 5)]
    assert slots[0].environment == {}
    few = make_slots(Devices("cpu", ("0",)), 2, cores=(0, 1))
    assert few[0].cores == () and few[0].environment["OMP_NUM_THREADS"] == "1"
    assert (
        make_slots(Devices("cpu", ("0",)), cores=(0, 1, 2))[0] == devices.Slot()
    )  # it has them all


def test_devices_are_detected_without_jax(monkeypatch):
    monkeypatch.setattr(devices, "_is_installed", lambda package: package == "jax_cuda13_plugin")
    assert devices.detect_devices({GPUS: "2,3"}) == Devices("cuda", ("2", "3"))
    assert devices.detect_devices({GPUS: ""}).kind == "cpu"
    assert devices.detect_devices({GPUS: "2,3", "JAX_PLATFORMS": "cpu"}).kind == "cpu"
    assert devices.detect_devices({GPUS: "2", "JAX_PLATFORMS": "tpu,cuda,cpu"}).kind == "cuda"
    monkeypatch.setattr(devices, "_is_installed", lambda package: package == "libtpu")
    assert devices.detect_devices({GPUS: "2", "TPU_VISIBLE_CHIPS": "1"}) == Devices("tpu", ("1",))


UNAVAILABLE = [
    (["--devices-per-run=2"], "cpu", "--devices-per-run must be at most 1: there is 1 CPU."),
    (["--devices-per-run=0"], "cpu", "--devices-per-run must be a whole number"),
    (["--processes=999999"], "cpu", "--processes must be at most 1000, got 999999."),
    ([], "tpu", "JAX_PLATFORMS=tpu, and this machine shows no TPU chip to JAX"),
]


def test_unavailable_devices_are_one_line_errors(monkeypatch, capsys):
    monkeypatch.setattr(devices, "_is_installed", lambda package: False)
    failures = []
    for arguments, platforms, message in UNAVAILABLE:
        monkeypatch.setitem(os.environ, "JAX_PLATFORMS", platforms)
        command = ["--file=configs/sweeps/tiny.toml", "--dry-run", *arguments]
        failures += wrong_errors(sweep.main, [(command, message)], capsys)
    assert not failures
