"""A data set of TensorFlow Datasets is built and read without TensorFlow and without a network."""

import sys
import time
from typing import ClassVar

import numpy as np
import pytest

from experiments.prepare import main
from jaxformer.core.errors import UserError
from jaxformer.data import images
from jaxformer.data.tokens import open_tokens

tfds = pytest.importorskip("tensorflow_datasets")
REVIEWS = [(f"review {i} is {'good' if i % 2 else 'bad'}", i % 2) for i in range(60)]


class TinyReviews(tfds.core.GeneratorBasedBuilder):
    """Sixty reviews in two splits."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict(
            {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(names=["bad", "good"])}
        )
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(0, 40),
            "test": self._generate_examples(40, 60),
        }

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            text, label = REVIEWS[i]
            yield i, {"text": text, "label": label}


class TinyGlyphs(tfds.core.GeneratorBasedBuilder):
    """Five classes of small pictures; the highest label comes first."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        pixels = tfds.features.Tensor(shape=(12, 12, 1), dtype=np.uint8)
        features = {"image": pixels, "label": tfds.features.ClassLabel(num_classes=5)}
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 15), "test": self._generate_examples(15, 25)}

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            label = 4 - i % 5
            yield i, {"image": np.full((12, 12, 1), 10 * label + i // 5, np.uint8), "label": label}


def test_pictures_become_classes_the_first_labels_first(tmp_path, monkeypatch):
    TinyGlyphs(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    monkeypatch.setitem(images.PIXEL_MOMENTS, "tiny_glyphs", (0.9, 0.1))
    glyphs = images.load("tiny_glyphs", classes=2, per_class=3, size=12, prepared=str(tmp_path))
    assert glyphs.classes == ("0", "1")  # the first two that are read are 4 and 3
    assert set(np.unique(glyphs.pixels_CxKxSxS[1])) <= {10, 11, 12, 13, 14}
    whole = images.load("tiny_glyphs", size=12, prepared=str(tmp_path))
    assert whole.classes == tuple("01234") and whole.pixels_CxKxSxS.shape == (5, 5, 12, 12)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UserError, match=r"data\.folder is its folder"):
        images.load("tiny_glyphs", prepared=str(tmp_path / "elsewhere"))


class TinyAbsent(tfds.core.GeneratorBasedBuilder):
    """A builder whose download server, port 9 of this machine, does not answer."""

    VERSION = tfds.core.Version("1.0.0")
    # Real builders register the addresses of their downloads as checksums.
    url_infos: ClassVar = {"http://127.0.0.1:9/a.txt": None}

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(dl_manager.download("http://127.0.0.1:9/a.txt"))}

    def _generate_examples(self, path):
        yield 0, {"text": path.read_text()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tfds")
    builder = TinyReviews(data_dir=str(place), file_format="array_record")
    builder.download_and_prepare()
    return place


def test_its_documents_and_classes_become_tokens(folder, tmp_path):
    out = tmp_path / "out"
    flags = ["--dataset=tfds:tiny_reviews", f"--tfds-dir={folder}", "--label=label"]
    assert main([*flags, f"--out={out}", "--tokenizer=bytes"]) == 0
    assert "tensorflow" not in sys.modules or not hasattr(sys.modules["tensorflow"], "function")
    tokens = open_tokens(str(out))
    assert tokens.labels == ("bad", "good") and tokens.part("test").last == 60
    assert tokens.part("test").first == 40 and tokens.part("train").last == 38
    rows, lengths = tokens.documents(np.arange(40, 60), 30)
    result = {bytes(row[:n].tolist()).decode() for row, n in zip(rows, lengths, strict=True)}
    assert result == {text for text, _ in REVIEWS[40:]}
    for i, label in zip(range(40, 60), tokens.labels_of(np.arange(40, 60)), strict=True):
        text = bytes(rows[i - 40][: lengths[i - 40]].tolist()).decode()
        assert (text, label) in REVIEWS


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--dataset=tfds:not_here"], "tfds:not_here is not prepared in"),
        (["--dataset=tfds:tiny_reviews", "--text=texts"], "has no field 'texts'. Did you mean"),
    ],
)
def test_what_is_not_there_is_a_one_line_error(folder, tmp_path, capsys, flags, message):
    assert main([*flags, f"--tfds-dir={folder}", f"--out={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_without_tokens_it_is_only_prepared(folder, capsys):
    assert main(["--dataset=tfds:tiny_reviews", f"--tfds-dir={folder}"]) == 0
    assert "train 40, test 20; fields label, text" in capsys.readouterr().out


def test_a_part_of_a_data_set_is_no_data_set(folder, tmp_path, capsys):
    (tmp_path / "tiny_reviews" / "1.0.0").mkdir(parents=True)
    arguments = [
        "--dataset=tfds:tiny_reviews",
        f"--tfds-dir={tmp_path}",
        f"--out={tmp_path / 'out'}",
    ]
    assert main(arguments) == 2
    assert "cannot be read (none of its versions is complete)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "has_tensorflow, message",
    [
        (False, "Builders that need TensorFlow are not listed without it: pip install"),
        (True, "no builder 'mnits'. Did you mean 'mnist'? All are listed at"),
    ],
)
def test_a_builder_that_is_not_registered_is_a_one_line_error(
    tmp_path, capsys, monkeypatch, has_tensorflow, message
):
    monkeypatch.setattr("jaxformer.data.tfds.find_spec", lambda name: has_tensorflow or None)
    flags = ["--dataset=tfds:mnits", "--download", f"--tfds-dir={tmp_path / 'tfds'}"]
    assert main([*flags, f"--out={tmp_path / 'out'}"]) == 2
    output = capsys.readouterr().err.strip().splitlines()
    assert len(output) == 1 and message in output[0] and "Did you mean 'mnist'?" in output[0]


def test_a_server_that_does_not_answer_is_asked_once(tmp_path, capsys, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    flags = ["--dataset=tfds:tiny_absent", "--download", f"--tfds-dir={tmp_path / 'tfds'}"]
    assert main([*flags, f"--out={tmp_path / 'out'}"]) == 2
    output = capsys.readouterr().err.strip().splitlines()
    assert sum(slept) < 1 and not (tmp_path / "out").exists()
    assert "could not be downloaded: 127.0.0.1 does not answer" in output[-1]
    assert f"copy the folder {tmp_path / 'tfds' / 'tiny_absent'}" in output[-1]
    assert sum("error" in line.lower() or "retry" in line.lower() for line in output) == 1
