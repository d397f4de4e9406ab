"""The smallest set of trained parts and the smallest network, found in planted scores."""

import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxformer.stats.differences import Number
from jaxformer.studies.anatomy import parts as network_parts
from jaxformer.studies.anatomy.parts import (
    FROZEN,
    REMOVED,
    WHOLE,
    WHOLE_NETWORK,
    Part,
    Variant,
)
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.smallest import Elimination, Step, candidates, search
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Result, Study
from jaxformer.studies.anatomy.training import Trained, is_change
from jaxformer.training.metrics import Mean
from jaxformer.training.shapes import shapes_of
from tests.experiments.test_atlas import TASKS, decoder

TRIVIAL, BEST, SPREAD = 0.2, 0.9, 0.002
SIZES = {"needed": 100, "one": 400, "other": 300, "idle": 200}
PARTS = [Part(name, f"{name}/.*", f"{name}/.*", layer=None) for name in SIZES]


class Planted:
    """A study whose scores follow from the parts that are still trained."""

    def __init__(self, score_of, folder=None, seed=0, max_seeds=8):
        shapes = {name: {"kernel": np.zeros(size)} for name, size in SIZES.items()}
        network = SimpleNamespace(
            shapes=shapes, partition=SimpleNamespace(label=lambda path: "train"), steps=10
        )
        subject: Any = SimpleNamespace(
            task=SimpleNamespace(chosen_by="accuracy"),
            network=network,
            rates=(1e-2,),
            drawn=SimpleNamespace(baselines={"guess": TRIVIAL}),
            parameters=lambda: sum(SIZES.values()),
        )
        self.study = Study(subject, [], Store(folder), max_seeds)
        self.score_of, self.random, self.trained = score_of, np.random.default_rng(seed), []
        self.study.keep(next(self.train_all([Member(WHOLE_NETWORK, 0, 1e-2)])))

    def train_all(self, members):
        for member in members:
            variant, *_ = member
            left = {name for name in SIZES if variant.is_updated(f"{name}/kernel")}
            score = float(self.score_of(left)) + SPREAD * self.random.normal()
            mean = {"accuracy": Mean(score, 1e-5, 10**7)}
            self.trained.append(member)
            yield Result(member, Trained(mean, mean, [], None, 1.0), None)

    def search(self, **options):
        return search(self.study, PARTS, FROZEN, train_all=self.train_all, **options)


def either_is_enough(left):
    return BEST if "needed" in left and ("one" in left or "other" in left) else 0.5


def test_the_smallest_set_is_found_and_ties_are_named():
    found = Planted(either_is_enough).search()
    assert found.is_complete and set(found.left) == {"the needed", "the other"}
    first, second = found.steps[1:]
    assert first.gone == "the one" and first.ties == ("the other", "the idle")
    assert second.gone == "the idle" and second.ties == ()
    assert [step.parameters for step in found.steps] == [1000, 600, 400]
    assert found.sentence.startswith(
        "It is enough to train needed and other: 40.0% of the parameters, "
    )
    # Seed 0 chose the candidates and does not judge them.
    assert first.score.n == 3 and 0 not in first.score.by_seed


def test_the_last_step_and_the_whole_network_have_the_same_seeds():
    """Near the border more seeds are trained, of the whole network too."""
    border = 0.05 * (BEST - TRIVIAL)
    planted = Planted(lambda left: BEST - (border - 0.004) * ("idle" not in left), seed=4)
    named = [part for part in PARTS if part.name == "idle"]
    found = search(planted.study, named, FROZEN, train_all=planted.train_all)
    whole, last = (step.score for step in found.steps)
    assert last.n > 3 and [*whole.by_seed] == [*last.by_seed]


def test_a_search_resumes_and_a_stopped_one_says_so(tmp_path):
    planted = Planted(either_is_enough, tmp_path)
    calls = itertools.count()
    stopped = planted.search(is_stopped=lambda: next(calls) > 9)
    assert not stopped.is_complete and stopped.sentence.endswith("So far: the search was stopped.")
    assert not Planted(either_is_enough, tmp_path).search(seconds=-1).is_complete
    early = Planted(either_is_enough).search(seconds=-1)
    assert early.sentence == "The search was stopped before it found a part that can stay random."
    again = Planted(either_is_enough, tmp_path)
    whole = again.search()
    names = [(variant.name, seed) for variant, seed, *_ in planted.trained]
    assert not {(v.name, s) for v, s, *_ in again.trained if v.part != WHOLE} & {*names}
    last = Planted(either_is_enough, tmp_path)
    assert last.search() == whole and len(last.trained) == 1  # the network that it begins with


