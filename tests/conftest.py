"""Tripwires for every test: silent broadcasting raises, warnings are errors.

The suite compiles much and computes little, so XLA's dearer passes are off: a quarter less time.
`make test-all` runs the same tests with them.
"""

import ctypes
import gc
import os
from importlib.metadata import version
from pathlib import Path

import pytest

# Two workers on two cores: one thread each, or they fight. The older code generator compiles in 3/5
# of the time. XLA aborts at a flag that it does not know, so only a version that has it is asked.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10.")
    + " --xla_cpu_parallel_codegen_split_count=1" * version("jaxlib").startswith("0.10."),
)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax

from experiments.papers import plots
from jaxformer.runtime import figure_style
from tests import pictures

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

MOST = 1.2 * 2**30  # bytes that a worker may hold before it forgets its compiled programs


@pytest.fixture(scope="module", autouse=True)
def a_worker_stays_small():
    """Compiled programs are kept for ever: a worker that ran a thousand tests held 4 GB of them."""
    yield
    if resident() > MOST:
        jax.clear_caches()
        gc.collect()
        give_back()


@pytest.fixture(scope="session", autouse=True)
def every_figure_is_looked_at():
    """What a test saves stands in a paper as it is: tests/pictures.py says what that means."""
    save, save_ours = figure_style.save, plots.save

    def checked(figure, file):
        save(figure, file)
        assert not pictures.faults(figure), f"{file}: {pictures.faults(figure)}"

    def checked_ours(figure, file):
        save_ours(figure, file)
        assert not pictures.faults(figure, is_headed=True), f"{file}: it has no words above"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_style, "save", checked)
        patch.setattr(plots, "save", checked_ours)
        yield


def resident() -> int:
    """Bytes of memory that this process holds now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: nobody looks
        return 0


def give_back() -> None:
    """Returns freed memory to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
