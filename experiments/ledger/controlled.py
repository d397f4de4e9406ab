"""Was the network trained on whose loss a verdict of the ledger rests?

A rule of the ledger compares two numbers. If both are scores of networks that were trained, the
worse one must have been trained as well as it can be (`jaxformer.stats.controls`), unless the rule
says that it is no worse. If one of them is a guess or a constant, the network must be trained where
it is on the losing side. A property of a trained network, such as where a head attends, has no
losing side; it needs a trained network where a rule about it did not hold. Two numbers of one
network compare no trainings.
"""

import math
from collections.abc import Mapping

from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, Rule, Side
from jaxformer.stats import controls
from jaxformer.stats.controls import CANNOT_TELL_END, Training
from jaxformer.stats.trainings import is_loss, training_of

SCORES = ("accuracy", "exact_match", "loss", "bits")  # metrics that say how well a task is solved


def untrained_loser(rule: Rule, verdict: str, records: Mapping[str, Record]) -> str:
    """Which network lost without having been shown to be trained, and why; "" if none did.

    Args:
        rule: the rule behind a verdict
        verdict: of the rule, HELD or NOT_HELD
        records: by cell
    """
    if verdict not in (HELD, NOT_HELD) or (verdict == HELD and _says_no_worse(rule)):
        return ""
    if rule.left.cell == rule.right.cell and not any(side.is_baseline for side in rule.sides):
        return ""
    trainings = [_training(side, records) for side in rule.sides]
    left, right = trainings
    if left is None and right is None:
        return ""
    less_is_better = any(is_loss(side.metric) for side in rule.sides if not side.is_baseline)
    sign = -1.0 if less_is_better else 1.0
    left_score, right_score = (sign * _value(side, records) for side in rule.sides)
    loser_is_left = left_score < right_score
    side, loser = (rule.left, left) if loser_is_left else (rule.right, right)
    winner = right if loser_is_left else left
    if math.isnan(left_score) or math.isnan(right_score):
        return ""
    if loser is None:  # a guess or a constant has less, which is a loss for a score alone
        side = rule.left if winner is left else rule.right
        if verdict == HELD or side.metric.startswith(SCORES):
            return ""
        loser, winner = winner, None
    assert loser is not None
    lost = " lost,"
    if winner is None and not side.metric.startswith(SCORES):
        if verdict == HELD:
            return ""
        lost = ""
    solved_at = None if winner is None else winner.solved_at
    if controls.does_not_learn(loser, solved_at).word == controls.DOES_NOT_LEARN:
        return ""
    state = controls.state(loser)
    if state.word == controls.TRAINED:
        return ""
    # A table has room for few words; docs/verdicts.md says what is asked for.
    reason = state.reason.partition(" tried, ")[0]
    reason = CANNOT_TELL_END if CANNOT_TELL_END in reason else reason
    return f"{side.cell}{lost} not shown to be trained: {reason}"


def _says_no_worse(rule: Rule) -> bool:
    """Whether the rule says that a network is as good as another one, within a tolerance."""
    return rule.within or rule.by < 0


def _training(side: Side, records: Mapping[str, Record]) -> Training | None:
    """The tries of the network of a side; None without one."""
    is_plain = side.metric and not side.is_baseline and not side.among and side.reached is None
    if not is_plain or side.cell not in records:
        return None
    record = records[side.cell]
    return training_of(
        {
            "config": record.config,
            "members": record.members,
            "metrics": record.metrics,
            "baselines": record.baselines,
            "steps": record.steps,
        },
        side.metric,
    )


def _value(side: Side, records: Mapping[str, Record]) -> float:
    """The number of a side; nan for one that is made of several cells."""
    if not side.metric:
        return side.value
    record = records.get(side.cell)
    if record is None or side.among or side.minus or side.reached is not None:
        return math.nan
    if side.is_baseline:
        value = record.baselines.get(side.metric)
    else:
        value = record.metrics.get(side.metric, {}).get("mean")
    return math.nan if value is None else side.times * value
