"""Readers of checkpoints change nothing, damage is skipped, and notes are exact or refused."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.io import checkpoint_reader
from jaxformer.io.checkpoint_writer import Checkpoints
from tests.io.test_checkpoint_writer import data_files, flip, note, state


def save(folder, *steps, keep=2):
    with Checkpoints(folder, keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(step), note(step))
        checkpoints.wait()


def files(folder):
    return {str(f): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def damage(folder):
    for file in data_files(folder)[:2]:
        flip(file)


def test_a_reader_changes_no_file_and_creates_none(tmp_path):
    save(tmp_path / "ckpt", 1, 2)
    begun = tmp_path / "ckpt/3.orbax-checkpoint-tmp/state"  # as a writer fills it
    begun.mkdir(parents=True)
    (begun / "part").write_text("half")
    before = files(tmp_path)
    assert checkpoint_reader.read_newest(tmp_path / "ckpt").checkpoint.step == 2
    assert files(tmp_path) == before
    assert checkpoint_reader.read_newest(tmp_path / "nothing").checkpoint is None
    assert not (tmp_path / "nothing").exists()


@pytest.mark.slow
def test_a_reader_during_saves_sees_only_whole_steps_and_harms_none(tmp_path):
    folder, ended, seen = tmp_path / "ckpt", threading.Event(), []

    def look():
        while not ended.is_set():
            result = checkpoint_reader.find_newest(folder)
            assert not result.damaged
            seen.append(result.checkpoint and result.checkpoint.step)

    with Checkpoints(folder) as checkpoints:
        reader = threading.Thread(target=look)
        reader.start()
        try:
            for step in range(1, 16):
                checkpoints.save(step, state(step), note(step))
                checkpoints.wait()
        finally:
            ended.set()
            reader.join()
    assert checkpoints.newest_saved() == 15 and checkpoint_reader.list_steps(folder) == [15, 14]
    assert len(seen) > 3 and seen == sorted(seen, key=lambda step: step or 0)


@pytest.mark.parametrize("later", [2, 3])
def test_a_damaged_newest_is_replaced_by_the_next_save(tmp_path, later, capfd):
    save(tmp_path, 1, 2)
    damage(tmp_path / "2")
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore().step == 1 and checkpoints.newest_saved() == 1
        checkpoints.save(later, state(later), note(later))
        checkpoints.wait()
        assert checkpoints.newest_saved() == later
    result = checkpoint_reader.find_newest(tmp_path)
    assert result.checkpoint.step == later and not result.damaged
    np.testing.assert_array_equal(result.checkpoint.arrays["step"], later)


@pytest.mark.parametrize("key", ["rules", "seconds", "arrays", "step", "sha256", "note"])
def test_a_flipped_bit_of_the_note_is_noticed(tmp_path, key, capfd):
    save(tmp_path, 1, 2)
    file = tmp_path / "2/note/metadata"
    text = file.read_text()
    for place in (text.index(f'"{key}"') + 1, text.index(f'"{key}"') + len(key) + 5):
        flipped = bytearray(text.encode())
        flipped[place] ^= 1
        file.write_bytes(bytes(flipped))
        assert checkpoint_reader.read_newest(tmp_path).checkpoint.step == 1
    assert "step 2 is damaged" in capfd.readouterr().err


def test_a_note_from_before_there_were_checksums_is_read(tmp_path):
    save(tmp_path, 1)
    file = tmp_path / "1/note/metadata"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content["note"] | {"sha256": content["arrays"]}))
    assert checkpoint_reader.read_newest(tmp_path).checkpoint.note == note(1)


def test_another_steps_folder_under_this_name_is_refused(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "1").rename(tmp_path / "7")
    with pytest.raises(UserError, match=r"step 7 is damaged \(it is the checkpoint of step 1\)"):
        checkpoint_reader.read_newest(tmp_path)


def test_what_belongs_to_a_checkpoint_must_be_whole_too(tmp_path, capfd):
    save(tmp_path, 1, 2)
    result = checkpoint_reader.read_newest(
        tmp_path, lambda note: "no rows" * (note["seconds"]["run"] == 2)
    )
    assert result.checkpoint.step == 1 and "(no rows); using step 1" in capfd.readouterr().err


def test_a_reader_looks_again_if_a_newer_step_came_meanwhile(tmp_path):
    save(tmp_path, 1, 2)

    def differ(note):
        if 3 not in checkpoint_reader.list_steps(tmp_path):
            save(tmp_path, 3, keep=3)
            return "it is being removed"
        return ""

    result = checkpoint_reader.find_newest(tmp_path, differ)
    assert result.checkpoint.step == 3 and not result.damaged


READS_IN_A_LOOP = """
import asyncio, sys, time
from pathlib import Path
from jaxformer.io import checkpoint_reader

async def read():
    return checkpoint_reader.read_newest(Path(sys.argv[1])).checkpoint.step

print(asyncio.run(read()))
time.sleep(0.5)  # late reads of the damaged step end
"""


def test_a_damaged_checkpoint_is_a_one_line_error_inside_a_running_event_loop(tmp_path):
    """Every notebook has such a loop, in which each late read could print a traceback."""
    draw = np.random.default_rng(0)
    arrays = {f"array_{i}": draw.normal(size=(500, 400)) for i in range(40)}
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, arrays, note(step))
        checkpoints.wait()
    largest = max(data_files(tmp_path / "2"), key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 3)
    command = [sys.executable, "-c", READS_IN_A_LOOP, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "1\n"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and "step 2 is damaged" in lines[0], done.stderr
