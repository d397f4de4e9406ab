"""Preparation of text: round trips, resuming after a stop anywhere, and errors for non-text."""

import itertools
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.prepare import main
from jaxformer.core.errors import UserError
from jaxformer.data import corpus_writer, datasets, preparation
from jaxformer.data.tokenizer import train_bpe
from jaxformer.data.tokens import open_tokens
from jaxformer.io.atomic_files import with_checksum, without_checksum, write_json

TEXT = "".join(f"{i} Être ou ne pas être,\n  that is: {i * i}\n\n" for i in range(4000))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def prepared(file, folder, kind="bytes", shares=(0.1, 0.1), documents="file", **more):
    corpus = datasets.corpus(f"text:{file}", documents=documents)
    return preparation.prepare(corpus, folder, kind=kind, shares=shares, **more)


def whole(tokens, part):
    here = tokens.part(part)
    return tokens.tokenizer.decode(tokens.tokens(here.start, here.stop))


@pytest.mark.parametrize("kind", ["bytes", "bpe:400"])
def test_the_parts_together_are_the_text(file, tmp_path, kind):
    tokens = prepared(file, tmp_path / "out", kind)
    parts = [whole(tokens, part) for part in ("train", "validation", "test")]
    assert "".join(parts) == TEXT
    sizes = [len(part.encode()) for part in parts]
    assert [tokens.part(p).bytes for p in ("train", "validation", "test")] == sizes
    total = len(TEXT.encode())
    assert abs(sizes[1] - total / 10) < 2000 and abs(sizes[2] - total / 10) < 2000
    part = tokens.part("train")
    ids = tokens.tokens(part.start, part.stop)
    assert tokens.bytes_of_token[ids].sum() == pytest.approx(sizes[0])
    assert (ids == tokens.end).sum() == 1 and ids[-1] == tokens.end


def test_each_line_can_be_a_document(file, tmp_path):
    tokens = prepared(file, tmp_path / "out", documents="line", shares=(0, 0.2))
    lines = [line for line in TEXT.split("\n") if line]
    assert tokens.part("test").last == len(lines) and tokens.part("validation").bytes == 0
    rows, lengths = tokens.documents(np.array([0, 1, 7999]), 20)
    for row, n, line in zip(rows, lengths, (lines[0], lines[1], lines[-1]), strict=True):
        assert bytes(row[:n].tolist()) == line.encode()[:20] and (row[n:] == tokens.end).all()
    first = tokens.part("test").first
    assert tokens.part("train").last == first and tokens.part("train").stop > 0


def test_a_preparation_that_is_stopped_goes_on_with_the_same_bytes(file, tmp_path, monkeypatch):
    expected = prepared(file, tmp_path / "whole", "bpe:300")
    monkeypatch.setattr(preparation, "ENCODE_BATCH_CHARACTERS", 2**16)
    monkeypatch.setattr(preparation, "SAVE_SECONDS", 0)
    shown = []

    def stop(text):
        shown.append(text)
        if len(shown) in (3, 4):
            raise KeyboardInterrupt

    folder = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            prepared(file, folder, "bpe:300", show=stop)
        assert not folder.exists()
        with pytest.raises(UserError, match="is not finished; run the same command again"):
            open_tokens(str(folder))
    again = prepared(file, folder, "bpe:300", show=stop)
    assert again.fingerprint == expected.fingerprint and again.index == expected.index
    assert sum(text.startswith("tokenizer") for text in shown) == 1
    assert not folder.with_name("out.partial").exists()


