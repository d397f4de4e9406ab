"""The stored figure of a record has few colours, unless it has a colour map."""

import io

import numpy as np
from PIL import Image

from experiments.ledger import write


def kept(tmp_path, pixels):
    Image.fromarray(pixels.astype(np.uint8), "RGB").save(tmp_path / "figure.png")
    return Image.open(io.BytesIO(write.smallest_png.__wrapped__(tmp_path / "figure.png")))


def test_a_drawing_of_few_colours_gets_a_palette(tmp_path):
    colours = np.random.default_rng(0).integers(0, 256, (40, 3))
    pixels = colours[np.random.default_rng(1).integers(0, 40, (60, 80))]
    assert kept(tmp_path, pixels).mode == "P"


def test_a_colour_map_gets_no_bands(tmp_path):
    x, y = np.meshgrid(np.linspace(0, 255, 256), np.linspace(0, 255, 128))
    pixels = np.stack([x, y, 255 - (x + y) / 2], -1)
    seen = np.asarray(kept(tmp_path, pixels).convert("RGB"), int)
    assert np.abs(seen - pixels.astype(np.uint8)).max() <= write.MAX_CHANGE
