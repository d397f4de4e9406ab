"""Places for runs that go side by side: the devices, the cores and the memory of each.

    --processes=N           runs at a time. Default: as many as the devices allow; 1 on a CPU
    --devices-per-run=N     GPUs or TPU chips of each run (default 1)

A place is taken by one run at a time. Its devices are said to the run in environment variables, so
that it sees no others; CUDA_VISIBLE_DEVICES and TPU_VISIBLE_CHIPS of the launcher are respected.
More runs than devices share a GPU and its memory. The cores are dealt out as well.
"""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.runtime.command_line import count

MOST = 1000  # runs at a time on one machine
MEMORY = 0.9  # of a GPU, for the runs that share it
# A run of several chips of a TPU must have a box of them.
BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
PLATFORMS = {"cuda": "cuda", "gpu": "cuda", "tpu": "tpu", "cpu": "cpu"}
NAMES = {"cuda": "GPU", "tpu": "TPU chip", "cpu": "CPU", "other": "accelerator"}


class Devices(NamedTuple):
    """What this machine has for runs; the names are those that the environment variables take."""

    kind: str  # a key of NAMES
    names: tuple[str, ...]


class Place(NamedTuple):
    """Where one run at a time goes."""

    name: str = "CPU"
    environment: Mapping[str, str] = {}
    cores: tuple[int, ...] = ()  # that the run keeps to; () is any


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--processes", type=count)
    parser.add_argument("--devices-per-run", type=count)


def asked_places(asked: Namespace, on_a_cpu: int = 1) -> list[Place]:
    """The places that the flags ask for; `on_a_cpu` without --processes."""
    here = found(os.environ)
    return places(here, asked.processes, asked.devices_per_run, os.environ, cores(), on_a_cpu)


def found(environment: Mapping[str, str]) -> Devices:
    """The devices that JAX would take here, without asking it: it would reserve their memory."""
    words = [word.strip() for word in environment.get("JAX_PLATFORMS", "").split(",")]
    asked = [PLATFORMS.get(word, "other") for word in words if word] or ["cuda", "tpu", "cpu"]
    for kind in asked:
        names = {"cuda": gpus, "tpu": chips}.get(kind, lambda environment: ("0",))(environment)
        if names:
            return Devices(kind, names)
    raise UserError(
        f"JAX_PLATFORMS={','.join(words)}, and this machine shows no "
        f"{' and no '.join(NAMES[kind] for kind in dict.fromkeys(asked))} to JAX; unset it, or say "
        "JAX_PLATFORMS=cpu."
    )


def gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES says, else a number for each GPU; none without JAX's plugin."""
    if not (_has("jax_cuda12_plugin") or _has("jax_cuda13_plugin")):
        return ()
    if (said := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return _listed(said)
    n = len(glob.glob("/dev/nvidia[0-9]*"))
    if not n and (program := shutil.which("nvidia-smi")):
        done = subprocess.run([program, "-L"], capture_output=True, text=True)
        n = len(re.findall(r"^GPU \d+", done.stdout, re.MULTILINE))
    return tuple(map(str, range(n)))


def chips(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What TPU_VISIBLE_CHIPS says, else a number for each chip of this host."""
    if not _has("libtpu"):
        return ()
    said = environment.get("TPU_VISIBLE_CHIPS", environment.get("TPU_VISIBLE_DEVICES"))
    if said is not None:
        return _listed(said)
    n = len(glob.glob("/dev/accel[0-9]*")) or len(glob.glob("/dev/vfio/[0-9]*"))
    return tuple(map(str, range(n)))


def cores() -> tuple[int, ...]:
    """The cores that this process may use; () where the system cannot tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(affinity(0))) if affinity else ()


def places(
    devices: Devices,
    processes: int | None = None,
    per_run: int | None = None,
    environment: Mapping[str, str] | None = None,
    cores: Sequence[int] = (),
    on_a_cpu: int = 1,
) -> list[Place]:
    """A place for each of `processes` runs; `environment` is what the launcher's own says."""
    n, given = len(devices.names), environment or {}
    is_dealt = devices.kind in ("cuda", "tpu")
    if (per_run or 1) > n:
        word = NAMES[devices.kind] + "s" * (n > 1)
        raise UserError(f"--devices-per-run must be at most {n}: there is {n} {word}.")
    groups = n // (per_run or 1)
    number = processes or (groups if is_dealt else on_a_cpu)
    if number > MOST:
        raise UserError(f"--processes must be at most {MOST}, got {number}.")
    made = []
    for i in range(number):
        mine, keep = {}, ()
        if number > 1 and len(cores) // number > 1:
            share = len(cores) // number
            keep = tuple(cores[i * share : (i + 1) * share])
        elif number > 1:  # side by side they would fight for cores
            mine = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
        name = NAMES[devices.kind]
        if is_dealt:
            size, j = per_run or 1, i % groups
            names = devices.names[j * size : (j + 1) * size]
            mine |= _seen(devices.kind, names, n, -(-number // groups))
            name += f" {','.join(names)}"
        elif devices.kind == "other" and number > 1:
            mine["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        # What the user says stays, but for which devices there are.
        said = {k: v for k, v in mine.items() if "VISIBLE" in k or k not in given}
        made.append(Place(name, said, keep))
    return made


def plain(number: int) -> list[Place]:
    """Places on a CPU that other processes may use too."""
    return places(Devices("cpu", ("0",)), number)


def _seen(kind: str, names: Sequence[str], n: int, sharers: int) -> dict[str, str]:
    """The variables that show a run these devices of `n` and no others."""
    if kind == "cuda":
        memory = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{MEMORY / sharers:.3f}"}
        return {"CUDA_VISIBLE_DEVICES": ",".join(names)} | (memory if sharers > 1 else {})
    if sharers > 1:
        raise UserError("runs cannot share a chip of a TPU: take fewer --processes.")
    if len(names) == n:
        return {}
    if len(names) not in BOUNDS:
        raise UserError(
            f"--devices-per-run must be {', '.join(map(str, BOUNDS))} or all chips of a TPU, got "
            f"{len(names)} of {n}."
        )
    return {
        "TPU_VISIBLE_CHIPS": ",".join(names),
        "TPU_VISIBLE_DEVICES": ",".join(names),  # what older versions of libtpu read
        "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[len(names)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }


def _listed(text: str) -> tuple[str, ...]:
    """ "0,2" is two devices; what comes after -1 is hidden, as CUDA has it."""
    names = [name.strip() for name in text.split(",")]
    shown = names[: names.index("-1")] if "-1" in names else names
    return tuple(name for name in shown if name and name != "NoDevFiles")


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
