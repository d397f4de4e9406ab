"""Parts of one network in training: when they become necessary."""

import json
from typing import Any

import jax
import numpy as np
import pytest

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.studies.anatomy import findings
from jaxformer.studies.anatomy.during import Snapshot, during, spaced
from jaxformer.studies.anatomy.pairs import pairs_of_answers
from jaxformer.studies.anatomy.parts import WHOLE_NETWORK
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.subject import of_task
from jaxformer.studies.anatomy.training import Trainer
from tests.experiments.test_atlas import TASKS

LOSSES = [2.0, 1.9, 1.9, 0.5, 0.4]


@pytest.fixture(scope="module")
def found():
    """An induction network whose second head does nothing before step 300."""
    model, params, clean, corrupted, answers, _ = known.network("induction")
    flat = paths.flatten(params)
    silent = flat | {"block_1/attn/query/kernel": np.zeros_like(flat["block_1/attn/query/kernel"])}
    before, after = params | paths.unflatten(silent), params
    snapshots = [
        Snapshot(100 * number, loss, before if loss > 1 else after)
        for number, loss in enumerate(LOSSES)
    ]
    return during(snapshots, model, pairs_of_answers(clean, corrupted, answers), n=5)


def test_a_part_becomes_necessary_when_it_begins_to_work(found):
    texts = found.sentences
    assert (
        "Head 1 of block 1, induction at the end, becomes necessary between steps 200 and 300, "
        "while the loss goes from 1.9 to 0.5." in texts
    )
    assert (
        "Head 1 of block 1 attends as induction between steps 200 and 300, while the loss goes "
        "from 1.9 to 0.5." in texts
    )
    assert not any(text.startswith("Head 3 ") for text in texts)  # never necessary
    assert any(
        text == "Head 2 of block 0 attends as previous token before step 1." for text in texts
    )


def test_page_and_json_have_every_moment(found, tmp_path):
    report = Report("Induction", during=found)
    page = report.to_html()
    for moment in found.moments:
        assert f"step {moment.step}</th>" in page
    assert "When parts become necessary" in page and found.sentences[0] in str(report)
    report.save(tmp_path)
    record = json.loads((tmp_path / "anatomy.json").read_text())["during"]
    assert [x["step"] for x in record] == [moment.step for moment in found.moments]
    assert record[-1]["labels"]["block_1/attn/head_1"][0] == "induction"


def test_moments_are_spaced_by_the_change_of_the_loss():
    losses = [3.0, 3.0, 3.0, 2.0, 1.0, 1.0, 1.0, 0.0]
    assert spaced(losses, 4) == [0, 3, 4, 7]
    assert spaced([2.0, 2.0, 2.0, 0.1, 0.0], 4) == [0, 2, 3, 4]  # both sides of the jump
    assert spaced([1.0] * 5, 3) == [0, 2, 4]
    assert spaced([2.0, float("nan"), 1.0], 3)[-1] == 2
    with pytest.raises(UserError, match="--during needs 2 steps or more, got 1"):
        during([], None, None, 1)  # type: ignore


def test_moments_that_cannot_be_measured_cost_the_moments_alone(monkeypatch):
    """They come after all trainings, which a budget has paid for."""

    def of_study(study):
        raise UserError("the blocks of Net cannot be run alone.")

    monkeypatch.setattr(findings.specimens, "of_study", of_study)
    report, said = Report("Induction"), []
    assert findings.with_moments(report, None, 5, said.append) is report  # type: ignore[arg-type]
    assert said == [
        "note: the network in training was not examined: the blocks of Net cannot be run alone."
    ]


@pytest.mark.slow  # compiles a training program
def test_the_last_snapshot_is_the_trained_network():
    sizes: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2}
    trainer = Trainer(of_task(TASKS["majority"], steps=23, batch_size=8, **sizes).network)
    _, params = trainer.train(WHOLE_NETWORK, 0, 1e-2)
    steps = [*trainer.snapshots(WHOLE_NETWORK, 0, 1e-2, 5)]
    assert [step for step, *_ in steps] == [5, 10, 15, 20, 23]
    jax.tree.map(np.testing.assert_array_equal, steps[-1][2], jax.device_get(params))
