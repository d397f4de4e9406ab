"""Every command ends as if it had not been killed, whenever that was.

HOSTILE_SEED draws the moments; HOSTILE_KILLS is their number over all scenes.
"""

import os

import pytest

from tests.hostile.scenes import SCENES, attack

pytestmark = pytest.mark.hostile
KILLS = int(os.environ.get("HOSTILE_KILLS") or 240)
DEAR = ("anatomy", "confirmation", "oneshot")  # a start takes several seconds: a fifth of the kills


@pytest.mark.parametrize("scene", SCENES)
def test_a_killed_command_ends_as_if_it_had_not_been(scene, tmp_path):
    share = KILLS // len(SCENES) // (5 if scene in DEAR else 1)
    attack("harness", scene, tmp_path, max(1, share))
