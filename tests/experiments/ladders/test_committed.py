"""The table of docs/ladders.md, recomputed from the records without any code of the judge."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[3]
PLAN = json.loads((ROOT / "ladders/PLAN.json").read_text())
NUMBER = r"-?[\d.]+"


def table():
    """{ladder: (effect by size, slope)} of the page, for ladders with three sizes or more.

    The slope is "-" where the networks were not trained, or where the seeds reject a line.
    """
    found = {}
    for line in (ROOT / "docs/ladders.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and cells[1] in PLAN["ladders"] and cells[3].count("(") >= 3:
            effects = re.findall(rf"({NUMBER}): ({NUMBER}) \(", cells[3])
            found[cells[1]] = ({float(size): text for size, text in effects}, cells[4])
    return found


TABLE = table()


def values(side, runs, size):
    """{seed: number} of one side of a quantity at one size, or a number that all seeds share."""
    metric = side["metric"].replace("{size}", f"{size:g}")
    if not metric:
        return side["value"]
    files = (ROOT / f"ladders/records/{name}.json" for name in runs[side["cell"]])
    records = [json.loads(file.read_text()) for file in files]
    if side["is_baseline"]:
        numbers = [record["baselines"][metric] for record in records]
        return numbers[0] if len(numbers) == 1 else dict(enumerate(numbers))
    if len(records) == 1:
        chosen = [member for member in records[0]["members"] if member["chosen"]]
        return {member["seed"]: member["metrics"][metric]["mean"] for member in chosen}
    return dict(enumerate(record["metrics"][metric]["mean"] for record in records))


def effects(ladder, runs, size):
    """Returns the left number minus the right one for each seed, in the order of the seeds."""
    left, right = (values(ladder[side], runs, size) for side in ("left", "right"))
    seeds = sorted(left if isinstance(left, dict) else right)
    of_seed = [[x[s] if isinstance(x, dict) else x for s in seeds] for x in (left, right)]
    return np.subtract(*of_seed)


def decimals(text):
    return len(text.partition(".")[2])


@pytest.mark.parametrize("name", sorted(TABLE))
def test_effects_and_slopes_of_the_page_are_those_of_the_records(name):
    ladder, (effect_of_size, slope) = PLAN["ladders"][name], TABLE[name]
    by_size = {
        rung["size"]: effects(ladder, runs, rung["size"])
        for rung, runs in zip(ladder["rungs"], PLAN["rungs"][name], strict=True)
        if rung["size"] in effect_of_size
    }
    assert len(by_size) == len(effect_of_size) >= 3
    for size, text in effect_of_size.items():
        assert round(np.mean(by_size[size]), decimals(text)) == pytest.approx(float(text))
    if slope == "-":
        return
    slopes = np.polyfit(np.log2(list(by_size)), np.array(list(by_size.values())), 1)[0]
    mean, low, high = re.fullmatch(rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\)", slope).groups()
    last = 10.0 ** -decimals(mean)
    assert slopes.mean() == pytest.approx(float(mean), abs=0.51 * last)
    half = stats.t.ppf(0.975, len(slopes) - 1) * stats.sem(slopes)
    shown = (float(high) - float(low)) / 2
    # The interval of accuracies has the error of the test set, too, so it is wider than the seeds'.
    assert shown >= half - last
    if ladder["left"]["metric"] not in ("accuracy", "bits_per_byte"):
        assert shown == pytest.approx(half, abs=last)


def test_at_least_ten_ladders_have_three_sizes():
    assert len(TABLE) >= 10


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_line_that_the_seeds_reject_has_no_slope_on_the_page(name):
    ladder, (effect_of_size, slope) = PLAN["ladders"][name], TABLE[name]
    values_by_size = [
        effects(ladder, runs, rung["size"])
        for rung, runs in zip(ladder["rungs"], PLAN["rungs"][name], strict=True)
        if rung["size"] in effect_of_size
    ]
    curvatures = np.polyfit(np.log2(list(effect_of_size)), np.array(values_by_size), 2)[0]
    is_rejected = stats.ttest_1samp(curvatures, 0.0).pvalue < 0.05
    assert not (is_rejected and slope != "-")
