"""Compiled programs are kept in a private folder, unless the user has decided otherwise."""

import os
import subprocess
import sys

import jax
import pytest

from jaxformer.runtime import compilation_cache as cache

OPTIONS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture(autouse=True)
def as_in_a_new_process(tmp_path, monkeypatch):
    """No folder is set and the cache is on; the settings of the suite come back afterwards."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_is_private_and_bounded():
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(cache.cache_folder())
    assert cache.cache_folder().stat().st_mode & 0o777 == 0o700
    assert jax.config.jax_compilation_cache_max_size == cache.MAX_BYTES


def test_a_folder_that_the_user_set_is_left_alone(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not cache.cache_folder().exists()


def test_the_variable_of_jax_turns_it_off():
    jax.config.update("jax_enable_compilation_cache", False)
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused_once(mode, capsys):
    cache.cache_folder().mkdir(parents=True)
    cache.cache_folder().chmod(mode)
    cache.use_compilation_cache()
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "chmod go-w" in said[0]


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path, capsys):
    (tmp_path / "jaxformer").write_text("a file")
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None
    assert "cannot be made" in capsys.readouterr().err


READS_A_GLOBAL = """
import jax
from jaxformer.runtime.compilation_cache import use_compilation_cache

use_compilation_cache()
for factor in (2.0, 3.0, 2.0):
    print(float(jax.jit(lambda x: x * factor)(1.5)))
"""


def test_a_program_that_reads_another_constant_is_another_program(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    for _ in range(2):  # the second process finds all programs
        done = subprocess.run(
            [sys.executable, "-c", READS_A_GLOBAL], env=environment, capture_output=True, text=True
        )
        assert done.stdout.split() == ["3.0", "4.5", "3.0"], done.stderr
    assert len([*cache.cache_folder().glob("*-cache")]) >= 2
