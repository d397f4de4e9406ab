"""Classes of small grey images: glyphs, folders or zips of characters, TensorFlow Datasets.

Every source becomes `Images`: uint8 of one size, with equally many images of each class. Strokes
are dark on white, except in MNIST and Fashion-MNIST, which are light on black.
"""

import functools
import io
import os
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range

PIXEL_MOMENTS = {  # (mean, std) of pixels in [0, 1]
    "glyphs": (0.922, 0.084),
    "folder": (0.922, 0.084),
    "omniglot": (0.922, 0.084),
    "mnist": (0.1307, 0.3081),
    "fashion_mnist": (0.286, 0.353),
}
MAX_IMAGES = 10**6
MAX_PIXELS = 4 * 10**9  # of all images; a pixel has one byte
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


class Images(NamedTuple):
    """C classes of K images each, S x S pixels."""

    pixels_CxKxSxS: np.ndarray  # uint8
    classes: tuple[str, ...]
    mean: float  # of pixels in [0, 1], over the whole data set
    std: float

    def take(self, indices: Sequence[int]) -> "Images":
        """Returns the classes with the given indices."""
        names = tuple(self.classes[i] for i in indices)
        return self._replace(pixels_CxKxSxS=self.pixels_CxKxSxS[list(indices)], classes=names)


def load(
    name: str,
    paths: Sequence[str] = (),
    classes: int = 0,
    per_class: int = 0,
    size: int = 32,
    seed: int = 0,
    prepared: str = "",
) -> Images:
    """Loads a data set of images, or draws one.

    Args:
        name: "glyphs" (drawn), "folder" (each folder of images is a class), or "omniglot", "mnist",
            "fashion_mnist" from TensorFlow Datasets.
        paths: folders or zips for "folder".
        classes: the largest number of classes; 0 takes all, or 50 glyphs.
        per_class: the largest number of images of a class; 0 takes all, or 20 glyphs.
        size: side of the images in pixels.
        seed: the seed of the glyphs.
        prepared: the folder of TensorFlow Datasets; "" is its default.
    """
    check_choice("image source", name, PIXEL_MOMENTS)
    check_range("data.size, in pixels,", size, 1, 4096)
    check_range("data.classes in all", classes, 0, MAX_IMAGES)
    check_range("data.per_class", per_class, 0, MAX_IMAGES)
    prepared = os.path.expanduser(prepared)
    if prepared and not os.path.isdir(prepared):
        raise UserError(
            f"data.folder must be where TensorFlow Datasets has its data, got {prepared!r:.100}, "
            "which is no folder."
        )
    if name == "glyphs":
        return glyphs(seed, classes or 50, per_class or 20, size)
    to_pixels = functools.partial(_resized, size=size)
    if name == "folder":
        by_class = _from_paths(paths, to_pixels)
    else:
        by_class = _from_tfds(name, prepared, per_class, to_pixels)
    if classes:
        by_class = dict(list(by_class.items())[:classes])
    too_small = [label for label, images in by_class.items() if len(images) < 2]
    if too_small:
        raise UserError(
            f"every class needs at least 2 images, one shown and one queried; {len(too_small)} of "
            f"{len(by_class)} classes have fewer, such as {too_small[0]!r}."
        )
    count = min(len(images) for images in by_class.values())
    count = min(count, per_class or count)
    pixels = np.stack([np.stack(images[:count]) for images in by_class.values()])
    return Images(pixels, tuple(by_class), *PIXEL_MOMENTS[name])


def glyphs(seed: int, classes: int, per_class: int, size: int = 32) -> Images:
    """Draws glyphs. A class is three strokes through random points; each image shifts the points.

    Args:
        seed: seed of strokes and jitter.
        classes: number of classes.
        per_class: images of each class.
        size: height and width in pixels.
    """
    if classes < 1 or per_class < 2:
        raise UserError(
            f"glyphs need at least 1 class and 2 images a class, got {classes} and {per_class}."
        )
    if classes * per_class * size**2 > MAX_PIXELS:
        raise UserError(
            f"{classes} classes of {per_class} glyphs of {size} x {size} pixels are more than "
            f"{MAX_PIXELS:,} bytes; take fewer (data.classes, data.per_class, data.size)."
        )
    rng = np.random.default_rng(seed)
    strokes, points = 3, 3  # strokes of a glyph, points of a stroke
    anchors = size * rng.uniform(0.12, 0.88, (classes, 1, strokes, points, 2))
    jittered = anchors + size * rng.normal(0, 0.025, (classes, per_class, strokes, points, 2))
    jittered += size * rng.normal(0, 0.03, (classes, per_class, 1, 1, 2))  # shifts whole glyphs
    start, stop = jittered[:, :, :, :-1], jittered[:, :, :, 1:]
    fraction = np.linspace(0, 1, 24)[:, None]  # of the line between two points, for each dot
    dots = start[..., None, :] * (1 - fraction) + stop[..., None, :] * fraction
    xy = np.clip(np.rint(dots), 0, size - 1).astype(int).reshape(classes, per_class, -1, 2)
    pixels = np.full((classes, per_class, size, size), 255, np.uint8)
    c, k = np.ogrid[:classes, :per_class]
    pixels[c[..., None], k[..., None], xy[..., 0], xy[..., 1]] = 0
    names = tuple(f"glyph{i}" for i in range(classes))
    return Images(pixels, names, *PIXEL_MOMENTS["glyphs"])