def test_at_most_five_percent_of_searches_let_go_of_a_part_that_costs_more_than_the_margin():
    """Each part costs just more than the margin, so none may leave."""
    border = 0.05 * (BEST - TRIVIAL) * 1.01

    def score(left):
        return BEST - border * (len(SIZES) - len(left))

    wrong = sum(len(Planted(score, seed=seed).search().steps) > 1 for seed in range(60))
    assert wrong <= 3


def test_the_smallest_network_is_one_sentence():
    names = ["", "the MLP of block 0", "queries and keys of block 1"]
    steps = tuple(Step(name, 100 - 20 * i, Number(0.9)) for i, name in enumerate(names))
    found = Elimination(REMOVED, steps, (), 100, True)
    assert found.sentence.startswith(
        "The smallest network found has no MLP of block 0 and no queries and keys of block 1: 60.0%"
    )


def test_a_network_of_which_every_part_is_needed_keeps_all():
    found = Planted(lambda left: BEST if len(left) == 4 else 0.4).search()
    assert found.sentence == "No part was found that can stay random without a loss."
    assert len(found.left) == 4 and len(found.steps) == 1


def test_one_part_is_always_trained():
    found = Planted(lambda left: BEST).search()
    assert len(found.left) == 1 and found.steps[-1].parameters == SIZES["needed"]


def test_parameters_outside_all_parts_stay_trained_and_the_sentence_says_so():
    """Parts that a user names need not cover the network."""

    def found(*names):
        planted = Planted(either_is_enough)
        named = [part for part in PARTS if part.name in names]
        return search(planted.study, named, FROZEN, train_all=planted.train_all).sentence

    assert found("idle", "needed").startswith(
        "It is enough to train needed and everything outside the searched parts: 80.0% of "
    )
    assert found("idle", "one").startswith(
        "It is enough to train everything outside the searched parts: 40.0% of the parameters"
    )


def test_candidates_are_the_smallest_parts_or_the_branches_of_blocks():
    task = TASKS["copy"]
    shapes = shapes_of(decoder(**task.sizes, width=8, layers=2, heads=2, mlp_width=8), task)
    found = network_parts.parts_of(shapes, by_layer=True)
    frozen = [part.name for part in candidates(found, FROZEN)]
    assert "attention" not in frozen and "MLP" not in frozen and "MLP out" in frozen
    removed = [(part.name, part.layer) for part in candidates(found, REMOVED)]
    assert removed == [
        (name, block) for block in range(2) for name in ("attention", "MLP", "queries and keys")
    ]


def test_the_report_shows_the_path(tmp_path):
    planted = Planted(either_is_enough)
    found = planted.search()
    report = Report("Planted", planted.study.table(), smallest=[found])
    assert found.sentence in str(report) and "looked as good" in str(report)
    page = report.to_html().replace("\u00a0", " ")
    assert "The smallest that is no worse" in page and "Score against parameters" in page
    assert found.sentence.split(", ")[0] in page
    report.save(tmp_path)
    (record,) = json.loads((tmp_path / "anatomy.json").read_text())["smallest"]
    assert [step["gone"] for step in record["steps"]] == ["", "the one", "the idle"]
    assert record["sentence"] == found.sentence and math.isfinite(record["steps"][1]["score"])


@pytest.mark.parametrize("max_seeds", [1])
def test_one_seed_has_no_interval_so_nothing_leaves(max_seeds):
    found = Planted(either_is_enough, max_seeds=max_seeds).search()
    assert found.is_complete and len(found.steps) == 1


def test_a_removal_that_makes_nothing_zero_is_no_variant():
    """It would keep the part at random values, and the report would call it removed."""
    network = Planted(lambda left: BEST).study.subject.network
    for zeroed, is_one in (("idle/out/.*", False), ("idle/.*", True)):
        variant = Variant("idle", REMOVED, fixed="idle/.*", zeroed=zeroed)
        assert is_change(network, variant) == is_one
