"""One-shot episodes, compared with slow Python, and images from folders, zips and TFDS."""

import sys
import zipfile

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import images
from jaxformer.tasks.oneshot import OneShot, episodes, positions

GLYPHS = images.glyphs(0, 6, 4, 16)
TASK = OneShot(GLYPHS)


@pytest.fixture(scope="module")
def batch():
    return jax.device_get(episodes(TASK, jax.random.key(1), 0, 300))


def bare(task, inputs):
    """Returns tokens without their positions, by image: (episodes, 3, patches, n)."""
    tokens = inputs - positions(task.length, task.dimension)[None]
    return tokens.reshape(len(tokens), 3, -1, task.dimension)


def known_patches(task):
    """Returns every image's normalised patches, computed from the definition."""
    table = {}
    for c, kind in enumerate(task.images.pixels_CxKxSxS):
        for k, pixels in enumerate(kind):
            grey = (pixels / 255.0 - task.images.mean) / task.images.std
            rows = []
            for i in range(0, len(grey), task.patch):
                for j in range(0, len(grey), task.patch):
                    flat = np.tile(grey[i : i + task.patch, j : j + task.patch].ravel(), 3)
                    rows.append((flat - flat.mean()) / np.sqrt(flat.var() + 1e-5))
            table[c, k] = np.stack(rows)
    return table


def test_an_episode_is_two_labelled_images_and_another_of_one_of_them(batch):
    assert (TASK.length, TASK.dimension) == (12, 192) and batch.inputs.shape == (300, 12, 192)
    embedding = np.random.default_rng(0).standard_normal((3, 192))
    table, is_first, firsts = known_patches(TASK), [], []
    for seen, target in zip(bare(TASK, batch.inputs)[:60], batch.targets[:60, 0]):
        result = [
            [
                (place, label)
                for place, patches in table.items()
                for label in range(3)
                if np.allclose(patches + embedding[label], image, atol=1e-3)
            ]
            for image in seen
        ]
        assert [len(f) for f in result] == [1, 1, 1]
        (one, a), (other, b), (query, question) = (f[0] for f in result)
        assert question == 2 and {a, b} == {0, 1} and one[0] != other[0]
        answer = a if query[0] == one[0] else b
        assert query[0] in (one[0], other[0]) and target == answer
        assert query not in (one, other)
        is_first.append(query[0] == one[0])
        firsts.append(one[0])
    assert 10 < sum(is_first) < 50 and len(set(firsts)) == 6
    assert 0.35 < batch.targets.mean() < 0.65


def test_episodes_are_a_function_of_key_and_index(batch):
    again = episodes(TASK, jax.random.key(1), 40, 300)
    np.testing.assert_array_equal(again.inputs[:260], batch.inputs[40:])
    other = episodes(TASK, jax.random.key(2), 40, 300)
    assert np.abs(np.asarray(other.inputs[:260]) - batch.inputs[40:]).max() > 0.1


def test_fixed_order_keeps_classes_and_labels():
    fixed = OneShot(GLYPHS, shuffled=False)
    held = jax.device_get(episodes(fixed, jax.random.key(0), 0, 50))
    embedding = np.random.default_rng(0).standard_normal((3, 192))
    means = bare(fixed, held.inputs).mean(2)
    nearest = ((means[:, :, None] - embedding[None, None]) ** 2).sum(-1).argmin(-1)
    assert (nearest == np.array([0, 1, 2])).all()
    assert 10 < held.targets.sum() < 40


def test_scores_take_the_sign_and_baselines_beat_guessing(batch):
    f = np.where(batch.targets[:, 0] == 1, 0.5, 1.0)
    scores = TASK.metrics(f, batch)
    np.testing.assert_allclose(scores["loss"].value, np.where(batch.targets[:, 0] == 1, 0.25, 4))
    assert (np.asarray(scores["accuracy"].value) == batch.targets[:, 0]).all()
    result = TASK.baselines(batch)
    assert result["constant"] < 0.6 and result["nearest_pixels"] > 0.8
    table = positions(12, 192)
    np.testing.assert_allclose([table.mean(), table.std()], [0, 1], atol=1e-12)


def test_classes_are_split_once(batch):
    parts = images.split(GLYPHS, (2, 2, 2), 3)
    names = [name for part in parts for name in part.classes]
    assert sorted(names) == sorted(GLYPHS.classes)
    where = GLYPHS.classes.index(parts[2].classes[1])
    assert (parts[2].pixels_CxKxSxS[1] == GLYPHS.pixels_CxKxSxS[where]).all()
    with pytest.raises(UserError, match=r"6 classes cannot be split into 4 \+ 2 \+ 2"):
        images.split(GLYPHS, (4, 2, 2), 0)