def split(images: Images, counts: Sequence[int], seed: int) -> list[Images]:
    """Splits the classes at random into disjoint sets.

    Args:
        images: the images of all classes.
        counts: the number of classes of each set; classes that are left belong to none.
        seed: the seed of the permutation of the classes.

    Returns:
        A set of images for each count.
    """
    total = len(images.classes)
    if min(counts) < 2 or sum(counts) > total:
        raise UserError(
            f"{total} classes cannot be split into {' + '.join(map(str, counts))}: every part "
            "needs at least 2, and their sum may not exceed the number of classes."
        )
    order = np.random.default_rng(seed).permutation(total)
    parts = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
    return [images.take(part.tolist()) for part in parts]


def _from_paths(paths: Sequence[str], to_pixels: Callable) -> dict[str, list[np.ndarray]]:
    if not paths:
        raise UserError("images from a folder need its path: data.paths=('DIR', 'FILE.zip').")
    by_class: dict[str, list[np.ndarray]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for path in paths:
        source = Path(path).expanduser()
        if not (source.is_dir() or source.is_file()):
            raise UserError(f"there is no folder or zip of images at {source}.")
        for label, file, content in _files(source, with_source_name=len(paths) > 1):
            if (label, file) in seen:  # Omniglot's two small sets share two alphabets
                continue
            seen.add((label, file))
            by_class[label].append(_decoded(content, f"{source}:{label}/{file}", to_pixels))
    if len(by_class) < 2:
        raise UserError(
            f"{', '.join(map(str, paths))}: found {len(by_class)} classes, at least 2 are needed. "
            "Expected folders of images such as Greek/character01/0001_01.png."
        )
    return dict(by_class)


def _files(source: Path, with_source_name: bool) -> Iterator[tuple[str, str, bytes]]:
    """Yields (class, file name, content) in order. The last two folders of a file name its class.

    Args:
        source: a folder or a zip.
        with_source_name: whether the name of the source counts as a folder. Then the sources
            alpha/Greek and alpha/Latin, which both contain character01, yield the classes
            Greek/character01 and Latin/character01.
    """
    # The ending of a zip is removed from its name. The name of a folder may contain dots.
    suffix = "" if source.is_file() else source.suffix
    absolute = Path(os.path.abspath(source)).with_suffix(suffix)
    source_parts = absolute.parts[1:] if with_source_name else ()
    if source.is_dir():
        for file in sorted(source.rglob("*")):
            if file.suffix.lower() in ENDINGS and file.is_file():
                parts = (*source_parts, *file.relative_to(source).parts)
                yield "/".join(parts[-3:-1]), file.name, file.read_bytes()
        return
    try:
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                is_metadata = name.startswith("__MACOSX")
                if Path(name).suffix.lower() in ENDINGS and not is_metadata:
                    parts = (*source_parts, *Path(name).parts)
                    yield "/".join(parts[-3:-1]), Path(name).name, archive.read(name)
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
        raise UserError(f"{source} is not a readable zip: {error}.") from None


def _decoded(content: bytes, name: str, to_pixels: Callable) -> np.ndarray:
    """Returns the pixels of an image file with this content; `name` is its name in errors."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return to_pixels(image)
    except Exception as error:  # Pillow raises many types
        reason = type(error).__name__  # Pillow's message names a buffer instead of the file
        raise UserError(f"{name} is not a readable image ({reason}).") from None


def _resized(image: Any, size: int) -> np.ndarray:
    """Returns the grey values of an image of Pillow, (size, size)."""
    from PIL import Image

    grey = image.convert("L").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(grey, np.uint8)


def _from_tfds(name: str, prepared: str, per_class: int, to_pixels: Callable) -> dict[str, list]:
    try:
        import tensorflow_datasets as tfds
        from PIL import Image

        folder: dict[str, Any] = {"data_dir": prepared} if prepared else {}
        source: Any = tfds.data_source(name, split="train+test", download=False, **folder)
    except Exception as error:  # missing packages, network or data: many types
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"{name} comes through TensorFlow Datasets, which failed ({why[0][:150]}). It needs "
            "the extra [data], and once, with a network: jaxformer prepare --dataset "
            f"tfds:{name} --download (data.folder is its folder); or use images from a folder."
        ) from None
    by_class: dict[str, list[np.ndarray]] = defaultdict(list)
    for row in source:
        label = str(row["label"])
        if not per_class or len(by_class[label]) < per_class:
            image = Image.fromarray(np.asarray(row["image"]).squeeze())
            by_class[label].append(to_pixels(image))
    return {label: by_class[label] for label in sorted(by_class, key=int)}
