"""Sentences about parts together, on networks of random programs (the rules: `plants`)."""

import functools
from typing import Any

import pytest

import jaxformer
from jaxformer.interp import mechanisms
from jaxformer.studies.anatomy.pairs import pairs_of_answers
from tests.interp import plants

AT_LEAST = {"additive": 8, "redundant": 8, "backup": 8, "cancelling": 8, "conditional": 8}


@functools.cache
def drawn(kind):
    return plants.drawn(kind)


def examined(plant) -> Any:
    pairs = plant.network.sample(plants.PAIRS, seed=0)
    return jaxformer.examine(
        plant.network.model,
        plant.network.params,
        prompts=pairs_of_answers(*pairs),
        progress=False,
    )


@pytest.mark.parametrize("kind", plants.DRESSINGS)
def test_a_plant_of_each_kind_has_its_true_sentence_and_no_false_one(kind):
    plant = drawn(kind)[0]
    report = examined(plant)
    named = [group for group in report.inside.mechanisms if group.kind]
    assert plants.is_found(plant, named)
    assert all(plants.is_true(plant, group) for group in named)
    of_kind, _ = plants.TRUE[kind]
    assert any(f" {of_kind}" in text for text in report.group_sentences)


@pytest.mark.slow
@pytest.mark.parametrize("kind", plants.DRESSINGS)
def test_no_sentence_about_ten_plants_of_a_kind_is_false_and_most_true_ones_are_there(kind):
    found, false = [], []
    for plant in drawn(kind):
        named = [group for group in examined(plant).inside.mechanisms if group.kind]
        found.append(plants.is_found(plant, named))
        false += [(plant.seed, x.kind, x.parts) for x in named if not plants.is_true(plant, x)]
    assert not false
    assert len(found) == plants.PLANTS and sum(found) >= AT_LEAST[kind]


def test_the_judge_of_the_plants_refuses_what_is_false():
    """Otherwise the tests above could not fail."""
    plant = drawn("backup")[0]
    (main,), (backup,) = plant.nodes("main"), plant.nodes("backup")
    (sensor,) = plant.nodes("sensor")
    idle = next(node for node in plant.network.nodes if node not in plant.network.roles)

    def group(kind, *parts, its_main=""):
        return mechanisms.Group(parts, {}, kind, its_main)

    replace = mechanisms.REPLACE
    assert plants.is_true(plant, group(replace, main, backup, its_main=main))
    assert not plants.is_true(plant, group(replace, main, backup, its_main=backup))
    assert not plants.is_true(plant, group(replace, main, sensor, its_main=main))
    assert not plants.is_true(plant, group(mechanisms.OFFSET, main, backup))
    assert not plants.is_true(plant, group(mechanisms.ONE_THING, main, backup))
    assert not plants.is_true(plant, group(mechanisms.ADD_UP, main, backup))
    assert not plants.is_true(plant, group(mechanisms.ONE_THING, main, idle))
