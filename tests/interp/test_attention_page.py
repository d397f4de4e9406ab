"""The page of attention maps: its numbers are the weights, and nothing in it can run."""

import base64
import json
import re

import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError

WEIGHTS = np.tril(np.ones((2, 3, 5, 5))) / np.arange(1, 6)[:, None]
MAPS = {"block_0/attn/weights": WEIGHTS, "block_0/attn/heads": np.ones((2, 5, 3, 4))}


def data_of(file):
    return json.loads(re.findall(r'id="data">(.*?)</script>', file.read_text(), re.S)[0])


def test_a_page_has_every_head_with_its_weights(tmp_path):
    file = capture.show(MAPS).save(tmp_path / "heads.html", [*"abcde"])
    data = data_of(file)
    assert [head["name"] for head in data["heads"]] == [
        f"block_0/attn/weights, head {h}" for h in range(3)
    ]
    levels = np.frombuffer(base64.b64decode(data["heads"][2]["map"]), np.uint8)
    np.testing.assert_allclose(levels.reshape(5, 5) / 255, WEIGHTS[0, 2], atol=1 / 255)
    assert data["tokens"] == [*"abcde"]


def test_no_text_of_a_token_becomes_markup(tmp_path):
    evil = "</script><script>alert(1)</script>"
    file = capture.show(MAPS).save(tmp_path / "heads.html", [evil, *"bcde"])
    assert "<script>alert" not in file.read_text()
    assert data_of(file)["tokens"][0] == evil


@pytest.mark.parametrize(
    "maps, options, message",
    [
        ({"resid": np.ones((2, 5, 8))}, {}, "no attention map is among these activations"),
        (MAPS, {"tokens": ["a"]}, "1 texts for 5 tokens"),
        (MAPS, {"example": 2}, "example 2 is none of the batch of 2: give 0 to 1"),
        ({"w": np.full((1, 40, 800, 800), 1 / 800, np.float16)}, {}, "are too many for a page"),
    ],
)
def test_what_cannot_be_shown_is_a_one_line_error(tmp_path, maps, options, message):
    with pytest.raises(UserError, match=message):
        capture.show(maps).save(tmp_path / "heads.html", **options)
    assert not (tmp_path / "heads.html").exists()
