"""The second judge: of the ledger, and of plans from the second on.

The first plan holds a digest of the first judge, `rules.py` and `record_numbers.py`, so its rows
stay judged by that. Five of its faults are mended here:

* A loss is compared with a baseline of the same examples example by example, if the run reports
  their difference. Hard examples are hard for both, so the whole error of the test set is far too
  wide for it.
* Draws of one chain say how well the posterior of one data set is known. A statement about a task
  needs several data sets, so a single one has an unknown error.
* The tokens of one network share its weights. They are its test set, and not independent trials.
* A test that does not reject is no evidence. A distance between two samples has the error of their
  sizes, and has to lie below a tolerance with it.
* The correction for many rules decides: a claim whose primary rule does not survive it is open.
"""

import math
from collections.abc import Mapping, Sequence

from experiments.ledger import record_numbers
from experiments.ledger.item import Item
from experiments.ledger.record import Record
from experiments.ledger.rules import DIVERGED, HELD, NOT_HELD, OPEN, Finding, Rule, Side, overall
from jaxformer.stats.differences import LEVEL, Number, mean_of, minus, quantile

KS, KS_NOISE = "ks/", "ks_noise"  # Kolmogorov distances, and what 1 % of equal samples exceed
# Quantiles of the Kolmogorov distribution: a distance of two samples of n lies within
# KS_95 / sqrt(n / 2) of the true one in 95 % of the cases, and `ks_noise` is KS_99 / sqrt(n / 2).
KS_95, KS_99 = 1.358, 1.63


def judge_rule(text: str, rule: Rule, records: Mapping[str, Record]) -> Finding:
    """Judges one rule; raises KeyError if a record lacks its metric."""
    return _paired(rule, records).judge(text, lambda side: read_side(records, side))


def verdict(item: Item, findings: Sequence[Finding]) -> str:
    """The verdict of a row, after the correction of its primary rule for the number of claims."""
    combined = overall(findings)
    if combined in (HELD, NOT_HELD) and is_lost_to_correction(item, findings):
        return OPEN
    return combined


def is_lost_to_correction(item: Item, findings: Sequence[Finding]) -> bool:
    """Whether the primary rule of a counted claim has a corrected p value above 5 %."""
    primary = [finding for finding in findings if finding.text == item.primary_rule]
    return item.is_counted and any(finding.q > 1 - LEVEL for finding in primary)


def read_side(records: Mapping[str, Record], side: Side) -> Number | None:
    """The number of a rule's side; None without a record, KeyError without the metric."""
    if not side.metric or any(cell not in records for cell in side.cells):
        return record_numbers.read_side(records, side)
    if side.among:
        several = [read_side(records, side._replace(cell=c, among=())) for c in side.among]
        return mean_of([number for number in several if number])
    if side.minus:
        left, right = (
            read_side(records, side._replace(cell=c, minus="")) for c in (side.cell, side.minus)
        )
        assert left and right
        return minus(left, right)
    record = records[side.cell]
    number = record_numbers.read_side(records, side._replace(trials=1))
    if number is None or side.is_baseline or side.metric == DIVERGED:
        return number
    if side.metric.startswith(KS) and KS_NOISE in record.metrics:
        half = KS_95 / KS_99 * record.metrics[KS_NOISE]["mean"]
        return number._replace(test=half / quantile(math.inf))
    if record.config["recipe"] == "posterior" and not side.is_exact:
        return Number(number.mean, math.nan, n=1)
    if side.trials > 1 and number.mean in (0, 1):
        return number._replace(sem=0.0, test=1 / side.trials, trials=0)
    return number


def paired_name(metric: str, baseline: str) -> str:
    """The name of a loss minus a baseline of the same examples, such as "loss_above_unigram"."""
    return f"{metric}_above_{baseline.removesuffix('_loss')}"


def _paired(rule: Rule, records: Mapping[str, Record]) -> Rule:
    """The rule about the difference of each example, if its record has that."""
    measured, baseline = rule.left, rule.right
    if measured.is_baseline:
        measured, baseline = baseline, measured
    if not baseline.is_baseline or measured.is_baseline or measured.cell != baseline.cell:
        return rule
    name = paired_name(measured.metric, baseline.metric)
    if measured.cell not in records or name not in records[measured.cell].metrics:
        return rule
    sides = {
        measured: measured._replace(metric=name),
        # The constant keeps its cell, from which the printed order of the numbers follows.
        baseline: Side(baseline.cell, "", 0.0),
    }
    return rule._replace(left=sides[rule.left], right=sides[rule.right])
