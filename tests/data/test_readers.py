"""Readers: text in any script becomes pieces, blank rows are skipped, file names give parts."""

import json

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import datasets, preparation, readers

# 120 kB or more of each: lines that begin with signs beyond ASCII, indented lines, one line with
# spaces, and one line of a script that has none.
WRITINGS = {
    "russian": "".join(f"Быть или не быть, {i}: вот в чём вопрос.\n" for i in range(2000)),
    "indented": "".join(f"  if x == {i}:\n\n\treturn {i * i}  # yes\n" for i in range(4000)),
    "one_line": " ".join(f"It's word {i}, and{' ' * 9}another one" for i in range(4000)),
    "chinese": "".join(f"生存还是毁灭,这是第{i}个问题。「默默」忍受!" for i in range(2500)),
}


def text_of(name, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(WRITINGS[name], encoding="utf-8", newline="")
    return path


def prepared(path, out, kind="bytes", shares=(0.05, 0.05), documents="file"):
    corpus = datasets.corpus(f"text:{path}", documents=documents)
    return preparation.prepare(corpus, out, kind=kind, shares=shares)


@pytest.mark.parametrize("name", WRITINGS)
def test_every_writing_has_parts_of_the_size_that_was_asked_for(tmp_path, name):
    tokens = prepared(text_of(name, tmp_path), tmp_path / "out")
    parts = [tokens.part(part) for part in ("train", "validation", "test")]
    text = b"".join(bytes(tokens.tokens(p.start, p.stop - 1).astype(np.uint8)) for p in parts)
    assert text.decode() == WRITINGS[name]
    for part in parts[1:]:
        assert part.bytes == pytest.approx(0.05 * len(text), rel=0.3)
        held = tokens.tokens(part.start, part.stop - 1)
        assert bytes(held.astype(np.uint8)).decode()  # no sign of several bytes is cut


@pytest.mark.parametrize("name", WRITINGS)
def test_pieces_give_the_tokens_of_the_whole_text(tmp_path, name):
    tokens = prepared(text_of(name, tmp_path), tmp_path / "out", "bpe:600", (0, 0))
    here = tokens.part("train")
    (expected,) = tokens.tokenizer.encode([WRITINGS[name]])
    np.testing.assert_array_equal(tokens.tokens(here.start, here.stop - 1), expected)
    pieces = [*readers.read_text(tmp_path / "text.txt", 0, "file")]
    assert len(pieces) > 50 and sum(piece.ends for piece in pieces) == 1 and pieces[-1].ends


def test_text_without_any_good_place_is_cut_between_signs(tmp_path):
    path = tmp_path / "text.txt"
    text = "a" + "ж" * 100_000
    path.write_text(text, encoding="utf-8")
    pieces = [*readers.read_text(path, 0, "file")]
    assert "".join(piece.text for piece in pieces) == text
    assert max(len(piece.text.encode()) for piece in pieces) < 0.05 * 200_000
    (again,) = readers.read_text(path, pieces[-2].after, "file")
    assert again == pieces[-1]


def test_a_line_that_is_a_document_is_never_cut(tmp_path):
    lines = ["слово и слово. " * n for n in (3, 400, 1, 200_000, *range(1, 200))]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n \n\n", encoding="utf-8")
    pieces = [*readers.read_text(path, 0, "line")]
    assert [piece.text for piece in pieces] == lines and all(piece.ends for piece in pieces)
    for i in (0, 3, 150):
        assert [*readers.read_text(path, pieces[i].after, "line")] == pieces[i + 1 :]


def test_only_a_line_break_ends_a_line(tmp_path):
    """Other characters at which `str.splitlines` splits do not end a line."""
    lines = ["page\x0cbreak", "next\x85line", "para\u2028graph", "group\x1dsign", "cr\rinside"]
    path = tmp_path / "text.txt"
    path.write_bytes("\r\n".join([*lines, ""]).encode())
    pieces = [*readers.read_text(path, 0, "line")]
    assert [piece.text for piece in pieces] == lines
    assert [*readers.read_text(path, pieces[2].after, "line")] == pieces[3:]


@pytest.mark.parametrize("kind, where", [("jsonl", "byte 55"), ("parquet", "row 2")])
def test_a_row_without_a_class_is_named(tmp_path, kind, where):
    rows = [{"text": t, "label": n} for t, n in (("a", 1), (" ", None), ("b", None))]
    path = tmp_path / f"train.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    (place,) = datasets.corpus(f"files:{tmp_path}", label="label").sources
    with pytest.raises(UserError, match=rf"{where} has no class: 'label' is null"):
        [*place.read(0)]
    (place,) = datasets.corpus(f"files:{tmp_path}").sources  # without classes they are documents
    assert [piece.text for piece in place.read(0)] == ["a", "b"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_blank_rows_are_no_documents(tmp_path, kind):
    texts = ["", "a", " \n", "b", "\u3000", "c", ""]
    path = tmp_path / f"train.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.table({"text": texts}), path)
    (place,) = datasets.corpus(f"files:{tmp_path}").sources
    pieces = [*place.read(0)]
    assert [piece.text for piece in pieces] == ["a", "b", "c"]
    assert [piece.text for piece in place.read(pieces[0].after)] == ["b", "c"]


PARTS = {
    "train": "train medieval latest contest-winners invalid 000_00000 training"
    " train-00000-of-00004-2d5a1467fff1081b",
    "validation": "wiki.valid.tokens val2 dev validation-00000-of-00001-869c898b519ad725",
    "test": "Test_1 testing test/00 train/test",
}


def test_the_name_of_a_file_defines_its_part(tmp_path):
    parts = {f"{name}.jsonl": part for part, names in PARTS.items() for name in names.split()}
    for name in parts:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text('{"text": "a"}\n')
    places = datasets.corpus(f"files:{tmp_path}").sources
    assert {place.name: place.part for place in places} == parts


def test_files_of_which_none_is_for_training_are_refused(tmp_path):
    (tmp_path / "test-1.jsonl").write_text('{"text": "a"}\n')
    message = "no file .* is for training: the files test-1.jsonl are named validation or test"
    with pytest.raises(UserError, match=message):
        datasets.corpus(f"files:{tmp_path}")


@pytest.mark.parametrize(
    "text, shares, part",
    [
        ("a line" * 20, (0.05, 0.05), "validation"),
        ("a line" * 20, (0, 0.2), "test"),
        ("a line\n" * 1000, (0.05, 0.0001), "test"),
    ],
)
def test_a_share_that_leaves_its_part_empty_is_refused(tmp_path, text, shares, part):
    (tmp_path / "text.txt").write_text(text)
    corpus = datasets.corpus(f"text:{tmp_path / 'text.txt'}")
    share = shares[("validation", "test").index(part)]
    message = f"--{part}={share:g} leaves the {part} part without text: .* {len(text):,} bytes"
    with pytest.raises(UserError, match=message):
        datasets.check_parts(corpus, shares, preparation._pieces)


def test_shares_that_have_text_are_taken(tmp_path):
    reads = []

    def pieces(corpus, shares, place):
        reads.append(corpus.sources[place].name)
        return preparation._pieces(corpus, shares, place)

    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(f"{i}")
    corpus = datasets.corpus(f"text:{tmp_path}")
    datasets.check_parts(corpus, (0.1, 0.1), pieces)
    assert reads == ["8.txt"]  # what is surely for training is not read
    datasets.check_parts(corpus, (0, 0), pieces)
    assert len(reads) == 1  # nothing is looked for
    rows = "\n".join(json.dumps({"text": word}) for word in ("a", "b"))
    for name in ("train", "validation", "test"):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / f"{name}.jsonl").write_text(rows)
    datasets.check_parts(datasets.corpus(f"files:{tmp_path / 'own'}"), (0.05, 0.05), pieces)
    assert len(reads) == 1


@pytest.mark.parametrize("download, requests", [(False, 0), (True, 1)])
def test_the_hub_is_queried_for_a_data_set_once_and_only_with_download(
    no_network, download, requests
):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(UserError, match=r"is not on this machine .*use --files=FOLDER") as error:
        datasets.corpus("wikitext103", download=download)
    assert requests <= len(no_network) <= 2 * requests and "\n" not in str(error.value)


def test_a_line_without_an_end_is_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 10_000)
    path = tmp_path / "text.txt"
    for content, message in (
        (b"a line\n" + b"a" * 100_000, "the line at byte 7 is longer than 9.8 KiB"),
        (b"a" * 5000 + b"\0" * 10**6, "is binary, not text: byte 5000 is 0"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            [*readers.read_text(path, 0, "line")]
    path.write_bytes(b"a" * 9000 + b"\n" + b"b" * 9000)
    assert [len(piece.text) for piece in readers.read_text(path, 0, "line")] == [9000, 9000]


@pytest.mark.parametrize(
    "line, message",
    [
        (r'{"text": "a \ud800 b"}', r"line 2, byte 14: the text has half of a surrogate pair"),
        ('{"text": ' + "[" * 10**5, "line 2, byte 14: the JSON is nested too deeply"),
        ("[1]", "line 2, byte 14: expected an object, got .*1"),
    ],
)
def test_a_wrong_json_line_is_named(tmp_path, line, message):
    (tmp_path / "train.jsonl").write_text(f'{{"text": "a"}}\n{line}\n')
    (place,) = datasets.corpus(f"files:{tmp_path}").sources
    with pytest.raises(UserError, match=message):
        [*place.read(0)]


def test_a_flipped_bit_of_a_parquet_page_with_a_checksum_is_noticed(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"a line of text {i}" for i in range(200)]})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(table, path, **options)
    content = bytearray(path.read_bytes())
    content[content.index(b"text 77")] ^= 1
    path.write_bytes(content)
    (place,) = datasets.corpus(f"files:{tmp_path}").sources
    with pytest.raises(UserError, match=r"a.parquet: row group 0 is damaged: .*CRC"):
        [*place.read(0)]
