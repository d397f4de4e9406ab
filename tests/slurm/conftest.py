"""A cluster for the tests of this folder, if Slurm and submitit are installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm import cluster as daemons

ROOT = Path(__file__).parents[2]
PATIENCE = 900  # seconds after which a program of a test is taken for hung, on a busy machine too


@pytest.fixture
def cluster(cluster_of_file):
    """The cluster with an empty queue and all of its nodes, whatever a test before has left."""
    cluster_of_file.clear()
    return cluster_of_file


@pytest.fixture(scope="module")
def cluster_of_file():
    """A cluster for one file. The last test of test_deaths.py kills its controller.

    If the controller had not saved its state, it gives the number of a job to another one, which
    the nodes refuse.
    """
    if lacks := daemons.missing():
        pytest.skip(f"no {lacks[0]} on this machine: apt-get install slurm-wlm munge")
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("no submitit: pip install 'jaxformer[slurm]'")
    with daemons.running() as made:
        yield made


@pytest.fixture
def python(cluster):
    """Returns python(arguments), which waits for a program; python.started does not wait."""

    class Python:
        environment = cluster.environment | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
        }

        def started(self, *arguments, **more):
            return subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **more,
            )

        def __call__(self, *arguments, timeout=PATIENCE):
            process = self.started(*arguments)
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += " (it never ended)"
            return process.returncode, output

    return Python()
