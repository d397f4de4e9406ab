"""A network of somebody else has parts by the names that the user gives them."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy.given_parts import given_parts
from jaxformer.studies.anatomy.parts import variants_of
from jaxformer.tasks import Arrays
from tests.models.own_transformers import LinenTransformer

PARTS = {"mixing": "blocks_./att", "first layer": "blocks_0"}


def shapes():
    model = jaxformer.wrap(LinenTransformer(), vocab_size=16, length=8)
    return jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 8), int))["params"]


def test_a_pattern_of_modules_selects_their_parameters():
    mixing, first = given_parts(PARTS, shapes())
    variants = {v.name: v for v in variants_of([mixing, first], ["frozen", "removed"], False)}
    removed, frozen = variants["mixing, removed"], variants["first layer, frozen"]
    assert removed.is_zero("blocks_1/att/out/kernel")
    assert not removed.is_zero("blocks_1/out/kernel") and not removed.is_zero("embed/embedding")
    assert not frozen.is_updated("blocks_0/in/kernel") and frozen.is_updated("blocks_1/in/kernel")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"mixing": "atention"}, "matches no path"),
        ({}, "parts must be {name: pattern of modules}"),
        (["att"], "parts must be .* got"),
    ],
)
def test_wrong_parts_are_one_line_errors(given, message):
    with pytest.raises(UserError, match=message) as error:
        given_parts(given, shapes())
    assert "\n" not in str(error.value)


class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(10, 16, name="embed")(tokens)
        mask = nn.make_causal_mask(tokens)
        x = x + nn.MultiHeadDotProductAttention(2, name="att")(x, mask=mask)
        unused = nn.Dense(4, name="unused")(x).sum(-1, keepdims=True)
        return nn.Dense(10, name="head")(nn.relu(nn.Dense(32, name="hidden")(x))) + 0 * unused


@pytest.mark.slow  # some ten trainings
def test_an_anatomy_of_given_parts_finds_the_one_that_does_nothing(tmp_path):
    digits = np.random.default_rng(0).integers(0, 10, (3000, 4))
    task = Arrays(digits, digits.max(1))
    model = jaxformer.wrap(Net(), vocab_size=10, length=task.length)
    options: Any = {
        "steps": 150,
        "rates": (1e-2,),
        "seeds": 3,
        "progress": False,
        "workdir": tmp_path,
    }
    options |= {"methods": ["removed"], "budget": 300}
    report = jaxformer.anatomy(
        task, model, named={"attention": "att", "extra": "unused"}, **options
    )
    assert {(row["part"], row["outcome"]) for row in report.table} == {
        ("attention", "worse"),
        ("extra", "no worse"),
    }
    folders = {folder.name for folder in tmp_path.iterdir() if folder.name.startswith("members")}
    assert len(folders) == 1
    jaxformer.anatomy(task, model, named={"attention": "hidden"}, **options | {"seeds": 1})
    assert len([f for f in tmp_path.iterdir() if f.name.startswith("members")]) == 2
