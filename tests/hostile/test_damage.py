"""A damaged run ends as the undamaged one or says in one line what is damaged.

HOSTILE_SEED draws files and damages; HOSTILE_DAMAGES is how many there are over these recipes.
"""

import os

import pytest

from tests.hostile.test_kills import COMMANDS, SEED, beside

pytestmark = pytest.mark.hostile
DAMAGES = int(os.environ.get("HOSTILE_DAMAGES") or 165)
SHARES = {"train": 3, "look": 1, "recall": 1}  # the first is the quickest; all save alike


@pytest.mark.parametrize("recipe", SHARES)
def test_damage_is_healed_or_named(recipe, tmp_path):
    times = DAMAGES * SHARES[recipe] // sum(SHARES.values())
    beside("damage", tmp_path, SEED, times, *COMMANDS[recipe])