@pytest.mark.parametrize("name", ["write_atomically", "write_json"])
def test_a_preparation_that_stops_at_its_end_resumes_with_the_same_files(
    file, tmp_path, monkeypatch, name
):
    """The file of classes is deleted at the end; resuming must not write it again with zeros."""

    def files(folder):
        prepared(file, folder)
        return {f.name: f.read_bytes() for f in folder.iterdir()}

    original = getattr(corpus_writer, name)

    def stop_at_the_end(path, content):
        if path.name in ("bytes.bin", "index.json"):
            raise KeyboardInterrupt
        original(path, content)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(corpus_writer, name, stop_at_the_end)
        files(tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_a_prepared_folder_is_not_prepared_again(file, tmp_path):
    first = prepared(file, tmp_path / "out")
    assert prepared(file, tmp_path / "out").fingerprint == first.fingerprint
    with pytest.raises(UserError, match="contains tokens prepared with another"):
        prepared(file, tmp_path / "out", shares=(0.2, 0.1))


def test_damage_is_noticed(file, tmp_path):
    prepared(file, tmp_path / "out")
    names = ("tokens.bin", "documents.bin", "bytes.bin", "tokenizer.json")
    for number, (name, how) in enumerate(itertools.product(names, ("cut", "flipped", "gone"))):
        damaged, original = tmp_path / "out" / name, (tmp_path / "out" / name).read_bytes()
        flipped = bytearray(original)
        flipped[len(flipped) // 2] ^= 1
        damaged.write_bytes(flipped if how == "flipped" else original[:-1])
        if how == "gone":
            damaged.unlink()
        os.utime(tmp_path / "out" / "index.json", ns=(number, number))  # opened anew
        with pytest.raises(UserError, match=rf"are damaged: {name} .*\. Prepare them again"):
            open_tokens(str(tmp_path / "out"))
        damaged.write_bytes(original)


def test_damage_of_a_large_file_is_noticed_when_it_is_checked(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("jaxformer.data.tokens.MAX_CHECKED_BYTES", 0)
    tokens = prepared(file, tmp_path / "out")
    place = tmp_path / "out" / "tokens.bin"
    content = bytearray(place.read_bytes())
    content[1] = 7  # the token 7 * 256 + something is beyond the vocabulary
    place.write_bytes(content)
    assert main([f"--check={tmp_path / 'out'}"]) == 2
    assert "tokens.bin does not have its sha256" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"tokens.bin contains the token 18\d\d\."):
        tokens.tokens(0, 4)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "there is no file"),
        (b"", "is empty"),
        (b"abc\n" * 30_000 + b"\xff\xfe", "is not UTF-8: byte 120000 is invalid"),
        ("é".encode()[:1], "is not UTF-8: byte 0 is invalid"),
        (b"abc\n" * 30_000 + b"\0", "is binary, not text: byte 120000 is 0"),
    ],
)
def test_what_is_no_text_is_a_one_line_error_and_nothing_looks_prepared(
    tmp_path, capsys, content, message
):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    out = tmp_path / "out"
    assert main([f"--dataset=text:{path}", f"--out={out}", "--tokenizer=bytes"]) == 2
    output = capsys.readouterr().err.strip().splitlines()[-1]
    assert output.startswith("error: ") and message in output and not out.exists()


