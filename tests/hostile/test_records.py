"""Records of anybody's: each way to break one, before every command that reads records.

To add a way: a line in KINDS. The page is built each time and names what it left out, and a number
that was changed never counts.
"""

import json
import struct
import zlib

import pytest

from experiments import report, reproduce, sweep
from experiments.ledger import validate_record, write
from jaxformer.io.atomic_files import write_json
from tests.experiments import made_up

pytestmark = pytest.mark.hostile


def edited(**changed):
    """The record with other fields."""
    return lambda folder: write_json(folder / "a.json", made_up.RECORDS["a"] | changed)


def raw(content: bytes, name: str = "a.json"):
    return lambda folder: (folder / name).write_bytes(content)


def picture(wide: int, high: int) -> bytes:
    """A PNG of a size, whose parts have the right sums and no pixels."""
    parts = [b"IHDR" + struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0), b"IDAT", b"IEND"]
    size_sum = ((struct.pack(">I", len(p) - 4), p, struct.pack(">I", zlib.crc32(p))) for p in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(b"".join(part) for part in size_sum)


PNG = made_up.png()
MEAN = {"mean": 0.9, "sem": 0.001, "n": 2}
ARGUMENTS = made_up.RECORDS["a"]["config"]["arguments"]
KINDS = {
    "empty": raw(b""),
    "not JSON": raw(b"{"),
    "not UTF-8": raw(b"\xff\xfe{}"),
    "a list": raw(b"[]"),
    "null": raw(b"null"),
    "nested": raw(b"[" * 200_000),
    "nested objects": raw(b'{"schema": 2, "config": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001),
    "nan": raw(json.dumps(made_up.RECORDS["a"] | {"seeds": [float("nan")]}).encode()),
    "half a character": raw(json.dumps(made_up.RECORDS["a"] | {"scale": "\ud800"}).encode()),
    "too many digits": raw(b'{"schema": ' + b"9" * 9000 + b"}"),
    "a folder": lambda folder: (folder / "a.json").mkdir(),
    "a link to nothing": lambda folder: (folder / "a.json").symlink_to(folder / "nothing"),
    "a link to a device": lambda folder: (folder / "a.json").symlink_to("/dev/zero"),
    "another schema": edited(schema=99),
    "config {}": edited(config={}),
    "config without scale": edited(config={"name": "x", "arguments": {}}),
    "config with numbers": edited(config={"name": 5, "arguments": ARGUMENTS}),
    "task a list": edited(config=made_up.RECORDS["a"]["config"] | {"task": [1]}),
    "task without a name": edited(config=made_up.RECORDS["a"]["config"] | {"task": {"name": []}}),
    "labels a list": edited(config=made_up.RECORDS["a"]["config"] | {"optim": {"labels": [1]}}),
    "seconds {}": edited(seconds={}),
    "seconds in words": edited(seconds={"compile": "soon", "run": 1}),
    "commit 5": edited(environment={"commit": 5}),
    "versions a list": edited(environment={"versions": [1]}),
    "no metrics": edited(metrics=[]),
    "a bare number": edited(metrics={"accuracy": 0.5}),
    "a number of 400 digits": edited(metrics={"accuracy": MEAN | {"mean": 10**400}}),
    "members of numbers": edited(members=[1]),
    "a member without a rate": edited(members=[{"chosen": True}], seeds=["0"]),
    "a rate in words": edited(members=[{"chosen": True, "learning_rate": "fast"}]),
    "baselines in words": edited(baselines={"guess": "half"}),
    "steps in words": edited(steps="many"),
    "out of its folder": edited(config_hash="x/../../precious"),
    "edited": edited(sum="0" * 12),
    "a config elsewhere": edited(config_file="/elsewhere/evil.py:scale=small"),
    "overrides of nothing": edited(overrides={"no.field": [[[[1]]]]}),
    "overrides nested": edited(overrides={"partition": "(" * 3000}),
    "curves not UTF-8": lambda folder: (
        edited()(folder),
        raw(b"\xff\xfe", "a.curves.csv")(folder),
    ),
    "curves in words": lambda folder: (
        edited()(folder),
        raw(b"step,split,metric,m\n1,training,loss,x\n", "a.curves.csv")(folder),
    ),
    "curves of nan": lambda folder: (
        edited()(folder),
        raw(b"step,split,metric,m\n1,training,loss,nan\n", "a.curves.csv")(folder),
    ),
    "a huge picture": lambda folder: (
        edited()(folder),
        raw(picture(60000, 60000), "a.png")(folder),
    ),
    "no pixels": lambda folder: (edited()(folder), raw(picture(0, 0), "a.png")(folder)),
    "a picture without pixels": lambda folder: (
        edited()(folder),
        raw(picture(9, 9), "a.png")(folder),
    ),
    "a flipped bit": lambda folder: (
        edited()(folder),
        raw(PNG[:5000] + bytes([PNG[5000] ^ 1]) + PNG[5001:], "a.png")(folder),
    ),
    "numbers not UTF-8": lambda folder: (edited()(folder), raw(b"\xff", "a.csv")(folder)),
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A results folder with a whole record, beside which there will be a broken one."""
    folder = tmp_path / "repo/results"
    folder.mkdir(parents=True)
    (tmp_path / "repo/docs").mkdir()
    for name in ("README.md", "docs/findings.md"):
        (tmp_path / "repo" / name).write_text((report.WORKSPACE / name).read_text())
    (tmp_path / "repo/precious.json").write_text("mine")
    monkeypatch.setattr(report, "WORKSPACE", tmp_path / "repo")
    monkeypatch.setattr(report, "PAPERS", {"made_up": made_up.PAPER})
    monkeypatch.setattr(write, "RESULTS", folder)
    made_up.write(folder, "b", made_up.RECORDS["b"])
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_built_and_names_what_it_left_out(results, tmp_path, kind, capsys):
    KINDS[kind](results)
    assert report.main([f"--page={tmp_path / 'p.html'}", f"--tables={tmp_path / 't'}"]) == 0
    text = (tmp_path / "p.html").read_text()
    assert 'id="unusable"' in text[text.index("</table>") :]
    assert "0.5125" in (tmp_path / "p_made_up.html").read_text()
    named = text[text.index('id="unusable"') :]
    assert ">a." in named.replace("<li>", ">") or "/a." in named or "results/a" in named
    assert len(capsys.readouterr().err.splitlines()) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_commands_go_on(results, tmp_path, kind, capsys):
    KINDS[kind](results)
    assert report.main(["--write"]) == 0
    assert "a." in (tmp_path / "repo/RESULTS.md").read_text()
    assert reproduce.main(["--paper=made_up", "--dry-run"], {"made_up": made_up.PAPER}) == 0
    words = ["--file=configs/sweeps/tiny.toml", "--dry-run", f"--workdir={tmp_path / 's'}"]
    assert sweep.main(words) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "repo/precious.json").read_text() == "mine"


def test_a_record_of_a_larger_file_than_anybody_writes(results):
    with open(results / "a.json", "wb") as file:
        file.truncate(validate_record.MAX_TEXT_BYTES + 1)
    assert report.main(["--write"]) == 0
