"""A run's folder: damaged rows and files are detected, and old folders are still read."""

import json
import os

import numpy as np
import pytest

from experiments.recipes import finish_run
from jaxformer.core.errors import UserError
from jaxformer.io import npz_store
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir, open_workdir

CONFIG = {"config": {"optim": {"learning_rate": [0.1]}}, "config_hash": "abc", "overrides": {}}
RESULT = {"config": {}, "metrics": {"accuracy": {"mean": 0.5}}, "members": []}


def row(step):
    return {"step": step, "loss": [0.5, 1.0 / step]}


@pytest.fixture
def run(tmp_path):
    """Returns a finished run of three rows, and the fingerprint that a checkpoint after two has."""
    with open_workdir(tmp_path / "run", CONFIG) as workdir:
        workdir.resume_rows(None, 0)
        workdir.append([row(1), row(2)])
        held = workdir.rows_fingerprint()
        workdir.append([row(3)])
        workdir.write("result.json", RESULT)
    return workdir.path, held


def cut_line(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][:9] + lines[2])


def lose_line(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[2])


DAMAGE = {
    "a changed digit": lambda file: file.write_text(file.read_text().replace("0.5", "0.4", 1)),
    "half a row": cut_line,
    "a lost row": lose_line,
    "NULs": lambda file: file.write_bytes(file.read_bytes()[:-9] + bytes(9)),
    "an empty line": lambda file: file.write_text("\n" + file.read_text()),
    "an empty file": lambda file: file.write_bytes(b""),
    "no file": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_rows_of_a_finished_run_are_noticed(run, damage):
    folder, held = run
    assert Workdir(folder).rows() == [row(1), row(2), row(3)]
    DAMAGE[damage](folder / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged: .* written"):
        Workdir(folder).rows()
    if damage != "NULs":  # they are behind what the checkpoint speaks of
        assert Workdir(folder).rows_difference(held).startswith("metrics.jsonl: ")


def test_a_nan_in_place_of_a_null_is_an_edit_of_the_file(run):
    folder, _ = run
    file = folder / "result.json"
    with open_workdir(folder, CONFIG) as workdir:
        workdir.write("result.json", {**RESULT, "members": [{"loss": None}]})
    assert Workdir(folder).read("result.json")["members"] == [{"loss": None}]
    for constant in ("NaN", "Infinity"):
        text = file.read_text()
        file.write_text(text.replace("null", constant))
        with pytest.raises(UserError, match=r"result.json is damaged: .*not JSON compliant"):
            Workdir(folder).read("result.json")
        file.write_text(text)


def test_a_folder_that_vanishes_while_it_is_written_is_a_one_line_error(tmp_path):
    with open_workdir(tmp_path / "run", CONFIG) as workdir:
        workdir.resume_rows(None, 0)
        os.rename(workdir.path, tmp_path / "elsewhere")
        writes = [
            lambda: workdir.append([row(1)]),
            lambda: workdir.append_timing(row(1)),
            lambda: workdir.write("result.json", RESULT),
        ]
        for write in writes:
            with pytest.raises(UserError, match="run was removed or renamed while") as error:
                write()
            assert "\n" not in str(error.value)


def test_a_resumed_run_has_the_rows_of_its_checkpoint_and_no_others(run):
    folder, held = run
    (folder / "result.json").unlink()
    with open_workdir(folder, CONFIG) as workdir:
        assert not workdir.rows_difference(held)
        workdir.resume_rows(held, 2)
        assert workdir.rows() == [row(1), row(2)] and workdir.rows_fingerprint() == held
        workdir.resume_rows(None, 1)  # a checkpoint from before there were checksums
        assert workdir.rows() == [row(1)]
        workdir.resume_rows(None, 0)  # killed before the first checkpoint: nothing is twice
        assert workdir.rows() == []


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_every_bit_of_a_file_counts_or_is_noticed(run, name):
    folder, _ = run
    content, whole = (folder / name).read_bytes(), Workdir(folder).read(name)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (folder / name).write_bytes(flipped)
        try:
            assert Workdir(folder).read(name) == whole
        except UserError as error:
            assert "is damaged" in str(error)


@pytest.mark.parametrize("content", ["[]", "{}", "null", "", "[" * 100_000, '{"config": 5}'])
def test_a_file_of_the_wrong_shape_is_a_one_line_error(run, content):
    folder, _ = run
    for name in ("config.json", "result.json"):
        (folder / name).write_text(content)
        with pytest.raises(UserError, match="is damaged"):
            Workdir(folder).read(name)


def test_a_folder_from_before_there_were_checksums_is_read(run):
    folder, _ = run
    write_json(folder / "result.json", RESULT)
    assert Workdir(folder).read("result.json") == RESULT
    assert len(Workdir(folder).rows()) == 3


def test_an_odd_environment_is_written_again(run, capsys):
    folder, _ = run
    for content in ("", "[]", "{"):
        (folder / "env.json").write_text(content)
        with open_workdir(folder, CONFIG):
            pass
        assert Workdir(folder).read("env.json")["versions"]
        assert "It is written again" in capsys.readouterr().err


def test_other_flags_of_xla_are_reported_when_a_run_resumes(run, capsys, monkeypatch):
    folder, _ = run
    (folder / "result.json").unlink()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with open_workdir(folder, CONFIG):
        pass
    assert "--xla_cpu_enable_fast_math=true" in capsys.readouterr().err
    with open_workdir(folder, CONFIG):
        pass
    assert "warning" not in capsys.readouterr().err


def test_a_finished_run_keeps_the_environment_of_its_numbers(run, capsys, monkeypatch):
    """A record of a run that is only opened again must not name another commit or other flags."""
    folder, _ = run
    before = (folder / "env.json").read_bytes()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with open_workdir(folder, CONFIG):
        pass
    assert (folder / "env.json").read_bytes() == before and not capsys.readouterr().err


@pytest.mark.parametrize(
    "edit, message",
    [
        ({"config": {"optim": {"learning_rate": [0.2]}}}, r"learning_rate = \[0.2\] there"),
        ({"config_hash": "xyz"}, "its config_hash is 'xyz' instead of 'abc'"),
        ({"config_hash": None}, "its config_hash is None instead of 'abc'"),
    ],
)
def test_an_edited_config_is_refused(run, edit, message):
    folder, _ = run
    content = json.loads((folder / "config.json").read_text()) | edit
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="damaged or edited"), open_workdir(folder, CONFIG):
        pass
    del content["sha256"]  # as one that is older than the checksum
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=message), open_workdir(folder, CONFIG):
        pass


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_link_is_not_followed(tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(precious)
    (tmp_path / "run/config.json").write_text(json.dumps(CONFIG))
    with pytest.raises((UserError, OSError), match="symbolic links"):  # noqa: SIM117
        with open_workdir(tmp_path / "run", CONFIG) as workdir:
            workdir.append([row(1)])
    assert precious.read_text() == "mine"


def test_files_have_the_permissions_that_the_user_wants(tmp_path):
    before = os.umask(0o077)
    try:
        with open_workdir(tmp_path / "run", CONFIG) as workdir:
            workdir.append([row(1)])
    finally:
        os.umask(before)
    modes = {f.name: f.stat().st_mode & 0o777 for f in workdir.path.iterdir()}
    assert modes == dict.fromkeys((".lock", "config.json", "env.json", "metrics.jsonl"), 0o600)


def test_python_objects_in_a_file_of_arrays_are_never_loaded(tmp_path):
    objects = np.array([{"a": 1}], object)
    np.savez(tmp_path / "arrays.npz", x=objects)
    with pytest.raises(ValueError, match="it contains Python objects, which are never loaded"):
        npz_store.load(tmp_path / "arrays.npz")
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    (tmp_path / "x.npy").rename(tmp_path / "arrays.npz")
    with pytest.raises(UserError, match="is damaged: it contains Python objects"):
        finish_run.read_arrays(Workdir(tmp_path))


def test_no_bit_of_a_file_of_arrays_hides_an_array(tmp_path):
    file, arrays = tmp_path / "a.npz", {"x": np.arange(3.0), "y": np.ones(2)}
    npz_store.write(file, arrays)
    content, accepted = file.read_bytes(), 0
    for place in range(len(content) - 350, len(content)):  # the directory of the zip file
        for bit in (0, 4, 7):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            file.write_bytes(flipped)
            try:
                found = npz_store.read(file)
            except UserError as error:
                assert "is damaged" in str(error)
                continue
            accepted += 1
            assert {**found}.keys() == arrays.keys(), (place, bit)
            for name, array in arrays.items():
                np.testing.assert_array_equal(found[name], array)
    assert accepted  # such as bits of a date


def test_arrays_without_a_checksum_are_read(tmp_path):
    np.savez(tmp_path / "old.npz", x=np.arange(3.0))
    assert list(npz_store.read(tmp_path / "old.npz")) == ["x"]


def test_the_main_figure_is_written_last(run):
    """A run without figure.png is drawn when it is opened again, so no other figure may lack."""
    workdir, drawn = Workdir(run[0]), []

    class Figure:
        def __init__(self, name):
            self.name = name

        def savefig(self, *_, **__):
            drawn.append(self.name)
            if self.name == "layers":
                raise KeyboardInterrupt

    finish_run.write_arrays(workdir, {"x": np.ones(2)})
    with pytest.raises(KeyboardInterrupt):
        finish_run.redraw(workdir, "", lambda *_: {n: Figure(n) for n in ("figure", "layers")})
    assert drawn == ["layers"]
    assert finish_run.lacks_figure(workdir)
