"""Probes beside networks and labels that cannot know the answer."""

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer import nulls
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import probes
from jaxformer.models.decoder import decoder
from jaxformer.studies import probing
from jaxformer.tasks import Arrays
from tests.models.tiny_configs import CONFIGS

DIGITS = np.random.default_rng(0).integers(0, 10, (3000, 4))
TASK = Arrays(DIGITS, DIGITS.max(1))
MODEL = decoder(**TASK.sizes, width=16, layers=1, heads=2, mlp_width=32)
ADDRESS = "block_0/states"


def largest(tokens):
    return tokens.max(1)


@pytest.fixture(scope="module")
def run():
    options = {"steps": 150, "learning_rate": 1e-2, "batch_size": 64, "seeds": 2}
    return jaxformer.train(TASK, MODEL, progress=False, **options)


@pytest.fixture(scope="module")
def found(run):
    return jaxformer.probe(run, ADDRESS, largest, draws=3)


def test_a_probe_of_a_trained_network_stands_beside_its_nulls(found):
    names = [row.name for row in found.rows]
    assert names == [
        *("trained", "untrained", "frozen", "shuffled labels", "control task"),
        "most frequent class",
    ]
    accuracy = {row.name: row.accuracy for row in found.rows}
    assert accuracy["trained"] > 0.85 > accuracy["untrained"] > accuracy["shuffled labels"] + 0.1
    assert accuracy["shuffled labels"] < accuracy["most frequent class"] + 0.05
    assert [found.row(name).n for name in names[:4]] == [2, 3, 2, 3]
    assert f"{accuracy['frozen']:.3f} without trained queries and keys" in found.sentence
    assert f"{accuracy['untrained']:.3f} untrained" in found.sentence
    assert found.sentence in str(found) and len(found.table) == 6


def test_an_untrained_network_is_no_better_than_its_null():
    params = nulls.untrained(MODEL, jax.random.key(3))
    found = jaxformer.probe(MODEL, ADDRESS, largest, params=params, inputs=DIGITS[:600])
    assert found.sentence.endswith("untrained: no different from the network untrained.")
    assert "frozen" not in [row.name for row in found.rows]  # nothing says how to train it


def test_what_training_is_worth_is_the_gain_over_the_best_null():
    def rows(**means):
        return tuple(probing.Row(name, mean, 0.01, (mean, mean)) for name, mean in means.items())

    found = probing.Probe(
        address="block_0/states",
        rows=rows(trained=1.0, untrained=0.924, frozen=0.966),
        examples=100,
        features=16,
        classes=3,
        frozen="without trained queries and keys",
    )
    assert found.sentence == (
        "1.000 ± 0.010; 0.924 untrained, 0.966 without trained queries and keys: what training put "
        "there is worth 0.034 ± 0.014."
    )


def test_a_published_model_is_compared_with_block_weights_drawn_anew(tmp_path):
    from jaxformer.models.pretrained import tiny as tiny_models

    folder = tiny_models.save(CONFIGS["llama"], tmp_path / "llama", vocab=66)
    model, params, _ = jaxformer.load(folder)
    tokens = np.random.default_rng(0).integers(0, 66, (200, 5))
    found = jaxformer.probe(
        model, "block_0/states", tokens[:, -1] % 3, params=params, inputs=tokens
    )
    assert found.rows[1].name == "block weights drawn anew" and found.rows[1].n == 2
    assert found.rows[0].accuracy > 0.5


def test_a_control_task_is_learned_by_a_probe_that_reads_the_token():
    """Each token has a random class, so the embedding is enough, and the labels' number is not."""
    params = nulls.untrained(MODEL, jax.random.key(3))
    tokens = DIGITS[:500]
    found = jaxformer.probe(MODEL, "embedded", tokens[:, -1] % 2, params=params, inputs=tokens)
    assert found.rows[0].accuracy == 1 and found.row("control task").accuracy > 0.95


@pytest.mark.parametrize("kind", probes.KINDS)
def test_examples_are_read_by_probes_that_were_fitted_on_others(kind):
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, 300)
    noise = random.normal(size=(300, 60))
    right = probes.accuracy(noise, classes, kind=kind, folds=5, seed=0)
    assert right < 0.45  # 60 features of noise fit more than half of their own examples
    known = noise + 4 * np.eye(60)[classes]
    assert probes.accuracy(known, classes, kind=kind, folds=5, seed=0) > 0.95


def test_bad_input_is_one_line(run):
    params = run.params
    tokens = DIGITS[:60]

    def probe(labels, **options):
        given = {"params": params, "inputs": tokens, **options}
        return jaxformer.probe(MODEL, ADDRESS, labels, **given)

    with pytest.raises(UserError, match="all labels are 1: a probe needs two classes"):
        probe(np.ones(60, int))
    with pytest.raises(UserError, match="16 features, and each probe is fitted on 16 examples"):
        probe(largest, inputs=tokens[:20])
    with pytest.raises(UserError, match=r"folds must be .* got 1"):
        probe(largest, folds=1)
    with pytest.raises(UserError, match=r"a label for each of 60 examples, got the shape \(3,\)"):
        probe([0, 1, 1])
    with pytest.raises(UserError, match="got real numbers"):
        probe(np.linspace(0, 1, 60))
    with pytest.raises(UserError, match="give probe its params"):
        jaxformer.probe(MODEL, ADDRESS, largest, inputs=tokens)
    with pytest.raises(UserError, match="give probe the inputs"):
        jaxformer.probe(MODEL, ADDRESS, largest, params=params)
    with pytest.raises(UserError, match="Did you mean 'logistic'"):
        probe(largest, kind="logistc")
    with pytest.raises(UserError, match="'block_7/states' matches no"):
        jaxformer.probe(MODEL, "block_7/states", largest, params=params, inputs=tokens)
    with pytest.raises(UserError, match="position must be below 4, got 9"):
        probe(largest, position=9)
    broken = paths.replace(params, {"block_0/mlp/in/kernel": np.full((16, 32), np.nan)})
    with pytest.raises(UserError, match="block_0/states is not finite"):
        probe(largest, params=broken)
