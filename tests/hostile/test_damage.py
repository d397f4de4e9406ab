"""A damaged folder ends as the undamaged one, or one line names the damage.

HOSTILE_SEED draws files and damages; HOSTILE_DAMAGES is their number over all scenes.
"""

import os
import random

import pytest

from experiments.schedule import search_journal
from jaxformer.core.errors import UserError
from tests.hostile.damage import DAMAGES
from tests.hostile.scenes import SEED, attack

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


def test_a_damaged_journal_of_a_search_is_healed_or_named(tmp_path):
    optuna = pytest.importorskip("optuna", reason="pip install 'jaxformer[search]'")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file, draw = tmp_path / search_journal.JOURNAL, random.Random(SEED)
    study = search_journal.open_study(optuna, tmp_path)
    for value in (1.0, 3.0, 2.0):
        study.tell(study.ask(), value)
    (tmp_path / "another.json").write_text('{"a": 1}\n')
    sound = file.read_bytes()
    for _ in range(TIMES):
        file.write_bytes(sound)
        kind = draw.choice([*DAMAGES])
        DAMAGES[kind](file, draw)
        try:
            assert len(search_journal.open_study(optuna, tmp_path).trials) <= 3, kind
        except UserError as error:
            assert "\n" not in str(error), kind