@pytest.mark.parametrize(
    "name, out", [("my", "runs/data/my"), ("runs/data/my", "runs/data/my"), ("a/b", "a/b")]
)
def test_a_missing_text_is_named_with_both_places(name, out, tmp_path, monkeypatch):
    """The command writes to the place that was meant, and not to runs/data/runs/data/my."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXFORMER_DATA", raising=False)
    with pytest.raises(UserError) as error:
        open_tokens(name)
    assert str(error.value) == (
        f"there is no prepared text in {name} or runs/data/{name}: "
        f"jaxformer prepare text:FILE --out {out}."
    )


@pytest.mark.parametrize("name, kind", [("short.txt", "text"), ("rows.csv.gz", "table")])
def test_a_file_without_its_kind_gets_the_kind(name, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("some words")
    assert main([f"--dataset={name}", "--out=out"]) == 2
    assert f"{name} exists, but a text has a kind: say {kind}:{name}." in capsys.readouterr().err


def test_wrong_flags_are_one_line_errors(file, tmp_path, capsys):
    cases = [
        (["--dataset=text:/dev/zero"], "must be a file, not a device or a pipe: it has no end"),
        (["--dataset=wikitxt103"], "unknown data set 'wikitxt103'. Did you mean 'wikitext103'?"),
        (["--dataset=text:"], "names nothing after the colon"),
        (["--dataset=files:/no"], "there is no folder /no"),
        (["--dataset=text:FILE", "--documents=word"], "unknown kind of documents 'word'"),
        (["--dataset=text:FILE", "--tokenizer=bpe:x"], "needs a vocabulary size"),
        (["--dataset=text:FILE", "--test=0.9"], "the share of test must be at most 0.45"),
        (["--dataset=FILE"], "exists, but a text has a kind: say text:"),
        ([], "give --dataset=NAME and --out=DIR"),
    ]
    for arguments, message in cases:
        flags = [flag.replace("FILE", str(file)) for flag in arguments]
        assert main([*flags, f"--out={tmp_path / 'out'}"]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert message in lines[-1] and not (tmp_path / "out").exists()


def test_a_disk_without_space_is_refused_before_anything_is_written(file, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(UserError, match=r"the tokens need about 1.[0-9] MiB, .* has 10 bytes free"):
        prepared(file, tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


def test_an_unknown_kind_of_documents_is_a_one_line_error(file, tmp_path):
    with pytest.raises(UserError, match=r"unknown documents 'lines'\. Did you mean 'line'"):
        prepared(file, tmp_path / "out", documents="lines")


def test_json_lines_in_parts_with_classes(tmp_path):
    rows = [{"text": f"word {i:03}", "label": i % 3} for i in range(100)]
    for part, some in {"train": rows[:80], "test": rows[80:]}.items():
        (tmp_path / f"{part}-0001.jsonl").write_text("\n".join(map(json.dumps, some)))
    corpus = datasets.corpus(f"files:{tmp_path}", label="label")
    tokens = preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0.1, 0.1))
    parts = {name: tokens.part(name) for name in ("train", "validation", "test")}
    assert [p.last - p.first for p in parts.values()] == [72, 8, 20]
    assert tokens.labels == ("0", "1", "2")
    which = np.arange(parts["test"].first, parts["test"].last)
    np.testing.assert_array_equal(tokens.labels_of(which), np.arange(80, 100) % 3)
    assert whole(tokens, "test") == "".join(row["text"] for row in rows[80:])
    with pytest.raises(UserError, match=r"has no 'words'. It has: .'text', 'label'."):
        corpus = datasets.corpus(f"files:{tmp_path}", text="words")
        preparation.prepare(corpus, tmp_path / "other", kind="bytes", shares=(0.1, 0.1))


def test_parquet_is_read_by_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    texts = [f"line {i}" for i in range(50)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", row_group_size=20)
    corpus = datasets.corpus("wikitext103", files=str(tmp_path))
    assert corpus.sources[0].size == 50
    assert [piece.text for piece in corpus.sources[0].read(33)] == texts[33:]
    tokens = preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0.1, 0.1))
    assert whole(tokens, "train") == "".join(texts[:40])


@pytest.mark.parametrize("label", [1000, 2**31, 2**32 + 1, -1, 99999999999, "good", True])
def test_a_class_that_does_not_fit_is_refused_before_memory_is_taken(tmp_path, label):
    rows = [{"text": f"word {i}", "label": i % 2} for i in range(20)]
    rows[7]["label"] = label
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = datasets.corpus(f"files:{tmp_path}", label="label")
    with pytest.raises(UserError, match=r"a class must be (0 to 999|a whole number), got"):
        preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0, 0))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["shorter", "longer", "same size and time"])
def test_a_text_that_changes_while_it_is_read_is_noticed(tmp_path, monkeypatch, how):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    before, changes = path.stat(), []
    monkeypatch.setattr(preparation, "ENCODE_BATCH_CHARACTERS", 2**12)

    def change(line):
        if "%" in line and not changes:
            changes.append(line)
            content = {"shorter": TEXT[:-9], "longer": TEXT + "\n"}.get(how, TEXT.upper())
            path.write_text(content)
            if how.startswith("same"):
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(
        UserError, match=r"text.txt changed while it was read: nothing was prepared"
    ):
        prepared(path, tmp_path / "out", show=change)
    assert not (tmp_path / "out").exists()
    path.write_text(TEXT)
    assert whole(prepared(path, tmp_path / "out", shares=(0, 0)), "train") == TEXT


WRONG_FIELDS = {
    "vocab_size": ["300", 0, -1, 2.5, True],
    "end": ["0", 257, -1],
    "dtype": ["object", "S4", "<u2", [["a", "<u2"]], 5],
    "labels": ["ab", [1], None],
    "parts": [{}, None, {"train": 1}, {"train": {"start": 0}}],
    "bytes_scale": ["1", None, -1],
    "files": [{}, None, {"../x": {"bytes": 1, "sha256": "a"}}, {"tokens.bin": {"bytes": "1"}}],
    "asked": [None],
}


def test_an_index_with_odd_types_and_a_valid_checksum_is_a_one_line_error(file, tmp_path):
    folder = prepared(file, tmp_path / "out").folder
    index = without_checksum(json.loads((folder / "index.json").read_text()))
    accepted = []
    for name, values in WRONG_FIELDS.items():
        for i, value in enumerate(values):
            write_json(folder / "index.json", with_checksum({**index, name: value}))
            os.utime(folder / "index.json", ns=(1, i + 1))  # opened anew
            try:
                open_tokens(str(folder))
            except UserError as error:
                assert f"'{name}' in index.json cannot be" in str(error) or name == "files"
            else:
                accepted.append((name, value))
    assert not accepted


def test_the_tokenizer_of_a_package_is_read_from_its_model(file, tmp_path, monkeypatch):
    trained = train_bpe(300, [TEXT[:5000]])
    names = []

    def text(name, vocab_size):
        names.append(name)
        return SimpleNamespace(tokenizer=trained)

    monkeypatch.setattr("experiments.prepare.Text", text)
    flags = [f"--dataset=text:{file}", f"--out={tmp_path / 'out'}"]
    assert main([*flags, "--tokenizer=package:some-model"]) == 0
    assert names == ["package:some-model"]
    tokens = open_tokens(str(tmp_path / "out"))
    assert tokens.vocab_size == trained.vocab_size and tokens.tokenizer.as_json()
