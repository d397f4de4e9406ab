"""The rules on fine-tuned parts: what they accept, and alternatives that they reject."""

import numpy as np
import pytest

from experiments.ledger import rules
from experiments.papers import PAPERS
from experiments.papers.associations import claims_finetuning, finetuned_parts
from jaxformer.core.errors import UserError
from jaxformer.stats.differences import Number
from jaxformer.studies.finetuning import judge
from jaxformer.studies.finetuning.judge import Cell
from jaxformer.studies.finetuning.updates import FULL, Update

HARDNESS = 1.0 + 0.4 * np.random.default_rng(1).standard_normal(24)
UPDATES = {
    name: Update(name.removesuffix(", rank 4"), name, 4)
    for name in (
        claims_finetuning.ALL,
        claims_finetuning.MLP,
        claims_finetuning.ATTENTION,
        claims_finetuning.QUERIES_KEYS,
    )
}


def cell(update, share):
    def texts(seed):
        draw = np.random.default_rng([seed, len(update.part)]).standard_normal(24)
        return HARDNESS - 0.2 * share + 0.01 * draw

    return Cell(update, {seed: texts(seed) for seed in range(3)}, 1e-3)


def findings(mlp, attention, queries_keys, everything=0.99):
    """The verdicts on the row of a record in which updates keep these shares."""
    shares = (everything, mlp, attention, queries_keys)
    cells = [cell(update, share) for update, share in zip(UPDATES.values(), shares, strict=True)]
    table = judge.judged(HARDNESS, cell(FULL, 1.0), cells, margin=0.05)
    metrics = finetuned_parts.outcome(table).metrics

    def read(side):
        return Number(*metrics[side.metric]) if side.metric else Number(side.value)

    item = claims_finetuning.ITEMS[0]
    return [rule.judge(text, read).verdict for text, rule in item.rules.items()]


@pytest.mark.parametrize(
    ("shares", "verdicts"),
    [
        ((0.9, 0.6, 0.2), [rules.HELD, rules.HELD]),
        ((0.6, 0.9, 0.2), [rules.NOT_HELD, rules.HELD]),  # attention learns more
        ((0.9, 0.6, 1.1), [rules.HELD, rules.NOT_HELD]),  # queries and keys are enough
        ((0.8, 0.8, 0.2), [rules.OPEN, rules.HELD]),  # no difference
    ],
)
def test_the_rules_reject_alternatives(shares, verdicts):
    assert findings(*shares) == verdicts


def test_a_share_of_a_loss_is_a_one_line_error():
    """Training everything makes the model worse if the learning rate is too high."""
    table = judge.judged(HARDNESS, cell(FULL, -0.5), [cell(Update("MLP", "", 4), 0.6)], margin=0.05)
    with pytest.raises(UserError, match=r"gains -0\.10\d bits per byte.*lower figure\.rates"):
        finetuned_parts.outcome(table)


def test_the_rows_are_questions_of_our_own():
    names = {item.name for item in PAPERS["associations"].items if not item.is_counted}
    assert {item.name for item in claims_finetuning.ITEMS} <= names
