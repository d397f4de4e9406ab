"""Slots for parallel runs: the devices, CPU cores and memory that each run may use.

Devices are detected without starting JAX, which would reserve their memory. Environment variables
restrict each run to the devices of its slot. CUDA_VISIBLE_DEVICES and TPU_VISIBLE_CHIPS of the
launcher are respected. If there are more slots than devices, slots share a GPU and its memory.
"""

import glob
import importlib.util
import math
import os
import re
import shutil
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.runtime.command_line import count

MAX_PROCESSES = 1000  # on one machine
SHARED_MEMORY_FRACTION = 0.9  # the fraction of a GPU's memory that is divided among its runs
# {number of chips: block}. The TPU chips of one run form a block x,y,z of the TPU's grid.
TPU_BLOCKS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
KIND_OF_PLATFORM = {"cuda": "cuda", "gpu": "cuda", "tpu": "tpu", "cpu": "cpu"}
LABELS = {"cuda": "GPU", "tpu": "TPU chip", "cpu": "CPU", "other": "accelerator"}
SINGLE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}


class Devices(NamedTuple):
    """The devices of this machine, named as the environment variables expect them."""

    kind: str  # a key of LABELS
    names: tuple[str, ...]


class Slot(NamedTuple):
    """A device, or a share of one, that executes one run at a time."""

    name: str = "CPU"
    environment: Mapping[str, str] = {}
    cores: tuple[int, ...] = ()  # the CPU cores of the run; () is all


def add_flags(parser: ArgumentParser, default_on_cpu: int = 1) -> None:
    """Adds --processes and --devices-per-run; see `slots_from_flags`."""
    processes_help = "runs at a time (default: as many as the devices allow; %d on a CPU)"
    parser.add_argument(
        "--processes", type=count, metavar="N", help=processes_help % default_on_cpu
    )
    parser.add_argument(
        "--devices-per-run", type=count, metavar="N", help="GPUs or TPU chips of each run (1)"
    )


def slots_from_flags(args: Namespace, default_on_cpu: int = 1) -> list[Slot]:
    """Returns the slots for --processes and --devices-per-run.

    Args:
        args: the parsed flags.
        default_on_cpu: the number of slots on a CPU if --processes is not given.
    """
    return make_slots(
        detect_devices(os.environ),
        args.processes,
        args.devices_per_run,
        os.environ,
        available_cores(),
        default_on_cpu,
    )


def detect_devices(environment: Mapping[str, str]) -> Devices:
    """Returns the devices that JAX would use, without starting it."""
    platforms = [name.strip() for name in environment.get("JAX_PLATFORMS", "").split(",")]
    kinds = [KIND_OF_PLATFORM.get(name, "other") for name in platforms if name]
    kinds = kinds or ["cuda", "tpu", "cpu"]
    for kind in kinds:
        detect = {"cuda": visible_gpus, "tpu": visible_tpu_chips}.get(kind)
        names = detect(environment) if detect else ("0",)
        if names:
            return Devices(kind, names)
    missing = " and no ".join(LABELS[kind] for kind in dict.fromkeys(kinds))
    raise UserError(
        f"JAX_PLATFORMS={','.join(platforms)}, and this machine shows no {missing} to JAX; unset "
        "it, or set JAX_PLATFORMS=cpu."
    )


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names in CUDA_VISIBLE_DEVICES, or else the numbers of all GPUs.

    The result is empty if JAX's CUDA plugin is not installed.
    """
    if not (_is_installed("jax_cuda12_plugin") or _is_installed("jax_cuda13_plugin")):
        return ()
    if (visible := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return _device_names(visible)
    n = len(glob.glob("/dev/nvidia[0-9]*"))
    if not n and (program := shutil.which("nvidia-smi")):
        listing = subprocess.run([program, "-L"], capture_output=True, text=True).stdout
        n = len(re.findall(r"^GPU \d+", listing, re.MULTILINE))
    return tuple(map(str, range(n)))


def visible_tpu_chips(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names in TPU_VISIBLE_CHIPS, or else the numbers of all chips of this host."""
    if not _is_installed("libtpu"):
        return ()
    visible = environment.get("TPU_VISIBLE_CHIPS", environment.get("TPU_VISIBLE_DEVICES"))
    if visible is not None:
        return _device_names(visible)
    n = len(glob.glob("/dev/accel[0-9]*")) or len(glob.glob("/dev/vfio/[0-9]*"))
    return tuple(map(str, range(n)))


