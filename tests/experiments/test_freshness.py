"""Each row says what was fresh in its confirmation, and "new seeds" only where there were some."""

import json
import math
from collections import Counter

import pytest

from experiments.cli.flags import ROOT
from experiments.confirmation.freshness import what_was_fresh
from experiments.confirmation.plan import PlannedConfig, PlannedRow
from experiments.ledger.confirmed import ONE_SEED, RECOMPUTED, SAMPLES_AS_EXACT
from experiments.ledger.item import Cell, Item
from experiments.ledger.record import Record
from experiments.ledger.rules import above, computed, of
from tests.experiments.made_up import population

CONFIG = "configs/mixit/retrieval.py:variant=standard"
CELLS = {"A": Cell(CONFIG, scales=("small",))}


def judged_rows():
    return json.loads((ROOT / "confirmation/VERDICTS.json").read_text())["rows"]


def kind(row):
    return next((k for k in (RECOMPUTED, SAMPLES_AS_EXACT, ONE_SEED) if k in row["fresh"]), "seeds")


def test_nineteen_of_the_confirmed_rows_have_no_new_seeds():
    confirmed = [row for row in judged_rows() if row["outcome"] == "confirmed"]
    kinds = Counter(map(kind, confirmed))
    assert kinds == {RECOMPUTED: 11, SAMPLES_AS_EXACT: 4, ONE_SEED: 4, "seeds": 52}
    exact = {row["item"] for row in confirmed if kind(row) == SAMPLES_AS_EXACT}
    assert exact == {"Theorem 2.1", "Theorem 1", "Lemma D.1", "Lemma D.2"}
    assert all("new seeds" not in row["fresh"] for row in confirmed if kind(row) != "seeds")
    judged = [
        row for row in judged_rows() if row["exploratory"] != "cannot tell yet" and row["fresh"]
    ]
    with_error = [row for row in judged if kind(row) in (ONE_SEED, "seeds")]
    assert Counter(row["outcome"] for row in with_error) == {"confirmed": 56, "not confirmed": 4}


def test_a_row_that_prints_new_seeds_has_records_with_these_seeds():
    """Read from the files alone: the plan gives the runs, and their records list the seeds."""
    plan = json.loads((ROOT / "confirmation/PLAN.json").read_text())
    runs = {
        (row["paper"], row["item"]): [run for names in row["cells"].values() for run in names]
        for row in plan["rows"]
    }
    for row in judged_rows():
        if kind(row) != "seeds" or not row["fresh"]:
            continue
        names = runs[row["paper"], row["item"]]
        files = [ROOT / f"confirmation/records/{name}.json" for name in names]
        n_seeds = [len(json.loads(file.read_text())["seeds"]) for file in files]
        n = int(row["fresh"].partition(" new seeds")[0].split()[-1])
        assert n <= max(*n_seeds, len(names)), row["item"]  # over splits, each run is a seed


def test_a_row_that_lacks_a_number_says_so():
    said = {row["item"]: row["problems"] for row in judged_rows() if row["problems"]}
    assert said == {
        "Figure 3, finite size": ["no number 'observed_over_predicted/rho=0.84' in its record."]
    }


def record(score, sem=None, n=1, seeds=1):
    made = Record.from_json(population(f"{CONFIG},scale=small", {}, (0.5,) * seeds))
    made.metrics["constant"] = {"mean": score, "sem": sem, "n": n}
    return made


@pytest.mark.parametrize(
    "rule, new, planned_seeds, expected",
    [
        (above(computed("A", "constant"), 0.1), record(0.3 * (1 + 1e-9)), 0, RECOMPUTED),
        (above(computed("A", "constant"), 0.1), record(0.3001), 0, SAMPLES_AS_EXACT),
        (
            above(of("A", "constant"), 0.1),
            record(0.4, 0.01, 500),
            0,
            f"{ONE_SEED}, its own sample of 500",
        ),
        (above(of("A"), 0.1), record(0.3, seeds=7), 7, "7 new seeds"),
    ],
)
def test_a_constant_a_sample_and_seeds_are_told_apart(rule, new, planned_seeds, expected):
    item = Item("Table 1", "c.", CELLS, {"rule": rule})
    row = PlannedRow("p", "Table 1", "", "held", "rule", 5, "", "A", {"A": ("run",)})
    runs = {"run": PlannedConfig(CONFIG, {}, planned_seeds, 0, "", 1.0)}
    before = {"A": record(0.3)}
    assert what_was_fresh(row, item, runs, {"A": new}, before) == expected


def test_a_number_without_a_record_to_compare_is_no_constant():
    item = Item("Table 1", "c.", CELLS, {"rule": above(computed("A", "constant"), 0.1)})
    row = PlannedRow("p", "Table 1", "", "held", "rule", 5, "", "A", {"A": ("run",)})
    runs = {"run": PlannedConfig(CONFIG, {}, 0, 0, "", 1.0)}
    assert what_was_fresh(row, item, runs, {"A": record(0.3)}, {}) == SAMPLES_AS_EXACT
    lacking = {"A": record(math.nan)}
    del lacking["A"].metrics["constant"]
    assert what_was_fresh(row, item, runs, lacking, {}) == RECOMPUTED
