"""A command on a damaged folder gives the same result, or its error names the damage.

HOSTILE_SEED draws files and damages; HOSTILE_DAMAGES is their number over all scenes.
"""

import os

import pytest

from tests.hostile.scenes import attack

pytestmark = pytest.mark.hostile
TIMES = int(os.environ.get("HOSTILE_DAMAGES") or 200)
# All recipes save alike; training is the quickest. The text's tokens and tokenizer are damaged too.
SHARES = {
    "train": 6,
    "look": 2,
    "recall": 2,
    "text": 4,
    "prepare": 2,
    "search": 4,
    "activations": 2,
    "anatomy": 1,
}


@pytest.mark.parametrize("scene", SHARES)
def test_damage_is_healed_or_named(scene, tmp_path):
    attack("damage", scene, tmp_path, TIMES * SHARES[scene] // sum(SHARES.values()))
