"""Files in --out: a preparation resumes or refuses them, and never deletes a user's file."""

import errno
import json
import os
import re

import pytest

from experiments.prepare import main
from jaxformer.core.errors import UserError
from jaxformer.data import datasets, preparation, preparation_settings
from jaxformer.data.tokens import open_tokens
from jaxformer.io.atomic_files import with_checksum

TEXT = "".join(f"{i} Être ou ne pas être,\n  that is: {i * i}\n\n" for i in range(3000))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def rows(tmp_path):
    """Writes JSON lines with two fields of text and two of classes."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = [dict(text=f"a {i}", words=f"b {i}", label=i % 2, kind=i % 3) for i in range(2000)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def last_error(capsys) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


def ask(out, *flags: str) -> int:
    return main([f"--out={out}", "--tokenizer=bytes", *flags])


def stopped(monkeypatch, out, *flags: str) -> None:
    """Returns the folder of a preparation that was stopped after its third batch."""
    shown = []

    def stop(line, text):
        shown.append(text)
        if len(shown) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(preparation, "ENCODE_BATCH_CHARACTERS", 2**11)
        patched.setattr(preparation, "SAVE_SECONDS", 0)
        patched.setattr("experiments.prepare.StatusLine.is_due", lambda line: True)
        patched.setattr("experiments.prepare.StatusLine.show", stop)
        assert ask(out, *flags) == 130
    assert (out.with_name(f"{out.name}.partial") / "state.json").is_file()


def test_a_users_file_beside_out_is_refused_and_kept(file, tmp_path, capsys):
    partial = tmp_path / "keep.partial"
    partial.mkdir()
    (partial / "thesis.txt").write_text("years of work")
    assert ask(tmp_path / "keep", f"--dataset=text:{file}") == 2
    assert f"{partial} contains 'thesis.txt', which this program did not write" in last_error(
        capsys
    )
    assert [f.name for f in partial.iterdir()] == ["thesis.txt"]
    (partial / "thesis.txt").rename(partial / "tokens.bin")
    (partial / "tokenizer.json").mkdir()
    assert ask(tmp_path / "keep", f"--dataset=text:{file}") == 2
    assert (
        "contains 'tokenizer.json', which" in last_error(capsys)
        and (partial / "tokens.bin").exists()
    )


def test_a_file_that_a_kill_left_half_written_is_no_part_of_the_tokens(file, tmp_path, monkeypatch):
    flags = [f"--dataset=text:{file}"]
    assert ask(tmp_path / "whole", *flags) == 0
    stopped(monkeypatch, tmp_path / "out", *flags)
    (tmp_path / "out.partial" / ".state.json.0123abcd").write_text("{")
    assert ask(tmp_path / "out", *flags) == 0
    assert open_tokens(str(tmp_path / "out")).index == open_tokens(str(tmp_path / "whole")).index


def test_what_never_began_leaves_nothing(file, tmp_path, capsys):
    assert main([f"--out={tmp_path / 'out'}", f"--dataset=text:{file}", "--tokenizer=bpe:9"]) == 2
    assert "must be at least 257, got 9" in last_error(capsys) and [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--text=words"], "--text"),
        (["--label=kind"], "--label"),
        (["--text=words", "--test=0.1"], "--validation or --test, --text"),
    ],
)
def test_other_fields_are_another_preparation(rows, tmp_path, capsys, flags, words):
    dataset = f"--dataset=files:{rows}"
    assert ask(tmp_path / "out", dataset) == 0 and ask(tmp_path / "out", dataset) == 0
    assert ask(tmp_path / "out", dataset, *flags) == 2
    assert f"tokens prepared with another {words};" in last_error(capsys)


def test_a_stopped_preparation_does_not_go_on_with_other_fields(rows, tmp_path, monkeypatch):
    dataset = f"--dataset=files:{rows}"
    stopped(monkeypatch, tmp_path / "out", dataset)
    assert ask(tmp_path / "out", dataset, "--text=words") == 0
    tokens = open_tokens(str(tmp_path / "out"))
    result = tokens.tokenizer.decode(tokens.tokens(0, tokens.part("test").stop))
    assert result == "".join(f"b {i}" for i in range(2000))


@pytest.mark.parametrize("large", [False, True])
def test_another_text_of_the_same_length_is_another_preparation(
    file, tmp_path, capsys, monkeypatch, large
):
    if large:
        monkeypatch.setattr(preparation_settings, "MAX_HASHED_BYTES", 10)
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 0
    file.write_text(TEXT.replace("Être", "êtrE"), encoding="utf-8")
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 2
    assert "prepared with another content of the files;" in last_error(capsys)
    file.write_text(TEXT, encoding="utf-8")  # at another time
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == (2 if large else 0)


def test_another_tokenizer_file_is_another_preparation(file, tmp_path, capsys):
    pytest.importorskip("tokenizers")
    from jaxformer.data.tokenizer import train_bpe

    model = tmp_path / "tokenizer.json"
    for size, code in ((300, 0), (300, 0), (301, 2)):
        model.write_text(train_bpe(size, [TEXT]).as_json())
        flags = [f"--out={tmp_path / 'out'}", f"--tokenizer={model}"]
        assert main([*flags, f"--dataset=text:{file}"]) == code
    assert "another content of the files" in last_error(capsys)


def test_a_folder_from_before_these_were_said_is_what_was_asked_for(rows, tmp_path):
    dataset = f"--dataset=files:{rows}"
    assert ask(tmp_path / "out", dataset) == 0
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    index.pop("sha256")
    for name in ("text", "label", "sources"):
        del index["asked"][name]
    (tmp_path / "out" / "index.json").write_text(json.dumps(with_checksum(index)))
    os.utime(tmp_path / "out" / "index.json", ns=(1, 1))  # opened anew
    assert "text" not in open_tokens(str(tmp_path / "out")).index["asked"]
    assert ask(tmp_path / "out", dataset) == 0
    assert ask(tmp_path / "out", dataset, "--label=kind") == 2


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--dataset=text:FILE", "--label=kind"], "plain text has no fields"),
        (["--dataset=text:FILE", "--text=words"], "plain text has no fields"),
        (["--dataset=yelp", "--text=words"], "the text of yelp is in its field 'text'"),
    ],
)
def test_a_field_that_would_be_ignored_is_refused(file, tmp_path, capsys, flags, message):
    flags = [flag.replace("FILE", str(file)) for flag in flags]
    assert ask(tmp_path / "out", *flags) == 2
    assert message in last_error(capsys) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "names, message",
    [
        (["a.txt"], "exists and contains 'a.txt', not prepared tokens"),
        (["c", "b", "a", "d"], "exists and contains 'a', 'b', 'c' and 1 more, not prepared"),
    ],
)
def test_a_folder_of_something_else_is_named(file, tmp_path, capsys, names, message):
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / "out" / name).write_text("")
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 2
    assert (line := last_error(capsys)).endswith("; choose another --out.") and message in line
    assert len([*(tmp_path / "out").iterdir()]) == len(names)


def test_out_may_be_an_empty_folder_and_is_no_file(file, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 0
    assert open_tokens(str(tmp_path / "out")).part("train").bytes > 0
    assert ask(file, f"--dataset=text:{file}") == 2
    assert f"{file} is a file; choose another --out." in last_error(capsys)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_is_named_and_the_same_command_goes_on(
    file, tmp_path, capsys, monkeypatch, number
):
    """The stub fails again when the file is closed, because unwritten bytes stay in its buffer."""
    assert ask(tmp_path / "whole", f"--dataset=text:{file}") == 0
    opened = open

    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()
            raise OSError(number, os.strerror(number))

        def write(self, content):
            if self.file.tell() > 5000:
                raise OSError(number, os.strerror(number))
            return self.file.write(content)

    def full(file, mode="r", *more, **options):
        held = opened(file, mode, *more, **options)
        return Full(held) if mode == "ab" else held

    with monkeypatch.context() as patched:
        patched.setattr("jaxformer.data.corpus_writer.open", full, raising=False)
        assert ask(tmp_path / "out", f"--dataset=text:{file}") == 2
    line = last_error(capsys)
    assert f"{tmp_path / 'out.partial'} cannot grow: {os.strerror(number)}" in line
    assert "make room and run the same command again: it resumes" in line
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 0
    assert open_tokens(str(tmp_path / "out")).index == open_tokens(str(tmp_path / "whole")).index


def free(monkeypatch, n: int) -> None:
    usage = type("Usage", (), {"free": n})
    monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _: usage)


def test_many_short_documents_need_space_of_their_own(tmp_path, monkeypatch):
    path = tmp_path / "letters.txt"
    path.write_text("a\n" * 200_000)
    corpus = datasets.corpus(f"text:{path}", documents="line")
    free(monkeypatch, 2_500_000)
    with pytest.raises(UserError, match=r"the tokens need about 4.8 MiB, .* has 2.4 MiB free"):
        preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0, 0))


def test_what_is_written_already_needs_no_more_space(file, tmp_path, monkeypatch, capsys):
    stopped(monkeypatch, tmp_path / "out", f"--dataset=text:{file}")
    have = sum(f.stat().st_size for f in (tmp_path / "out.partial").iterdir())
    need = preparation.estimate_bytes(datasets.corpus(f"text:{file}"))
    free(monkeypatch, need - have - 1)
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 2
    assert "the tokens need about" in last_error(capsys)
    free(monkeypatch, need - have)
    assert ask(tmp_path / "out", f"--dataset=text:{file}") == 0


def test_progress_has_a_share_and_the_time_that_is_left(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "ENCODE_BATCH_CHARACTERS", 2**12)
    corpus, shown = datasets.corpus(f"files:{rows}"), []
    options = dict(kind="bytes", shares=(0.1, 0.1), show=shown.append)
    preparation.prepare(corpus, tmp_path / "out", **options)
    lines = [line for line in shown if "tokens" in line]
    shares = [int(line.split("%")[0]) for line in lines]
    assert shares == sorted(shares) and shares[-1] == 100 and 10 < shares[len(shares) // 2] < 90
    assert all("MB of text" in line for line in lines)
    assert re.search(r"about \d+ s left$", lines[0]) and "left" not in lines[-1]
