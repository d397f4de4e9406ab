"""Every verdict, computed again from the files in results/ with NumPy and SciPy alone.

Only the matching of cells to files and the rules (as data) come from the ledger. The arithmetic
below is written again after docs/verdicts.md. The rows of the first plan are judged by its first
judge, on the records of confirmation/, those of the second plan by the second judge.
"""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, special

from experiments.cli.flags import ROOT
from experiments.papers import PAPERS

SHARES = ("accuracy", "exact_match", "in_context", "p_")


def number(mean, sem=0.0, n=0, **more):
    values = {"test": 0.0, "is_share": False, "by_seed": {}, "trials": 0} | more
    return SimpleNamespace(mean=mean, sem=sem, n=n, **values)


def chosen_members(record):
    return [m for m in record["members"] if m.get("chosen", True)]


def share(outcomes):
    outcomes = np.array(outcomes, float)
    n = len(outcomes)
    sem = outcomes.std(ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return number(outcomes.mean(), sem, n, is_share=True, trials=n)


def metric_number(record, metric, trials):
    value, members = record["metrics"][metric], chosen_members(record)
    scores = {m.get("seed", 0): (m.get("metrics") or {}).get(metric) for m in members}
    scores = {s: v for s, v in scores.items() if v and v["mean"] is not None}
    sem = math.nan if value["sem"] is None else value["sem"]
    sem = 0.0 if abs(sem) < 1e-12 * abs(value["mean"]) else sem
    by_seed = {seed: score["mean"] for seed, score in scores.items()}
    if any(m.get("diverged_at") is not None for m in members):
        sem, by_seed = math.nan, {}
    tests = [
        max(v["sem"], (v["sem"] == 0) / v["n"])
        for v in scores.values()
        if v.get("sem") is not None and v.get("n")
    ]
    test = float(np.sqrt(np.mean(np.square(tests)))) if tests else 0.0
    mean, n = value["mean"], value["n"] or 1
    result = number(mean, sem, n, test=test, is_share=metric.startswith(SHARES), by_seed=by_seed)
    is_binary = n > 1 and 0 <= mean <= 1 and not test
    if is_binary and math.isclose(sem**2 * (n - 1), mean * (1 - mean), rel_tol=1e-6, abs_tol=1e-12):
        result.trials = n * (trials if mean in (0, 1) else 1)
    return result


def subtract(left, right):
    shared = sorted(left.by_seed.keys() & right.by_seed.keys())
    test = math.hypot(left.test, right.test) if left.is_share else 0.0
    mean = left.mean - right.mean
    if len(shared) < 2 or not len(shared) == left.n == right.n:
        n = min(left.n, right.n)
        sem = math.hypot(left.sem, right.sem)
        return number(mean, sem, n, test=test, is_share=left.is_share)
    pairs = {s: left.by_seed[s] - right.by_seed[s] for s in shared}
    deviations = np.array([*pairs.values()]) - mean
    sem = math.sqrt(np.sum(deviations**2) / (len(shared) - 1) / len(shared))
    return number(mean, sem, len(shared), test=test, is_share=left.is_share, by_seed=pairs)


def second_judge(record, side, value):
    """Returns a metric as the second judge counts it."""
    if side.metric.startswith("ks/"):
        return number(
            value.mean, test=1.358 / 1.63 * record["metrics"]["ks_noise"]["mean"] / 1.959964
        )
    if record["config"]["recipe"] == "posterior" and not side.is_exact:
        return number(value.mean, math.nan, 1)
    if side.trials > 1 and value.mean in (0, 1):
        value.sem, value.test, value.trials = 0.0, 1 / side.trials, 0
    return value


def side_number(files, side, first=False):
    """Returns the number of a rule's side; None without its records."""
    if not side.metric:
        return number(side.value)
    if any(cell not in files for cell in side.cells):
        return None
    if side.among:
        cells = [side_number(files, side._replace(cell=c, among=()), first) for c in side.among]
        means = np.array([cell.mean for cell in cells])
        test = math.sqrt(sum(cell.test**2 for cell in cells)) / len(cells)
        sem = means.std(ddof=1) / math.sqrt(len(cells))
        return number(means.mean(), sem, len(cells), test=test, is_share=cells[0].is_share)
    if side.minus:
        both = (side_number(files, side._replace(cell=c, minus=""), first) for c in side.cells)
        return subtract(*both)
    record = files[side.cell]
    if side.metric == "seeds that diverged":
        return share([m.get("diverged_at") is not None for m in chosen_members(record)])
    if side.reached is not None:
        values = metric_number(record, side.metric, 1).by_seed.values()
        return share([value >= side.reached for value in values])
    if side.is_baseline:
        return number(record["baselines"][side.metric])
    if side.is_exact and record["metrics"][side.metric]["sem"] is None:
        value = number(record["metrics"][side.metric]["mean"])
    else:
        value = metric_number(record, side.metric, side.trials if first else 1)
    return value if first else second_judge(record, side, value)


def scaled(value, times):
    by_seed = {seed: times * v for seed, v in value.by_seed.items()}
    more = {"mean": times * value.mean, "sem": times * value.sem, "test": times * value.test}
    return SimpleNamespace(**vars(value) | more | {"by_seed": by_seed})


def binomial_distances(value, tail):
    if not value.trials:
        return 0.0, 0.0
    hits, misses = round(value.mean * value.trials), value.trials - round(value.mean * value.trials)
    low = special.betaincinv(hits, misses + 1, tail) if hits else 0.0
    high = special.betaincinv(hits + 1, misses, 1 - tail) if misses else 1.0
    return value.mean - low, high - value.mean


def interval(left, right, level):
    """Returns the (low, high) interval of left - right."""
    tail, gap = (1 - level) / 2, left.mean - right.mean
    test = math.hypot(left.test, right.test)
    if left.n and right.n and not left.is_share:
        test = 0.0  # two losses on the same examples
    paired = subtract(left, right)
    sides = [paired] if paired.by_seed else [left, right]
    sems = np.array([(s.sem, s.n) for s in sides if s.n and not s.trials]).reshape(-1, 2)
    if np.isnan(sems[:, 0]).any():
        return -math.inf, math.inf
    variances, freedoms = sems[:, 0] ** 2, np.maximum(sems[:, 1] - 1, 1)
    spread = np.sum(variances**2 / freedoms)
    freedom = np.sum(variances) ** 2 / spread if spread else math.inf
    t = special.stdtrit(freedom, 1 - tail) if spread else special.ndtri(1 - tail)
    parts = [t * math.sqrt(variances.sum()), special.ndtri(1 - tail) * test]
    low, high = [*parts], [*parts]
    if not paired.by_seed:
        (left_low, left_high), (right_low, right_high) = (
            binomial_distances(side, tail) for side in (left, right)
        )
        low, high = [*low, left_low, right_high], [*high, left_high, right_low]
    return gap - math.hypot(*low), gap + math.hypot(*high)


def p_value(left, right, border):
    """Returns the error rate at which an end of the interval lies on the border."""
    low, high = interval(left, right, 0.95)
    if low == high:
        return 0.0
    end = 0 if left.mean - right.mean > border else 1

    def distance(log_p):
        return interval(left, right, 1 - math.exp(log_p))[end] - border

    ends = [math.log(1e-12), math.log(1 - 1e-9)]
    signs = [math.copysign(1, distance(x)) for x in ends]
    if signs[0] == signs[1]:
        return 1e-12
    return math.exp(optimize.brentq(distance, *ends, xtol=1e-9))


def judge(rule, left, right):
    low, high = interval(left, right, 0.95)
    gap, by = left.mean - right.mean, rule.by
    if rule.within:
        holds, fails = -by <= low and high <= by, low > by or high < -by
        return "held" if holds else "did not hold" if fails else "cannot tell yet"
    fails = high < by or (low == high and gap <= by)
    return "held" if low > by else "did not hold" if fails else "cannot tell yet"


def p_of_rule(rule, left, right):
    """Returns the p value of the nearer border; inside of a range, of both borders."""
    if math.isinf(interval(left, right, 0.95)[0]):
        return math.nan
    if not rule.within:
        return p_value(left, right, rule.by)
    both = [p_value(left, right, border) for border in (rule.by, -rule.by)]
    return max(both) if abs(left.mean - right.mean) <= rule.by else min(both)


def verdict_of_row(verdicts, p_of_failures, sampled):
    """Returns the verdict. A failure needs p times the number of sampled rules below .05."""
    if set(verdicts) <= {"not run"}:
        return "not run"
    if p_of_failures and min(p_of_failures) * max(sampled, 1) <= 0.05:
        return "did not hold"
    return "held" if set(verdicts) == {"held"} else "cannot tell yet"


def with_correction(row, verdict):
    """Returns the verdict after the correction of the primary rule of a counted claim."""
    primary = next((f for f in row.findings if f.text == row.item.primary_rule), None)
    is_lost = row.item.is_counted and primary is not None and primary.q > 0.05
    return "cannot tell yet" if is_lost and verdict in ("held", "did not hold") else verdict


def mismatches(row, files):
    """Returns the differences between a row and its recomputation."""
    verdicts, failures, sampled = [], [], 0
    for (text, rule), finding in zip(row.item.rules.items(), row.findings, strict=True):
        sides = [side_number(files, side) for side in rule.sides]
        if None in sides:
            verdicts.append("not run")
            continue
        left, right = (scaled(n, side.times) for n, side in zip(sides, rule.sides, strict=True))
        low, high = interval(left, right, 0.95)
        verdicts.append(judge(rule, left, right))
        if low < high and not math.isinf(high):
            sampled += 1
        p = p_of_rule(rule, left, right)
        if verdicts[-1] == "did not hold":
            failures.append(p)
        if p > 1e-11 and p != pytest.approx(finding.p, rel=1e-4, nan_ok=True):
            yield f"{text}: p = {p}, the ledger has {finding.p}"
        if verdicts[-1] != finding.verdict:
            yield f"{text}: {verdicts[-1]}, the ledger has {finding.verdict}"
        expected = (finding.compared.low, finding.compared.high)
        if (low, high) != pytest.approx(expected, rel=1e-7, abs=1e-9):
            yield f"{text}: [{low}, {high}], the ledger has {expected}"
    verdict = with_correction(row, verdict_of_row(verdicts, failures, sampled))
    if row.item.rules and verdict != row.verdict != "not implemented":
        yield f"{verdict}, the ledger has {row.verdict}"


def test_every_verdict_follows_from_the_files_of_its_records(real_rows):
    rows = real_rows
    names = {record.where for row in rows for record in row.records.values()}
    contents = {name: json.loads((ROOT / name).read_text()) for name in names}
    wrong = []
    for row in rows:
        files = {cell: contents[record.where] for cell, record in row.records.items()}
        wrong += [f"{row.paper.key} {row.item.name}: {line}" for line in mismatches(row, files)]
    assert not wrong, "\n".join(wrong)
    assert sum(len(row.findings) for row in rows) > 400


def holm(p):
    """Returns p values that keep the chance of any error of all of them."""
    p, order = np.array(p), np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def benjamini_hochberg(p):
    """Returns p values that keep the expected share of errors."""
    p, order = np.array(p), np.argsort(p, kind="stable")
    ratios = p[order] * len(p) / np.arange(1, len(p) + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(ratios[::-1])[::-1]
    return np.minimum(adjusted, 1)


def test_every_q_value_follows_from_the_p_values(real_rows):
    primary, others = [], []
    for row in real_rows:
        for text, finding in zip(row.item.rules, row.findings, strict=True):
            is_primary = row.item.is_counted and text == row.item.primary_rule
            if finding.p > 0:
                (primary if is_primary else others).append(finding)
    assert len(primary) > 60 and len(others) > 200
    for findings, method in ((primary, holm), (others, benjamini_hochberg)):
        q = [finding.q for finding in findings]
        np.testing.assert_allclose(q, method([finding.p for finding in findings]), rtol=1e-9)


FIRST, SECOND = "confirmation", "confirmation/second"  # plans, each with its judge


def fresh_files(plan, row):
    """Returns {cell: content} of a planned row, its members cut to the seeds of the plan."""
    files = {}
    for cell, names in row["cells"].items():
        for i, name in enumerate(names):
            file = ROOT / plan / f"records/{name}.json"
            if file.exists():
                content = json.loads(file.read_text())
                files[f"{cell}, replica {i + 1}" if i else cell] = first_seeds(
                    content, row["seeds"]
                )
    return files


def first_seeds(record, n):
    """Returns a record of the first n chosen members alone."""
    members = chosen_members(record)
    if len(members) <= n:
        return record
    metrics = {}
    for name in record["metrics"]:
        scores = [m["metrics"][name]["mean"] for m in members[:n] if name in m["metrics"]]
        values = np.array([score for score in scores if score is not None])
        if len(values):
            sem = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
            metrics[name] = {"mean": values.mean(), "sem": sem, "n": len(values)}
    return record | {"members": members[:n], "metrics": metrics}


def confirmation_of(row, item, files, first):
    """Returns the verdict of a planned row and of each of its rules, by the first judge or not."""
    verdicts, failures, sampled = {}, [], 0
    for text, rule in item.rules.items():
        sides = []
        for side in rule.sides:
            among = [
                f"{c}, replica {i + 1}" if i else c
                for c in side.among
                for i in range(len(row["cells"][c]))
            ]
            try:
                sides.append(side_number(files, side._replace(among=tuple(among)), first))
            except KeyError:  # a record lacks the metric
                sides.append(None)
        if None in sides:
            verdicts[text] = "not run"
            continue
        left, right = (scaled(n, side.times) for n, side in zip(sides, rule.sides, strict=True))
        low, high = interval(left, right, 0.95)
        verdicts[text] = judge(rule, left, right)
        sampled += low < high and not math.isinf(high)
        if verdicts[text] == "did not hold":
            failures.append(p_of_rule(rule, left, right))
    return verdict_of_row(verdicts.values(), failures, sampled), verdicts


@pytest.mark.parametrize("plan, least", [(FIRST, 300), (SECOND, 30)])
def test_every_fresh_verdict_follows_from_the_records_of_the_plan(plan, least):
    planned = json.loads((ROOT / plan / "PLAN.json").read_text())
    judged = json.loads((ROOT / plan / "VERDICTS.json").read_text())
    said = {(row["paper"], row["item"]): row for row in judged["rows"]}
    wrong, n_rules = [], 0
    for row in planned["rows"]:
        items = {item.name: item for item in PAPERS[row["paper"]].items}
        item = items[row["item"]]
        primaries = (row["primary"], *said[row["paper"], row["item"]]["rules"])
        version = next(i for i in (item, *item.earlier) if {*primaries} == {*i.rules})
        verdict, rules = confirmation_of(row, version, fresh_files(plan, row), plan == FIRST)
        expected = said[row["paper"], row["item"]]
        n_rules += sum(v != "not run" for v in rules.values())
        wrong += [
            f"{row['item']}: {text}: {verdict}, said {expected['rules'][text][0]}"
            for text, verdict in rules.items()
            if verdict != expected["rules"][text][0]
        ]
        if verdict != expected["verdict"]:
            wrong.append(f"{row['item']}: {verdict}, said {expected['verdict']}")
    assert not wrong, "\n".join(wrong)
    assert n_rules >= least


@pytest.mark.parametrize("plan, rows", [(FIRST, 116), (SECOND, 18)])
def test_every_confirmation_follows_from_both_verdicts(plan, rows):
    planned = json.loads((ROOT / plan / "PLAN.json").read_text())
    judged = json.loads((ROOT / plan / "VERDICTS.json").read_text())
    recorded = {file.stem for file in (ROOT / plan / "records").glob("*.json")}
    runs = {
        (row["paper"], row["item"]): {run for runs in row["cells"].values() for run in runs}
        for row in planned["rows"]
    }
    wrong = []
    for row in judged["rows"]:
        before, after = row["exploratory"], row["verdict"]
        if not runs[row["paper"], row["item"]] <= recorded:
            expected = "not yet run"
        elif before == "cannot tell yet":
            expected = "still open" if after == before else f"decided: {after}"
        elif after == "cannot tell yet":
            expected = "not confirmed"
        else:
            expected = "confirmed" if after == before else "reversed"
        if row["outcome"] != expected:
            wrong.append(f"{row['paper']} {row['item']}: {expected}, not {row['outcome']}")
    assert len(judged["rows"]) == len(runs) == rows and not wrong, wrong


def test_the_recomputation_notices_a_changed_number():
    sure = number(0.93, 0.001, 8)
    assert judge(SimpleNamespace(within=False, by=0.9), sure, number(0.0)) == "held"
    wider = number(0.93, 0.02, 8)
    assert judge(SimpleNamespace(within=False, by=0.9), wider, number(0.0)) == "cannot tell yet"
    assert interval(share([1] * 5), number(0.0), 0.95)[0] == pytest.approx(0.478, abs=1e-3)
    assert verdict_of_row(["held", "held", "did not hold"], [0.02], 3) == "cannot tell yet"
