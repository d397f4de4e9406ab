"""`jaxformer.examine` looks inside one trained network, however it is given."""

from typing import Any

import optax
import pytest
from flax import linen as nn

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.interp.components import Measured
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy.pairs import pairs_of_batch, pairs_of_task
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=3, vocab=16)
MODEL = decoder(**TASK.sizes, width=8, layers=1, heads=2, mlp_width=8, init_std="fan_in")
QUIET: dict[str, Any] = {"heads": False, "progress": False}


class Own(Retrieval):
    pass


class Bag(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Embed(16, 16)(tokens)


def train(folder=None, task=TASK, **arguments):
    data = DataSettings(test_size=40, validation_size=40)
    sizes: dict[str, Any] = {"steps": 2, "batch_size": 4, "data": data, "progress": False}
    return jaxformer.train(task, MODEL, workdir=folder, **sizes | arguments)


def distance_of_mlp(report: Any) -> float | None:
    return report.inside.kernels["block_0/mlp/in/kernel"].distance


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose optimizer is the user's own, which an anatomy could not train again."""
    return train(tmp_path_factory.mktemp("run") / "one", optimizer=optax.adam(1e-2))


def test_a_run_its_folder_and_its_parameters_have_the_same_effects(run):
    in_memory = jaxformer.examine(run, **QUIET)
    pairs = pairs_of_batch(run.trained.session.heldout.test)
    given = jaxformer.examine(MODEL, run.params, prompts=pairs, **QUIET)
    saved, opened = (
        jaxformer.examine(source, **QUIET) for source in (run.folder, jaxformer.open(run.folder))
    )
    effects = in_memory.effect_table
    parts = {effect["part"] for effect in effects}
    assert parts == {"block_0/attn", "block_0/mlp", "block 0"}  # alone and together
    assert effects == given.effect_table == saved.effect_table == opened.effect_table
    # A run also knows where its network started.
    moved, same, unknown = map(distance_of_mlp, (in_memory, saved, given))
    assert unknown is None and moved == same and moved
    assert saved.training is None and "block 0" in saved.to_html()


def test_a_run_on_a_class_of_the_user_is_examined_on_its_own_test_set(tmp_path):
    task = Own(max_pairs=3, vocab=16)
    run = train(tmp_path / "own", task)
    with pytest.raises(UserError, match="the class Own"):
        jaxformer.examine(run.folder, **QUIET)
    report = jaxformer.examine(run.folder, prompts=task, **QUIET)
    assert report.effect_table == jaxformer.examine(run, **QUIET).effect_table
    other = jaxformer.examine(run.folder, prompts=TASK, **QUIET)
    assert other.inside.samples == len(pairs_of_task(TASK)) > report.inside.samples  # type: ignore


def test_an_examination_that_was_stopped_continues(run, tmp_path, monkeypatch, capsys):
    def stop(measured):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Measured, "path_patching", stop)
        with pytest.raises(KeyboardInterrupt):
            jaxformer.examine(run, workdir=tmp_path, **QUIET)
    (first,) = tmp_path.glob("examined-*/patching.npz")
    first.write_bytes(first.read_bytes()[:-20])
    with monkeypatch.context() as patched:
        patched.setattr(Measured, "zero_ablation", stop)  # is measured already
        again = jaxformer.examine(run, workdir=tmp_path, **QUIET)
    assert "patching.npz is damaged" in capsys.readouterr().err
    assert again.effect_table == jaxformer.examine(run, **QUIET).effect_table
    # Other prompts, or a network with other parameters, are another examination.
    jaxformer.examine(run, prompts=TASK, workdir=tmp_path, **QUIET)
    jaxformer.examine(train(learning_rate=1e-2), workdir=tmp_path, **QUIET)
    assert len([*tmp_path.glob("examined-*")]) == 3


def test_what_cannot_be_examined_is_a_one_line_error(run, tmp_path):
    bag = Bag()
    wrong: dict[str, tuple[Any, ...]] = {
        "or a model with its parameters": (MODEL,),
        "has its own parameters": (run.folder, run.params),
        "give prompts=TASK": (MODEL, run.params),
        "no file 'absent.tsv'": ("package:no-such", None, "absent.tsv"),
        "expected a task": (MODEL, run.params, 3),
        "cannot be run alone": (bag, {}, TASK),
    }
    for message, (source, *rest) in wrong.items():
        params, prompts = [*rest, None, None][:2]
        with pytest.raises(UserError, match=message) as error:
            jaxformer.examine(source, params, prompts=prompts, **QUIET)
        assert "\n" not in str(error.value)
