"""Checkpoints: exact round trips, detected damage, and no loss on a full disk."""

import gc
import resource
import threading
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.io import checkpoint_writer
from jaxformer.io.checkpoint_writer import Checkpoints, flatten_state, unflatten_state


class State(NamedTuple):
    step: jnp.ndarray
    trainable: dict
    opt_state: tuple


def state(value):
    weights = {"block_0": {"kernel": jnp.arange(600.0).reshape(20, 30) + value}}
    return State(jnp.int32(value), weights, (jnp.float32(value), {"mu": jnp.full(5, value * 0.1)}))


def note(step):
    return {"rules": [[".*", "train"]], "seconds": {"run": step}}


@pytest.fixture(autouse=True)
def nothing_is_left_for_the_next_test():
    """Raises warnings of Orbax' unfinished objects in the test that made them."""
    yield
    gc.collect()


@pytest.fixture
def saved(tmp_path):
    """Returns a folder with the checkpoints of steps 1 and 2."""
    with Checkpoints(tmp_path / "ckpt") as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state(step), note(step))
        checkpoints.wait()
    return tmp_path / "ckpt"


def test_paths_name_the_leaves():
    assert list(flatten_state(state(0))) == [
        "step",
        "trainable/block_0/kernel",
        "opt_state/0",
        "opt_state/1/mu",
    ]


def test_the_newest_comes_back_bit_by_bit(saved):
    with Checkpoints(saved) as checkpoints:
        result = checkpoints.restore(like=state(0))
    back = unflatten_state(result.arrays, state(0))
    assert result.step == 2 and result.note["seconds"] == {"run": 2}
    for restored_leaf, saved_leaf in zip(
        flatten_state(back).values(), flatten_state(state(2)).values(), strict=True
    ):
        np.testing.assert_array_equal(restored_leaf, saved_leaf)


def test_training_goes_on_while_a_state_is_hashed(saved, monkeypatch):
    """An error in the thread that hashes is raised at the next save."""
    hashed, array_sha256 = threading.Event(), checkpoint_writer.array_sha256

    def slowly(leaf):
        assert hashed.wait(30)
        return array_sha256(leaf)

    monkeypatch.setattr(checkpoint_writer, "array_sha256", slowly)
    with Checkpoints(saved) as checkpoints:
        checkpoints.save(3, state(3), note(3))  # would stand still here
        hashed.set()
        checkpoints.wait()
        assert checkpoints.newest_saved() == 3
        monkeypatch.setattr(checkpoints._manager, "save", lambda *_, **__: 1 / 0)
        checkpoints.save(4, state(4), note(4))
        with pytest.raises(UserError, match=r"cannot save .* division by zero.* kept: step 3"):
            checkpoints.save(5, state(5), note(5))
    with Checkpoints(saved) as checkpoints:
        assert checkpoints.restore(like=state(0)).step == 3


def data_files(folder):
    return sorted((f for f in folder.rglob("*") if f.is_file()), key=lambda f: -f.stat().st_size)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(bytes(content))


DAMAGE = {
    "a flipped bit": flip,
    "a truncated file": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "a missing file": lambda file: file.unlink(),
    "an empty file": lambda file: file.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_the_data_is_found_and_the_step_before_is_used(saved, damage, capfd):
    for file in data_files(saved / "2")[:2]:
        DAMAGE[damage](file)
    with Checkpoints(saved) as checkpoints:
        result = checkpoints.restore(like=state(0))
    assert result.step == 1 and result.arrays["step"] == 1
    assert "step 2 is damaged" in (error := capfd.readouterr().err) and "using step 1" in error
    assert error.count("\n") == 1


def test_damage_to_any_file_never_gives_wrong_values(saved, capfd):
    """Flips a bit in each file in turn: the reader returns the right values or the step before."""
    for file in data_files(saved / "2"):
        content = file.read_bytes()
        flip(file)
        with Checkpoints(saved) as checkpoints:
            result = checkpoints.restore(like=state(0))
        np.testing.assert_array_equal(
            result.arrays["trainable/block_0/kernel"],
            state(result.step).trainable["block_0"]["kernel"],
        )
        file.write_bytes(content)


def test_no_whole_checkpoint_is_an_error_not_a_new_start(saved):
    for step in ("1", "2"):
        flip(data_files(saved / step)[0])
        flip(data_files(saved / step)[1])
    with Checkpoints(saved) as checkpoints, pytest.raises(UserError, match="every checkpoint"):
        checkpoints.restore(like=state(0))


@pytest.mark.parametrize(
    "other, message",
    [
        (state(0)._replace(opt_state=(jnp.float32(0),)), "has 'opt_state/1/mu', which this run"),
        (state(0)._replace(step=jnp.float32(0)), r"'step' as int32\[\], this run needs float32"),
        (state(0)._replace(trainable={"block_0": {"kernl": jnp.ones(3)}}), "lacks .*kernl'. Did"),
    ],
)
def test_another_structure_is_refused(saved, other, message):
    with Checkpoints(saved) as checkpoints, pytest.raises(UserError, match=message):
        checkpoints.restore(like=other)


# Writes of a failed save end after Orbax has closed their event loop, which Python reports.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_loses_nothing_that_is_saved(saved):
    """A limit on file sizes makes writes fail in the middle, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Checkpoints(saved) as checkpoints:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
            with pytest.raises(UserError, match=r"cannot save a checkpoint .* kept: step 2"):
                checkpoints.save(3, state(3), {"seconds": {}})
                checkpoints.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with Checkpoints(saved) as checkpoints:
        assert checkpoints.restore(like=state(0)).step == 2


def test_a_path_that_orbax_cannot_take_is_refused_before_the_training(tmp_path):
    """In the C locale without UTF-8 mode Python reads "ü" so, and the first save would fail."""
    folder = tmp_path / "\udcc3\udcbc"
    with pytest.raises(UserError, match="Set PYTHONUTF8=1, or choose a workdir"):
        Checkpoints(folder)
    assert not folder.exists()
    checkpoint_writer._check_path(tmp_path / "ü 名")  # other letters are no reason to refuse
