"""Settings of all tests: silent broadcasting raises, warnings are errors, figures are checked.

The suite compiles much and computes little, so that XLA's expensive passes are off, which saves a
quarter of the time. `make test-all` runs the same tests with them.
"""

import ctypes
import functools
import gc
import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

# Each of two workers on two cores gets one thread. The older code generator compiles in 3/5 of the
# time. XLA aborts at an unknown flag, so that flags are set only for versions that know them.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10.")
    + " --xla_cpu_parallel_codegen_split_count=1" * version("jaxlib").startswith("0.10."),
)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Threads of LAPACK wait for each other in a loop, which costs a third of a test of integrals.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Processes that tests start share the programs that the workers have compiled.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax

from experiments import report
from experiments.cli import flags
from experiments.cli.flags import ROOT
from experiments.confirmation import plan, published
from experiments.confirmation.runs import of_first_seeds
from experiments.ledger import ledger as ledger_module
from experiments.ledger import read
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.papers import PAPERS, plots
from experiments.schedule import planning
from jaxformer.report import figure_style
from tests import pictures

jax.config.update("jax_numpy_rank_promotion", "raise")

# A worker above it drops its compiled programs, and the tests that follow trace them again.
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MAX_WORKER_BYTES = min(max(1.2 * 2**30, MEMORY_BYTES / 6), 2.0 * 2**30)


@pytest.fixture(scope="module", autouse=True)
def a_worker_stays_small():
    """Drops compiled programs above a limit; after a thousand tests they would need 4 GB."""
    yield
    if resident() > MAX_WORKER_BYTES:
        jax.clear_caches()
        gc.collect()
        return_free_memory()


@pytest.fixture(scope="session", autouse=True)
def check_every_saved_figure():
    """Checks each figure that a test saves for overlaps and small letters (tests/pictures.py)."""
    save, save_ours = figure_style.save, plots.save

    def checked(figure, file):
        save(figure, file)
        assert not pictures.faults(figure), f"{file}: {pictures.faults(figure)}"

    def checked_ours(figure, file):
        save_ours(figure, file)
        assert not pictures.faults(figure, is_headed=True), f"{file}: it has no title or subtitle"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_style, "save", checked)
        patch.setattr(plots, "save", checked_ours)
        yield


@pytest.fixture(scope="session", autouse=True)
def read_the_records_once():
    """Reads the repository's records once in a process, which takes five CPU seconds."""
    load = read.load
    of_the_repository = functools.cache(lambda: load(ROOT / "results"))

    def load_once(folder):
        if Path(folder) != ROOT / "results":
            return load(folder)
        return tuple([*part] for part in of_the_repository())

    with pytest.MonkeyPatch.context() as patch:
        for module in (read, report):
            patch.setattr(module, "load", load_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def compute_each_cell_key_once():
    """Loads the configs of a ledger once in a process; a ledger loads 300 of them in a second."""
    compute, keys = ledger_module.cell_key, {}

    def compute_once(cell, scale):
        file = Path(cell.config.partition(":")[0])
        if flags.ROOT != ROOT or (Path.cwd() != ROOT and file.is_file()):
            return compute(cell, scale)  # the config of a test
        name = f"{cell} {scale}"
        if name not in keys:
            keys[name] = compute(cell, scale)
        return keys[name]

    with pytest.MonkeyPatch.context() as patch:
        for module in (ledger_module, planning):
            patch.setattr(module, "cell_key", compute_once)
        yield


@pytest.fixture(scope="session")
def real_records(read_the_records_once):
    """The records of the repository."""
    records, problems = read.load(ROOT / "results")
    assert not problems
    return records


@pytest.fixture(scope="session")
def real_rows(real_records):
    """The rows of the ledger: every table and figure with its records and verdict."""
    return ledger(PAPERS, real_records)


@pytest.fixture(scope="session")
def published_rows(real_rows):
    """The rows of the ledger with their confirmations, as the pages show them."""
    return published.with_confirmations(real_rows, ROOT / "confirmation")


@pytest.fixture(scope="session")
def fresh_records():
    """The new records of each row by (paper, item), then by cell, with the seeds of its plan."""
    found = {}
    for file in sorted((ROOT / "confirmation").rglob("PLAN.json")):
        contents = {
            record.stem: Record.from_json(json.loads(record.read_text()), where=record.name)
            for record in (file.parent / "records").glob("*.json")
        }
        for row in plan.read(file).rows:
            records = {
                f"{cell}, replica {i + 1}" if i else cell: of_first_seeds(contents[name], row.seeds)
                for cell, names in row.cells.items()
                for i, name in enumerate(names)
                if name in contents
            }
            if records or (row.paper, row.item) not in found:
                found[row.paper, row.item] = records
    return found


def resident() -> int:
    """Returns the bytes of memory of this process, or 0 where /proc is missing."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def return_free_memory() -> None:
    """Returns freed memory to the system if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def pytest_collection_finish(session) -> None:
    """Makes the garbage collector look less often at the objects of imported modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def pytest_unconfigure(config) -> None:
    """Prints the CPU seconds of the whole run, workers included."""
    if not hasattr(config, "workerinput"):
        times = os.times()
        seconds = times.user + times.system + times.children_user + times.children_system
        print(f"{seconds:.0f} CPU seconds")
