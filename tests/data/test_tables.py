"""Tables of documents: CSV, TSV, JSON lines, compressed or not; classes by name or comparison."""

import gzip
import json

import numpy as np
import pytest

from experiments.prepare import main
from jaxformer.core.errors import UserError
from jaxformer.data import datasets, preparation, tables
from jaxformer.data.tokens import open_tokens

ROWS = [("a fine film", "1.5"), ('"quoted", yes', "-0.5"), ("line\nbreak", "0"), (" ", "2")]


def write_table(path, rows, header=("text", "polarity")):
    """Writes rows as CSV, TSV or JSON lines, compressed if the name says so."""
    if ".jsonl" in path.name:
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
    elif ".csv" in path.name:
        quoted = [[f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row] for row in rows]
        lines = [",".join(row) for row in [header, *quoted]]
    else:
        lines = ["\t".join(row) for row in [header, *rows]]
    content = ("\n".join(lines) + "\n").encode()
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".zst":
        content = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    path.write_bytes(content)
    return path


def pieces_of(path, text="text", label="", start=0):
    (place,) = tables.corpus(path, text, label, (0, 0)).sources
    return [*place.read(start)]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "csv.gz", "jsonl.gz", "jsonl.zst"])
def test_rows_become_documents_with_the_class_of_a_comparison(tmp_path, ending):
    rows = [row for row in ROWS if ".tsv" not in f".{ending}" or "\n" not in row[0]]
    path = write_table(tmp_path / f"reviews.{ending}", rows)
    corpus = tables.corpus(path, "text", "polarity>0", (0, 0))
    pieces = [*corpus.sources[0].read(0)]
    expected = [(text, int(float(value) > 0)) for text, value in rows if text.strip()]
    assert [(piece.text, piece.label) for piece in pieces] == expected
    assert corpus.labels == ("polarity<=0", "polarity>0") and corpus.files == (path,)
    assert [*corpus.sources[0].read(pieces[0].after)] == pieces[1:]


def test_values_of_a_column_become_classes_by_name(tmp_path):
    for values, classes in (
        (["spam", "ham", "spam"], ("ham", "spam")),
        (["10", "-1", "2"], ("-1", "2", "10")),
    ):
        rows = [(f"text {i}", value) for i, value in enumerate(values)]
        path = write_table(tmp_path / "mail.csv", rows, ("text", "kind"))
        corpus = tables.corpus(path, "text", "kind", (0, 0))
        assert corpus.labels == classes
        labels = [piece.label for piece in corpus.sources[0].read(0)]
        assert [classes[label] for label in labels] == values


def test_a_byte_order_mark_is_no_text(tmp_path):
    mark = b"\xef\xbb\xbf"
    for name, content, expected in (
        ("a.csv", b"text\nword\n", "word"),
        ("a.jsonl", b'{"text": "word"}\n', "word"),
    ):
        (tmp_path / name).write_bytes(mark + content)
        assert [piece.text for piece in pieces_of(tmp_path / name)] == [expected]
    (tmp_path / "a.txt").write_bytes(mark + b"word\nother\n")
    for documents, texts in (("file", ["word", "\nother\n"]), ("line", ["word", "other"])):
        (place,) = datasets.corpus(f"text:{tmp_path / 'a.txt'}", documents=documents).sources
        pieces = [*place.read(0)]
        assert [piece.text for piece in pieces] == texts
        assert pieces[-1].after == len(mark) + 11
        assert [*place.read(pieces[0].after)] == pieces[1:]