def available_cores() -> tuple[int, ...]:
    """Returns the CPU cores that this process may use; () if the system does not report them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(affinity(0))) if affinity else ()


def make_slots(
    devices: Devices,
    processes: int | None = None,
    per_run: int | None = None,
    environment: Mapping[str, str] | None = None,
    cores: Sequence[int] = (),
    default_on_cpu: int = 1,
) -> list[Slot]:
    """Divides devices and cores into slots.

    Args:
        devices: the devices of this machine.
        processes: the number of slots; None is as many as the devices allow.
        per_run: the number of devices of a slot; None is 1.
        environment: the launcher's variables. They take precedence over the variables of a slot,
            except over those that select devices.
        cores: the CPU cores to divide.
        default_on_cpu: the number of slots on a CPU if `processes` is None.
    """
    n, devices_per_slot = len(devices.names), per_run or 1
    user_variables = environment or {}
    # Whether runs can be restricted to some of the devices.
    is_divisible = devices.kind in ("cuda", "tpu")
    if devices_per_slot > n:
        label = LABELS[devices.kind] + "s" * (n > 1)
        verb = "are" if n > 1 else "is"
        raise UserError(f"--devices-per-run must be at most {n}: there {verb} {n} {label}.")
    n_groups = n // devices_per_slot  # groups of devices; slots beyond this number share a group
    n_slots = processes or (n_groups if is_divisible else default_on_cpu)
    if n_slots > MAX_PROCESSES:
        raise UserError(f"--processes must be at most {MAX_PROCESSES}, got {n_slots}.")
    cores_per_slot = len(cores) // n_slots
    slots = []
    for i in range(n_slots):
        variables, slot_cores, name = {}, (), LABELS[devices.kind]
        if n_slots > 1 and cores_per_slot > 1:
            slot_cores = tuple(cores[i * cores_per_slot : (i + 1) * cores_per_slot])
        elif n_slots > 1:  # parallel runs would compete for cores
            variables |= SINGLE_THREAD
        if is_divisible:
            first = i % n_groups * devices_per_slot
            names = devices.names[first : first + devices_per_slot]
            sharers = math.ceil(n_slots / n_groups)
            variables |= _visibility_variables(devices.kind, names, n, sharers)
            name += f" {','.join(names)}"
        elif devices.kind == "other" and n_slots > 1:
            variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        variables = {
            variable: value
            for variable, value in variables.items()
            if "VISIBLE" in variable or variable not in user_variables
        }
        slots.append(Slot(name, variables, slot_cores))
    return slots


def cpu_slots(number: int) -> list[Slot]:
    """Returns slots on a CPU that are not restricted to certain cores."""
    return make_slots(Devices("cpu", ("0",)), number)


def _visibility_variables(kind: str, names: Sequence[str], n: int, sharers: int) -> dict[str, str]:
    """Returns the variables that restrict a run to `names`, out of `n` devices.

    `sharers` runs at a time use the same devices.
    """
    if kind == "cuda":
        memory = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{SHARED_MEMORY_FRACTION / sharers:.3f}"}
        return {"CUDA_VISIBLE_DEVICES": ",".join(names)} | (memory if sharers > 1 else {})
    if sharers > 1:
        raise UserError("runs cannot share a chip of a TPU: take fewer --processes.")
    if len(names) == n:
        return {}
    if len(names) not in TPU_BLOCKS:
        raise UserError(
            f"--devices-per-run must be {', '.join(map(str, TPU_BLOCKS))} or all chips of a TPU, "
            f"got {len(names)} of {n}."
        )
    return {
        "TPU_VISIBLE_CHIPS": ",".join(names),
        "TPU_VISIBLE_DEVICES": ",".join(names),  # read by older versions of libtpu
        "TPU_CHIPS_PER_PROCESS_BOUNDS": TPU_BLOCKS[len(names)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }


def _device_names(text: str) -> tuple[str, ...]:
    """Splits "0,2" into two names.

    As in CUDA, -1 hides the names after it. "NoDevFiles" is a launcher's text for no device.
    """
    names = [name.strip() for name in text.split(",")]
    visible = names[: names.index("-1")] if "-1" in names else names
    return tuple(name for name in visible if name and name != "NoDevFiles")


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
