"""LAPACK uses one thread inside a sampler, where several threads would wait for each other."""

import collections
import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from experiments.cli.flags import ROOT
from tests.theory.attention_paths.posterior_draws import N, T
from theory import attention_paths
from theory.attention_paths import nuts


def test_small_matrices_are_factorised_on_one_thread(tiny, monkeypatch):
    """Two threads on a busy machine make draws 39 times as long."""
    State = collections.namedtuple("State", "i")
    monkeypatch.setattr(nuts, "advance", lambda *args: (State(np.ones(1)), {"x": threads()}))
    problem = tiny.attentioned, tiny.labels, N, T, (2, 2)
    sampler = attention_paths.Sampler.build(*problem, warmup=0, chains=1)
    with threadpool_limits(2, user_api="blas"):
        _, chunk = sampler.advance(State(np.zeros(1)), 1)
        assert set(threads().flat) == {2}
    assert chunk["x"].size and set(chunk["x"].flat) == {1}


@pytest.mark.slow
def test_the_first_factorisation_of_a_process_uses_one_thread():
    """JAX loads SciPy's LAPACK with the first factorisation, which may be inside the block."""
    script = """
import jax.numpy as jnp
from theory.numerics import one_lapack_thread
from tests.theory.attention_paths.test_threads import threads
with one_lapack_thread():
    jnp.linalg.cholesky(jnp.eye(2))
    print(threads().max())
"""
    command = [sys.executable, "-c", script]
    environment = {name: x for name, x in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "1"


def threads():
    """Returns the number of threads of each linear-algebra library, (1, libraries)."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return np.asarray([[pool["num_threads"] for pool in pools]])
