"""The order of the trainings, and the share of wrong verdicts after them, on planted scores."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.studies import budget
from jaxformer.studies.anatomy import judge, retraining, sentences
from jaxformer.studies.anatomy.parts import FROZEN, ONLY, REMOVED, WHOLE, WHOLE_NETWORK, Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Result, Study, run
from jaxformer.studies.anatomy.training import Trained
from jaxformer.training.metrics import Mean

TRIVIAL, BEST = 0.2, 0.9
SPREAD, EXAMPLES = 0.01, 10**7  # over seeds; of the test set, whose error is negligible
N_STUDIES = 60
RATES = (3e-3, 1e-2, 1e-3)
VARIANTS = [Variant("MLP", FROZEN), Variant("attention", REMOVED), Variant("embedding", ONLY)]


def study_of(variants, rates=(1e-2,), max_seeds=8) -> Study:
    """Returns a study of a task whose best trivial predictor has the score TRIVIAL."""
    drawn = SimpleNamespace(baselines={"guess": TRIVIAL})
    subject: Any = SimpleNamespace(
        task=SimpleNamespace(chosen_by="accuracy"),
        network=SimpleNamespace(steps=10),
        rates=rates,
        drawn=drawn,
    )
    return Study(subject, variants, Store(None), max_seeds)


def complete(study, score_of, with_times=False) -> list[tuple]:
    """Trains everything that is due with planted scores; returns the order."""
    order = []
    for member in (member for stage in study.stages() for member in stage):
        variant, seed, rate, times = member
        score = float(score_of(variant, seed, rate, *([times] if with_times else [])))
        mean = {"accuracy": Mean(score, (score * (1 - score) / EXAMPLES) ** 0.5, EXAMPLES)}
        study.keep(Result(member, Trained(mean, mean, [], None, 1.0), None))
        order.append((variant.name, seed, rate, *([times] if with_times else [])))
    return order


def test_an_executor_that_skips_members_is_a_one_line_error():
    """It must not look like a budget that was used up."""
    with pytest.raises(UserError, match="the executor trained 0 of 2 members"):
        run(study_of(VARIANTS, (1e-2, 3e-2)), 1e9, train_all=lambda members: iter(()))


def planted(member) -> Result:
    mean = {"accuracy": Mean(BEST, 1e-4, EXAMPLES)}
    return Result(member, Trained(mean, mean, [], None, 1.0), None)


@pytest.mark.parametrize(
    "train_all, words",
    [
        (lambda members: [3], "one result of `Study.train` for each member, got 3"),
        (lambda members: [planted(members[0])] * 2, "for each member, got Member"),
        (lambda members: [planted(members[0]._replace(seed=7))], "for each member, got Member"),
    ],
)
def test_an_executor_with_other_results_is_a_one_line_error(train_all, words):
    with pytest.raises(UserError, match=words) as error:
        run(study_of(VARIANTS, (1e-2, 3e-2)), 1e9, train_all=train_all)
    assert "\n" not in str(error.value)


def test_what_an_executor_raises_ends_the_study_and_the_members_before_are_resumed(tmp_path):
    made = []

    def until(limit):
        def train_all(members):
            for member in members:
                if len(made) == limit:
                    raise ConnectionError("the cluster is gone")
                made.append(member)
                yield planted(member)

        return train_all

    def study():
        new = study_of(VARIANTS, (1e-2, 3e-2))
        new.store = Store(tmp_path)
        return new

    with pytest.raises(ConnectionError, match="the cluster is gone"):
        run(study(), 1e9, train_all=until(3))
    assert run(study(), 1e9, train_all=until(-1))
    assert len({*made}) == len(made) > 3, "no member is trained twice"


def test_a_first_table_comes_before_seeds_and_other_rates():
    rates = 3e-3, 1e-2
    study = study_of(VARIANTS, rates)

    def score(variant, seed, rate, times):
        best_rate = 0.01 * (rate == 1e-2)
        loss = {WHOLE: 0.0, "MLP": 0.0, "attention": 0.5, "embedding": 0.6}[variant.part]
        return BEST - loss + best_rate + 0.001 * seed

    order = complete(study, score, with_times=True)
    names = [variant.name for variant in VARIANTS]
    assert order[:5] == [
        *((WHOLE, 0, rate, 1) for rate in rates),
        *((name, 0, 1e-2, 1) for name in names),
    ]
    # The part that loses is tried at the other rate, and above it, since the best one is an edge.
    assert order[5:7] == [("attention, removed", 0, rate, 1) for rate in (3e-3, 0.033)]
    assert ("MLP, frozen", 0, 3e-3, 1) not in order and ("embedding, only", 0, 3e-3, 1) in order
    assert {seed for name, seed, *_ in order if name == WHOLE} == {0, 1, 2}
    # Only a part that is worse runs again with more steps, and those do not help it further.
    again = [(name, times) for name, _, _, times in order if times > 1]
    assert {*again} == {("attention, removed", 2), ("embedding, only", 2)}
    assert len(order) == len({*order}) and study.table().is_decided
    outcomes = [row.outcome for row in study.table().rows]
    assert outcomes == [judge.NO_WORSE, judge.WORSE, judge.WORSE]


def test_the_first_table_needs_every_variant():
    study = study_of(VARIANTS)
    seen = []
    for member in (member for stage in study.stages() for member in stage):
        seen.append(study.has_first_table)
        mean = {"accuracy": Mean(BEST, 0.01, EXAMPLES)}
        study.keep(Result(member, Trained(mean, mean, [], None, 1.0), None))
    assert seen[: 1 + len(VARIANTS)] == [False] * (1 + len(VARIANTS)) and all(seen[4:])


def test_at_most_5_percent_of_the_verdicts_are_wrong():
    """Seeds are added while a verdict is open, and most parts lie at the border itself."""
    rng = np.random.default_rng(0)
    border = judge.MARGIN * (BEST - TRIVIAL)
    losses = [border] * 9 + [0.0, 0.3, 0.6]  # a verdict on one of the first nine is wrong
    variants = [Variant(f"part {i}", FROZEN) for i in range(len(losses))]
    wrong = decided = missed = 0
    for _ in range(N_STUDIES):
        base = BEST + SPREAD * rng.normal(size=8)

        def score(variant, seed, rate, base=base):
            if variant == WHOLE_NETWORK:
                return base[seed]
            loss = losses[int(variant.part.split()[1])]
            if rate != RATES[0]:
                loss += 0.1  # the best rate lies inside the grid
            return base[seed] - loss + SPREAD * rng.normal()

        study = study_of(variants, RATES)
        complete(study, score)
        outcomes = [row.outcome for row in study.table().rows]
        assert outcomes[-2:] == [judge.WORSE] * 2, outcomes
        wrong += sum(outcome != judge.OPEN for outcome in outcomes[:9])
        missed += outcomes[9] == judge.WORSE
        decided += sum(outcome != judge.OPEN for outcome in outcomes)
    assert decided > 2 * N_STUDIES and missed == 0
    assert wrong <= 0.05 * decided, (wrong, decided)


@pytest.mark.parametrize("is_here, n_trained", [(True, 7), (False, 1)])
def test_a_budget_counts_the_processor_so_that_a_busy_machine_trains_as_much(
    monkeypatch, is_here, n_trained
):
    """Each training takes 1 s of the processor and 30 s of the clock."""
    trained = []
    clock = SimpleNamespace(
        monotonic=lambda: 30.0 * len(trained), process_time=lambda: 1.0 * len(trained)
    )
    monkeypatch.setattr(budget, "time", clock)

    def train(member):
        trained.append(member)
        return planted(member)

    study = study_of(VARIANTS)
    monkeypatch.setattr(study, "train", train)
    elsewhere = None if is_here else lambda members: map(train, members)
    assert not run(study, 7.5, train_all=elsewhere)
    assert len(trained) == n_trained


SOLVED = 0.97  # the score of the whole network in the plants
SOLUTIONS = {seed: SOLVED + 0.002 * (seed % 3) for seed in range(8)}


def plant(score_of, max_seeds=8, rates=RATES, best=SOLUTIONS):
    """The row of a variant with planted scores beside a whole network that solves the task."""
    variant = Variant("attention", REMOVED)
    study = study_of([variant], rates, max_seeds)

    def score(trained, seed, rate, times):
        if trained == WHOLE_NETWORK:
            return best[seed]
        return score_of(seed, rate, times)

    order = complete(study, score, with_times=True)
    (row,) = study.table().rows
    return row, [sentence.text for sentence in sentences.sentences(study.table())], order


def noise(seed):
    return 0.002 * ((3 * seed + 1) % 4)


def test_a_variant_that_is_dead_at_the_rate_of_the_whole_network_is_judged_at_its_own():
    row, texts, _ = plant(lambda seed, rate, _: SOLUTIONS[seed] if rate == 1e-2 else TRIVIAL)
    assert (row.outcome, row.cell.rate) == (judge.NO_WORSE, 1e-2)
    assert texts[0].startswith("Attention can go")


def test_a_variant_whose_best_rate_lies_beyond_the_grid_is_judged_there():
    row, _, _ = plant(lambda seed, rate, _: 0.5 + 3 * min(rate, 0.033) + noise(seed))
    assert (row.outcome, row.cell.rate) == (judge.WORSE, 0.033)
    assert max(row.cell.rates) == 0.11


def test_a_variant_that_was_stopped_early_is_judged_with_its_own_steps():
    """Parity by random mixing: .4 after 400 steps and 1 after 1,600."""
    needed = {1: 0.4, 2: 0.6, 4: SOLVED + 0.01}
    best = 3e-3
    row, texts, _ = plant(
        lambda seed, rate, times: needed[times] + noise(seed) - 0.1 * (rate != best)
    )
    assert (row.outcome, row.cell.steps) == (judge.NO_WORSE, 40)
    assert len(texts) == 1 and texts[0].startswith("Attention can go: 98.27 ")
    assert texts[0].endswith(" %, with 40 steps against 10.")


def test_a_variant_that_still_gains_with_four_times_the_steps_is_not_trained():
    needed = {1: 0.4, 2: 0.5, 4: 0.6}
    row, texts, _ = plant(
        lambda seed, rate, times: needed[times] + noise(seed) - 0.1 * (rate != 3e-3)
    )
    assert (row.word, texts) == ("not trained (4 x the steps still help)", [])


def test_a_variant_of_one_rate_is_not_trained_and_costs_no_longer_runs():
    row, texts, order = plant(lambda seed, *_: 0.5 + noise(seed), rates=(3e-3,))
    assert row.word == "not trained (one learning rate tried, 3 are needed)" and not texts
    assert {times for *_, times in order} == {1}


def test_a_variant_in_two_modes_is_counted():
    row, texts, _ = plant(lambda seed, *_: SOLVED if seed % 2 else TRIVIAL + noise(seed))
    assert row.word == "two modes (4 of 8 seeds solve it)" and not texts


def test_a_variant_at_a_ceiling_is_said_to_be_unnecessary_for_this_task_alone():
    perfect = dict.fromkeys(range(8), 0.999)
    row, texts, _ = plant(lambda seed, *_: 0.9985 + 0.0001 * (seed % 2), best=perfect)
    assert row.word == "no worse, at a ceiling"
    assert texts[0].startswith("Attention is not needed to solve this task at this size: 99.8")


def test_a_variant_that_learns_nothing_in_four_times_the_steps_does_not_learn():
    row, texts, order = plant(lambda seed, rate, times: TRIVIAL - 0.01 + noise(seed))
    assert (row.outcome, row.word) == (judge.WORSE, "does not learn")
    assert texts[0].startswith("Without attention the network learns nothing: ")
    assert {seed for name, seed, _, times in order if times == 4} == {0, 1, 2, 3, 4}


def test_without_its_longer_runs_a_loser_is_not_trained_within_the_budget():
    study = study_of([Variant("attention", REMOVED)], RATES)
    for stage in study.stages():
        for member in stage:
            if member.times == 1:
                loss = 0.4 * (member.variant != WHOLE_NETWORK) + 0.1 * (member.rate != 3e-3)
                mean = {"accuracy": Mean(SOLVED - loss + noise(member.seed), 1e-4, EXAMPLES)}
                study.keep(Result(member, Trained(mean, mean, [], None, 1.0), None))
    (row,) = study.table().rows
    assert row.word == "not trained within the budget"
    line = retraining.stop_line(study, 0, False, None)
    assert line == (
        "the budget is used up: 0 of 1 comparisons are open, and 1 lost but were not trained "
        "within the budget."
    )