WRONG = {
    "a missing column": ("a.csv", "text,stars\na,1\n", "label", "has no 'label'. It has: .'text'"),
    "a missing text": ("a.csv", "words\na\n", "", "has no 'text'. It has: .'words'"),
    "too many fields": ("a.csv", "text,x\na,1\nb,1,2\n", "", "line 3: the row has 3 fields, .* 2"),
    "an open quote": ("a.csv", 'text\n"a\n', "", "line 2: the row is no CSV"),
    "a repeated name": ("a.tsv", "text\ttext\na\tb\n", "", "two columns have the name 'text'"),
    "no rows": ("a.tsv", "text\n", "", "has no rows"),
    "no number": ("a.csv", "text,x\na,good\n", "x>0", "line 2: 'x' is no number but 'good'"),
    "no class": ("a.csv", "text,x\na,1\nb,\n", "x", "line 3 has no class: 'x' is empty"),
    "fractions": ("a.csv", "text,x\na,1\nb,1.5\n", "x", "no classes, such as 1.5; .*--label 'x>0'"),
    "two spellings": ("a.csv", "text,x\na,1\nb,1.0\n", "x", "one class as '1' and '1.0'"),
    "a space": ("a.csv", "text,x\na,good\nb, good\n", "x", "one class as 'good' and ' good'"),
    "a list": ("a.jsonl", '{"text": "a", "x": []}\n', "x", "line 1: 'x' is no class but"),
    "no JSON": ("a.jsonl", '{"text": "a"}\n{\n', "", "line 2: the line is not JSON"),
    "deep JSON": ("a.jsonl", '{"text": ' + "[" * 10**5, "", "line 1: the JSON is nested too"),
    "half a pair": ("a.jsonl", r'{"text": "a \ud800 b"}', "", r"line 1: .* pair \(.ud800\)"),
    "another ending": ("a.txt", "text\n", "", "a table is a file that ends in .csv, .tsv, .jsonl"),
    "binary": ("a.csv", "text\na\0\n", "", "is binary, not text: byte 6 is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_table_is_a_one_line_error(tmp_path, name):
    file, content, label, message = WRONG[name]
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        tables.corpus(tmp_path / file, "text", label, (0, 0))
    assert "\n" not in str(error.value)


def test_too_many_classes_and_too_long_lines_are_refused(tmp_path, monkeypatch):
    rows = [("text", f"name {i}") for i in range(1001)]
    path = write_table(tmp_path / "a.csv", rows, ("text", "name"))
    with pytest.raises(UserError, match="'name' has more than 1,000 different values"):
        tables.corpus(path, "text", "name", (0, 0))
    monkeypatch.setattr("jaxformer.data.readers.MAX_LINE_BYTES", 20)
    path.write_text("text\n" + "a" * 100)
    with pytest.raises(UserError, match="the line at byte 5 is longer than 20 bytes"):
        tables.corpus(path, "text", "", (0, 0))


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_damaged_compressed_table_is_a_one_line_error(tmp_path, ending):
    rows = [(f"text {i * i}", "1") for i in range(2000)]
    path = write_table(tmp_path / f"a.csv.{ending}", rows)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"a.csv.\w+ is damaged: "):
        tables.corpus(path, "text", "", (0, 0))


def test_a_sorted_table_is_prepared_in_mixed_parts(tmp_path):
    rows = [(f"word {i}", str(-1.0 if i < 200 else 1.0)) for i in range(300)]
    path = write_table(tmp_path / "a.tsv", [*rows, *rows])
    flags = [f"--dataset=table:{path}", "--tokenizer=bytes", "--test=0.2", "--validation=0.1"]
    assert main([*flags, "--label=polarity>0", f"--out={tmp_path / 'out'}"]) == 0
    tokens = open_tokens(str(tmp_path / "out"))
    texts = {}
    for name, share in (("train", 0.7), ("validation", 0.1), ("test", 0.2)):
        part = tokens.part(name)
        which = np.arange(part.first, part.last)
        assert abs(len(which) / 600 - share) < 0.05
        assert abs(tokens.labels_of(which).mean() - 1 / 3) < 0.15
        documents = [
            tokens.tokenizer.decode(row[:n]) for row, n in zip(*tokens.documents(which, 9))
        ]
        texts[name] = {*documents}
    assert sum(map(len, texts.values())) == 300  # equal texts are in one part
    assert tokens.labels == ("polarity<=0", "polarity>0")


def test_a_text_that_is_sorted_by_class_is_refused(tmp_path):
    rows = [{"text": f"word {i}", "label": int(i >= 100)} for i in range(300)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = datasets.corpus(f"files:{tmp_path}", label="label")
    with pytest.raises(UserError, match="documents of the validation part have the class '1'"):
        preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0.1, 0.1))