@pytest.fixture
def folder(tmp_path):
    """Writes two alphabets of two characters, in the layout of Omniglot's zips."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for alphabet in ("Greek", "Latin"):
        for character in (1, 2):
            place = tmp_path / "set" / alphabet / f"character{character:02d}"
            place.mkdir(parents=True)
            for k in range(3):
                pixels = rng.integers(0, 2, (20, 20)).astype(np.uint8) * 255
                Image.fromarray(pixels).save(place / f"{character:04d}_{k:02d}.png")
    return tmp_path / "set"


def test_a_folder_and_a_zip_of_it_are_the_same(folder, tmp_path):
    file = tmp_path / "set.zip"
    with zipfile.ZipFile(file, "w") as held:
        for path in sorted(folder.rglob("*")):
            held.write(path, path.relative_to(tmp_path))
    loaded = images.load("folder", [str(folder)], size=16)
    assert loaded.pixels_CxKxSxS.shape == (4, 3, 16, 16)
    assert loaded.classes[0] == "Greek/character01"
    # An alphabet that two sets share is counted once, as in the official small sets.
    both = images.load("folder", [str(file), str(folder)], size=16)
    assert both.classes == loaded.classes
    assert (both.pixels_CxKxSxS == loaded.pixels_CxKxSxS).all()


@pytest.mark.parametrize("zipped", [False, True])
def test_folders_of_equal_names_in_several_places_are_classes_of_their_own(folder, zipped):
    whole = images.load("folder", [str(folder)], size=16)
    places = [folder / "Greek", folder / "Latin"]
    for place in places if zipped else ():
        with zipfile.ZipFile(f"{place}.zip", "w") as held:
            for path in sorted(place.rglob("*.png")):
                held.write(path, path.relative_to(place))
    parts = images.load("folder", [f"{place}{'.zip' * zipped}" for place in places], size=16)
    assert parts.classes == whole.classes
    assert (parts.pixels_CxKxSxS == whole.pixels_CxKxSxS).all()
    one = images.load("folder", [str(places[0])], size=16)
    assert one.classes == ("character01", "character02")  # of one place, as they always were
    single = sorted(str(place) for place in folder.glob("Latin/*/"))
    assert images.load("folder", single, size=16).classes == whole.classes[2:]


def test_bad_images_are_one_line_errors(folder, tmp_path, monkeypatch):
    def load(*paths, **kwargs):
        with pytest.raises(UserError) as caught:
            images.load("folder", [str(p) for p in paths], **kwargs)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no folder or zip of images" in load(tmp_path / "absent")
    assert "need its path" in load()
    assert "found 1 classes" in load(folder / "Greek" / "character01")
    (tmp_path / "bad.zip").write_bytes(b"PK but not really")
    assert "not a readable zip" in load(tmp_path / "bad.zip")
    (folder / "Latin/character02/0009_01.png").write_bytes(b"not an image")
    assert "Latin/character02/0009_01.png is not a readable image" in load(folder)
    (folder / "Latin/character02/0009_01.png").unlink()
    alone = folder / "Latin/character03"
    alone.mkdir()
    (folder / "Latin/character02/0002_00.png").rename(alone / "0003_00.png")
    assert "at least 2 images" in load(folder) and "Latin/character03" in load(folder)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UserError, match=r"extra \[data\]"):
        images.load("mnist", classes=2, per_class=3)
    with pytest.raises(UserError, match="Did you mean 'omniglot'"):
        images.load("omniglott")
    with pytest.raises(UserError, match="at least 1 class"):
        images.load("glyphs", per_class=1)
    with pytest.raises(UserError, match="at least 2 classes"):
        OneShot(images.glyphs(0, 1, 4))
    with pytest.raises(UserError, match="do not tile"):
        OneShot(GLYPHS, patch=5)


def test_tfds_rows_become_classes(monkeypatch):
    """A stub replaces TFDS: labels come in any order, classes and images are limited."""

    class Fake:
        @staticmethod
        def data_source(name, split, download):
            assert (name, split, download) == ("mnist", "train+test", False)
            rng = np.random.default_rng(0)
            labels = [2, 1, 0, 2, 1, 0, 1, 0, 2]  # the first two that are seen are 2 and 1
            return [
                {"label": label, "image": rng.integers(0, 255, (28, 28, 1)).astype(np.uint8)}
                for label in labels
            ]

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", Fake)
    held = images.load("mnist", classes=2, per_class=2, size=16)
    assert held.classes == ("0", "1") and held.pixels_CxKxSxS.shape == (2, 2, 16, 16)
    assert (held.mean, held.std) == images.PIXEL_MOMENTS["mnist"]


def test_sets_of_equal_size_show_their_own_images():
    """Tasks with other images are not equal, so they do not share a compiled program."""
    first, second = images.split(images.load("glyphs", (), 8, per_class=4, size=8), (4, 4), 0)
    one, other = OneShot(first, 4), OneShot(second, 4)
    assert one != other
    drawn = [episodes(task, jax.random.key(0), 0, 6).inputs for task in (one, other)]
    assert (np.asarray(drawn[0]) != np.asarray(drawn[1])).any()
