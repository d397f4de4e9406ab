"""Tripwires for every test: silent broadcasting raises, warnings are errors.

The suite compiles much and computes little, so XLA's dearer passes are off: a quarter less time.
`make test-all` runs the same tests with them.
"""

import os
from pathlib import Path

# Two workers on two cores: one thread each, or they fight.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
