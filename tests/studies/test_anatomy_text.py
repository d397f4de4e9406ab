"""Anatomy of tasks on prepared text, whose rows the host reads from disk."""

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.studies.anatomy import judge, pairs, sources, subject
from jaxformer.studies.anatomy.parts import WHOLE_NETWORK
from jaxformer.studies.anatomy.training import Trainer
from jaxformer.tasks.language import MaskedTokens, NextToken

SIZES = {"width": 16, "layers": 1, "heads": 2, "mlp_width": 32}
DATA = DataSettings(test_size=60, validation_size=40)
STEPS = 62  # in chunks of 4; the last one has 2


def test_the_frequency_of_tokens_is_trivial_and_a_trigram_is_not():
    scores = {"best_constant": 0.2, "unigram_loss": 3.0, "trigram_loss": 2.0, "bag_of_words": 0.9}
    assert judge.best_trivial(scores, "loss", is_text=True) == ("guessing by frequency", -3.0)
    assert judge.best_trivial(scores, "accuracy", is_text=True) == ("guessing by frequency", 0.2)
    assert judge.best_trivial(scores, "loss") == ("trigram_loss", -2.0)


def test_pairs_of_a_text_show_its_symbols():
    task = NextToken(window=16)
    what = subject.of_task(task, steps=STEPS, data=DATA, **SIZES)
    assert what.identity["text"] == task.prepared.fingerprint
    batch = what.network.data.heldout().test
    found = pairs.with_texts(pairs.pairs_of_batch(batch, 4), task)
    decode = task.prepared.tokenizer.decode
    assert "".join(found.tokens[0]) == decode(np.asarray(batch.inputs[0]).tolist())
    masked = subject.of_task(MaskedTokens(window=16), data=DATA, **SIZES)
    with pytest.raises(UserError, match="same scored positions"):
        pairs.pairs_of_batch(masked.network.data.heldout().test, 4)


@pytest.mark.slow  # compiles training twice, and the methods of the examination
def test_a_run_on_a_text_is_trained_again_to_the_bit_and_examined(tmp_path):
    task = NextToken(window=16)
    what = subject.of_task(task, steps=STEPS, batch_size=8, data=DATA, **SIZES)
    run = jaxformer.train(
        task,
        what.network.model,
        subject.TRAIN_EVERYTHING,
        steps=STEPS,
        batch_size=8,
        seeds=[0],
        learning_rate=1e-2,
        warmup=STEPS // 4,
        data=DATA,
        workdir=tmp_path / "run",
        progress=False,
    )
    network = sources.of_run(tmp_path / "run").network
    trained, params = Trainer(network).train(WHOLE_NETWORK, 0, 1e-2)
    jax.tree.map(np.testing.assert_array_equal, params, run.member(0))
    assert trained.test["loss"] == run.result.members[0]["metrics"]["loss"]
    assert [step for step, _ in trained.curve] == [*range(4, STEPS, 4), STEPS]
    report = jaxformer.anatomy(
        tmp_path / "run", methods=["frozen"], seeds=1, budget=1e-3, progress=False
    )
    assert report.training.trivial_name == "guessing by frequency"
    assert report.inside.unit == "log probability (nats)" and report.inside.samples == 60
    assert "".join(report.tokens[0]).isprintable() and len(report.tokens[0]) == 16
