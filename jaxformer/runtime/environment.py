"""The environment of a run: versions, device, cores, commit of the code."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

# Variables that choose how XLA compiles or how many threads compute. They change the last bits.
VARIABLES = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DISABLE_MOST_OPTIMIZATIONS",
    "JAX_ENABLE_X64",
    "NPROC",
    "OMP_NUM_THREADS",
)
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "numpyro")

# Records, and the page that is made from them, cannot change a run. So the record that a plan's
# first run leaves does not make the commit of its second one uncertain.
WITHOUT_RECORDS = (":!results", ":!RESULTS.md", ":!confirmation", ":!ladders", ":!at_size")


def environment() -> dict[str, Any]:
    """Returns what decides the bits of results (versions, device, cores, flags), and the commit."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "versions": versions,
        "platform": device.platform,
        "device": device.device_kind if device.platform != "cpu" else processor(),
        "devices": jax.device_count(),
        "cores": _cores(),
        "variables": {name: os.environ[name] for name in VARIABLES if os.environ.get(name)},
        "commit": git("rev-parse", "HEAD"),
        "clean": git("status", "--porcelain", "--", ".", *WITHOUT_RECORDS) == "",
    }


def git(*arguments: str) -> str | None:
    """Returns the output of a git command in this repository, None if it fails."""
    folder = Path(__file__).parents[2]
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cores() -> int:
    # Cores that this process may use, where the system reports them.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def processor() -> str:
    """Returns the model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
