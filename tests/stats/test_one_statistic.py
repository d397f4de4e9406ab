"""The ledger, litmus, compare, sweep tables and reruns give one verdict on the same numbers."""

from pathlib import Path

import numpy as np

from experiments.ledger import compare_records
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, above, of
from experiments.schedule import sweep_table
from jaxformer.io.atomic_files import json_value
from jaxformer.stats.differences import ABOVE, BELOW, UNDECIDED
from jaxformer.stats.members import record_number
from jaxformer.studies import compare
from jaxformer.studies.litmus import rule
from jaxformer.training.metrics import over_seeds
from tests.experiments.schedule.test_planning import A, record

TEST_SET = {"sem": 1e-4, "n": 10_000}  # so large that the seeds decide


def values(mean, sem, n):
    """Returns n values with exactly this mean and standard error."""
    raw = np.arange(n) - (n - 1) / 2
    return [*(mean + sem * raw / (raw.std(ddof=1) / n**0.5))]


CASES = {
    "2 seeds, 2.5 standard errors": (values(0.535, 0.01, 2), values(0.5, 0.01, 2), 0),
    "3 seeds, 2.5 standard errors": (values(0.535, 0.01, 3), values(0.5, 0.01, 3), 0),
    "5 seeds, 2.5 standard errors": (values(0.535, 0.01, 5), values(0.5, 0.01, 5), 1),
    "5 seeds, the other way": (values(0.5, 0.01, 5), values(0.535, 0.01, 5), -1),
    "one seed": ([0.9], [0.5], 0),
    "no difference": (values(0.5, 0.01, 5), values(0.5, 0.02, 5), 0),
}


def result(seed_values, first_seed=0, rate=0.01):
    """Returns a finished training in the form of result.json."""
    members = [
        {
            "seed": first_seed + i,
            "learning_rate": rate,
            "chosen": True,
            "validation_accuracy": {"mean": value} | TEST_SET,
            "metrics": {"accuracy": {"mean": value} | TEST_SET},
        }
        for i, value in enumerate(seed_values)
    ]
    return {
        "seeds": [member["seed"] for member in members],
        "members": members,
        "metrics": {"accuracy": json_value(over_seeds(seed_values))},
        "baselines": {"guess": 0.0},
    }


def ledger_verdict(left, right):
    numbers = {
        name: record_number(r["metrics"]["accuracy"], r["members"], "accuracy")
        for name, r in {"left": left, "right": right}.items()
    }
    finding = above(of("left"), of("right")).judge("", lambda side: numbers[side.cell])
    return {HELD: 1, NOT_HELD: -1, OPEN: 0}[finding.verdict]


def tuned(run):
    """Returns the run with two more rates, one on each side, that are worse."""
    others = [
        member | {"learning_rate": rate, "chosen": False, "metrics": {"accuracy": {"mean": 0.1}}}
        for member in run["members"]
        for rate in (1e-3, 0.1)
    ]
    return run | {"members": [*run["members"], *others], "steps": 10}


def litmus_verdict(left, right):
    """Returns the verdict of litmus for Standard above MixiT, from both orders."""

    def helps(standard, mixit):
        trainings = {
            name: rule.Runs({1: tuned(run), 2: run}).training(0.0)
            for name, run in {"standard": standard, "mixit": mixit}.items()
        }
        # The trivial predictor is far below both if their own errors are known.
        return rule.judge("task", trainings, "guess").verdict == rule.HELPS

    return helps(left, right) - helps(right, left)


def compare_verdict(left, right):
    difference = compare.metric_difference(right, left, "accuracy")
    return {ABOVE: 1, BELOW: -1, UNDECIDED: 0}[difference.verdict()]


def sweep_verdict(left, right):
    """Returns the verdict of a sweep: whether a row differs significantly from the best."""
    rows = [
        row
        for rate, one in ((0.01, left), (0.02, right))
        for row in sweep_table.rows_of_result(
            "model", {}, one | {"members": at(one, rate)}, Path("a")
        )
    ]
    for sign, (best, other) in {1: rows, -1: rows[::-1]}.items():
        if best.fitness > other.fitness:
            return 0 if sweep_table.undecided(best, rows) else sign
    return 0


def at(one, rate):
    return [member | {"learning_rate": rate} for member in one["members"]]


def rerun_verdict(left, right):
    def as_record(one):
        return Record.from_json(vars(record(A)) | one | {"schema": 2, "environment": {}})

    pair = compare_records.compare_metric("a", "accuracy", as_record(left), as_record(right), None)
    return (pair.verdict == compare_records.DIFFERS) * (1 if pair.difference.gap > 0 else -1)


VERDICTS = (ledger_verdict, litmus_verdict, compare_verdict, sweep_verdict, rerun_verdict)


def test_five_commands_give_one_verdict_on_the_same_numbers():
    """The right run has other seeds, because evenly spaced values have no paired spread."""
    wrong = []
    for name, (left, right, expected) in CASES.items():
        results = result(left), result(right, first_seed=5)
        for verdict in VERDICTS:
            if (got := verdict(*results)) != expected:
                wrong.append(f"{name}: {verdict.__name__} gives {got}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_shared_seeds_are_paired_by_all_five():
    left, right = [0.91, 0.72, 0.53], [0.90, 0.71, 0.5205]
    wrong = []
    for shift, expected in ((0, 1), (5, 0)):  # paired, and the same values of other seeds
        results = result(left), result(right, shift)
        for verdict in VERDICTS:
            if (got := verdict(*results)) != expected:
                wrong.append(f"shift {shift}: {verdict.__name__} gives {got}")
    assert not wrong, "\n".join(wrong)


def test_compare_says_of_the_loser_whether_it_was_trained():
    high, low = (result(values(mean, 0.001, 5)) | {"steps": 10} for mean in (0.9, 0.5))
    for pair in ((high, low), (low, high)):
        assert compare.metric_control(*pair, "accuracy").startswith("not trained (one learning")
    word = compare.metric_control(high, tuned(low), "accuracy")
    assert "cannot tell whether it ended" in word
    assert compare.metric_control(high, low, "perplexity") == ""
