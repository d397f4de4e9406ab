"""A call in Python: its errors name its arguments, and what it returns prints as one line."""

import subprocess
import sys
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings, OptimSettings, TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.training.arguments import SEPARATE_ARGUMENTS, TrainOptions
from jaxformer.training.callbacks import Every
from jaxformer.training.metrics import Mean

TASK = Retrieval(max_pairs=3, vocab=16)
MODEL = decoder(**TASK.sizes, width=8, layers=1, heads=1, mlp_width=8)
SHORT: Any = {"steps": 2, "batch_size": 8, "progress": False, "data": DataSettings(split="hash")}


def test_the_types_of_the_settings_are_those_of_their_fields():
    hints = {}
    for kind in (TrainSettings, OptimSettings):
        names = {field.name for field in fields(kind)} - {*SEPARATE_ARGUMENTS}
        hints |= {name: hint for name, hint in get_type_hints(kind).items() if name in names}
    assert get_type_hints(TrainOptions) == hints


@pytest.mark.parametrize(
    "options, message",
    [
        ({"warmup": 50}, r"lower warmup or raise steps\.$"),
        ({"steps": "3"}, "^steps must be a whole number, got '3'"),
        ({"steps": -1}, "^steps must be at least 0, got -1"),
        ({"patience": 2, "eval_every": 0}, "^patience counts validations: it needs eval_every > 0"),
        ({"seeds": 0}, "^seeds must be at least 1, got 0"),
        ({"accumulate": 3}, "^batch_size = 8 is .* times accumulate = 3"),
    ],
)
def test_an_error_names_arguments_of_python(options, message):
    with pytest.raises(UserError, match=message):
        jaxformer.train(TASK, MODEL, **SHORT | options)


def test_a_variant_of_another_mixer_is_refused():
    """Without the check "standard" would train the fixed matrices of MixiT."""
    with pytest.raises(UserError, match=r"'mixit' has mixer='mixit', the model has .*softmax"):
        jaxformer.train(TASK, MODEL, "mixit", **SHORT)
    mixing = decoder(**TASK.sizes, width=8, layers=1, heads=1, mlp_width=8, mixer="mixit")
    with pytest.raises(UserError, match=r"decoder\(\.\., mixer='softmax'\)"):
        jaxformer.train(TASK, mixing, "standard", **SHORT)


def test_a_folder_is_not_edited_in_a_message(tmp_path, monkeypatch):
    """A regular expression once turned the folder "train.steps" into "steps"."""
    monkeypatch.chdir(tmp_path)
    options: Any = SHORT | {"workdir": "train.steps"}
    jaxformer.train(TASK, MODEL, **options)
    with pytest.raises(UserError) as error:
        jaxformer.train(TASK, MODEL, **options | {"steps": 3})
    said = str(error.value)
    assert "train.steps has another config" in said and "steps = 2 there and 3 now" in said
    assert said.endswith("give another workdir.") and " --" not in said


def test_an_exchanged_task_is_named_and_not_printed():
    with pytest.raises(UserError) as error:
        jaxformer.train(MODEL, TASK, steps=2)  # type: ignore[arg-type]
    assert "got Decoder. Are task and model exchanged?" in str(error.value)


def test_a_run_prints_as_one_line_with_what_guessing_scores(tmp_path):
    run = jaxformer.train(TASK, MODEL, seeds=2, **SHORT)
    trivial = run.result.baselines
    best = max(value for name, value in trivial.items() if not name.endswith("_loss"))
    assert f"(in context guess {best:.4g})" in repr(run)
    assert f"(unigram loss {trivial['unigram_loss']:.4g})" in repr(run)
    for text in (repr(run), repr(run.result), repr(run.result.metrics["accuracy"])):
        assert "\n" not in text and len(text) < 300
    assert "8 more metrics; guessing: in_context_guess" in repr(run.result)
    run.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_mean_prints_with_its_error():
    assert repr(Mean(0.5754999999999999, 0.007500000000000007, 2)) == "0.5755 ± 0.0075 (n=2)"
    assert repr(Mean(0.5, float("nan"), 1)) == "0.5 (n=1)"


SCRIPT = """
import jaxformer
from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval

task = Retrieval()
model = decoder(**task.sizes, width=8, layers=1, heads=1, mlp_width=8)
run = jaxformer.train(task, model, steps=2, {})
model, params, config = jaxformer.load("runs/one")
{}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, line, n_errors",
    [("clip=1.0", "model.apply", 0), ("wramup=1", "model.aply", 2), ("clip='x'", "run.resutl", 2)],
)
def test_a_type_checker_finds_misspelt_settings(options, line, n_errors, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(options, line))
    command = [sys.executable, "-m", "basedpyright", "--level", "error"]
    checked = subprocess.run(
        [*command, str(tmp_path / "script.py")], capture_output=True, text=True, check=False
    )
    assert f"{n_errors} error" in checked.stdout, checked.stdout


def test_callbacks_see_the_state_and_can_end_the_run(capsys):
    seen = []

    def look(state, step):
        seen.append((step, state.trainable["embed"]["embedding"].shape))
        return step >= 4

    options = SHORT | {"steps": 8, "log_every": 2, "seeds": 2}
    jaxformer.train(TASK, MODEL, callbacks=[Every(2, look)], **options)
    assert [step for step, _ in seen] == [2, 4] and seen[0][1] == (2, 16, 8)


@pytest.mark.parametrize("callbacks", [print, [print], Every(2, print)])
def test_a_plain_function_is_no_callback(callbacks):
    with pytest.raises(
        UserError, match=r"callbacks must be a sequence of .*Every\(100, function\)"
    ):
        jaxformer.train(TASK, MODEL, callbacks=callbacks, **SHORT)
