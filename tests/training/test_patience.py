"""A run stops early after `train.patience` validations without a new best, or by a callback."""

from types import SimpleNamespace

import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.training.session import Session


def stops_at(values, chosen_by, patience=2):
    """Returns the first row at which a session stops; None if it does not."""
    session = SimpleNamespace(
        settings=SimpleNamespace(patience=patience),
        setup=SimpleNamespace(task=SimpleNamespace(chosen_by=chosen_by)),
        validations=[
            {"step": 10 * i, "validation": {chosen_by: row}} for i, row in enumerate(values)
        ],
    )
    steps = (10 * i for i in range(len(values)))
    stopped = [i for i, step in enumerate(steps) if Session.has_stopped_improving(session, step)]
    return stopped[0] if stopped else None


def test_training_stops_after_validations_without_a_new_best_of_any_member():
    cases = {
        "a loss that rises": ([[3.0], [2.0], [2.5], [2.1]], "loss", 3),
        "an accuracy that falls": ([[0.5], [0.6], [0.6], [0.1]], "accuracy", 3),
        "one member still improves": ([[3, 3], [2, 4], [2, 2], [2, 1]], "loss", None),
        "a member has diverged": ([[3, 1], [2, None], [2, None], [2, None]], "loss", 3),
        "too few validations": ([[1.0], [2.0]], "loss", None),
    }
    result = {name: stops_at(values, score) for name, (values, score, _) in cases.items()}
    assert result == {name: expected for name, (*_, expected) in cases.items()}
    assert stops_at([[1.0]] * 9, "loss", patience=0) is None


def test_patience_needs_validations():
    with pytest.raises(UserError, match=r"^patience counts validations: .*eval_every > 0"):
        TrainSettings(patience=1, eval_every=0)


def test_a_run_without_progress_is_finished_early(tmp_path):
    task = Retrieval(max_pairs=2, vocab=8)
    sizes = dict(width=4, layers=1, heads=1, mlp_width=4)
    model = decoder(vocab_size=task.vocab_size, length=task.length, **sizes)
    options = dict(steps=90, eval_every=3, patience=2, learning_rate=1e-30, batch_size=2)
    options |= dict(log_every=10, probes=("attention_entropy",))  # it ends before the first row
    data = jaxformer.core.settings.DataSettings(test_size=4, validation_size=4)
    for _ in range(2):  # the same call reads the finished run
        run = jaxformer.train(
            task, model, **options, data=data, workdir=tmp_path / "run", progress=False
        )
        assert run.result.steps == 9
        assert "attention_entropy_end" not in run.result.metrics


def test_a_run_that_a_callback_ended_is_told_from_one_that_a_signal_stopped(capsys):
    state = SimpleNamespace(step=5, diverged_at=np.array([-1]))
    session = SimpleNamespace(checkpoints=None, saved_step=0, settings=SimpleNamespace(steps=9))
    session.is_finished = lambda step: step == 9
    codes = {}
    for signal in (0, 2):
        session.ending_signal = signal
        codes[signal] = Session.exit_code(session, state)
    assert codes == {0: 1, 2: 130}
    assert "a callback ended the run at step 5 of 9." in capsys.readouterr().out
