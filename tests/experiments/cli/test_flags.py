"""The command line: every mistake is one line that names what is possible."""

import json

import pytest

from experiments.cli import flags
from experiments.ledger.record import run_name
from experiments.run import main, parse
from experiments.schedule import grids
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps

RETRIEVAL = "--config=configs/mixit/retrieval.py:variant=mixit,scale=tiny"


def test_overrides_take_the_type_of_the_field():
    command = parse(
        [
            RETRIEVAL,
            "--config.optim.learning_rate=1e-3",
            "--config.train.steps=1e2",
            "--config.model.use_bias=true",
            "--config.model.init_std=0.02",
            "--config.partition=(('.*/mix', 'frozen'), ('.*', 'train'))",
            "--config.optim.labels.train.weight_decay",
            "0",
        ]
    )
    config = command.config
    assert config.optim.learning_rate == (1e-3,)
    assert config.train.steps == 100 and config.model.use_bias is True
    assert config.model.init_std == "0.02" and config.optim.labels.train.weight_decay == 0.0
    assert command.overrides["train.steps"] == 100
    several = parse([RETRIEVAL, "--config.optim.learning_rate=1e-3,2"])
    assert several.config.optim.learning_rate == (1e-3, 2.0)


# The exact commands that users mistype, and what the one line must say.
MISTAKES = {
    (): "no config given",
    ("--config=a", "--config=b"): "--config is given 2 times",
    (RETRIEVAL, "--config.train.stpes", "9"): "Did you mean 'train.steps'?",
    ("--confg=x",): "unknown flag '--confg=x'. Did you mean '--config'?",
    ("train",): "unknown word 'train'",
    ("--config",): "--config needs a value",
    ("--config=configs/mixit/retreival.py",): "Did you mean 'configs/mixit/retrieval.py'?",
    ("--config=README.md",): "is not a Python file",
    ("--config=configs/mixit/retrieval.py:variant=mixt",): "unknown variant 'mixt'. Did you mean",
    ("--config=configs/mixit/retrieval.py:scale=big",): "The choices are: tiny, small, paper",
    ("--config=configs/mixit/retrieval.py:varian=mixit",): "Did you mean 'variant'?",
    (RETRIEVAL, "--config.optim.learningrate=1"): "Did you mean 'optim.learning_rate'?",
    (RETRIEVAL, "--config.optim.lr=1"): "Did you mean 'optim.learning_rate'?",
    (RETRIEVAL, "--config.model.d_model=1"): "Did you mean 'model.width'?",
    (RETRIEVAL, "--config.optim.learning_rate=fast"): "must be a sequence such as 0.003, got",
    (RETRIEVAL, "--config.optim.learning_rate=-1"): "must be positive numbers",
    (RETRIEVAL, "--config.train.steps=1.5"): "must be a whole number such as 400, got '1.5'",
    (RETRIEVAL, "--config.train.steps=0"): "train.steps must be at least 1, got 0",
    (RETRIEVAL, "--config.model.use_bias=maybe"): "must be true or false, got 'maybe'",
    (RETRIEVAL, "--config.task.length=2"): "task has: format, max_pairs, name, vocab.",
    (RETRIEVAL, "--config.lenght=2"): "It has: data, devices, model, n_seeds, optim, partition",
    (RETRIEVAL, "--config.variant=standard"): "say it after the colon",
    (RETRIEVAL, "--config.arguments.scale=paper"): "after the colon of --config=FILE:scale=...",
    (RETRIEVAL, "--config.recipe=solve"): "recipe is not a field to override",
    (RETRIEVAL, "--config.task.name=retreival"): "unknown task 'retreival'. Did you mean",
    (RETRIEVAL, "--config.model.name=decodr"): "unknown model 'decodr'. Did you mean 'decoder'?",
    (RETRIEVAL, "--config.optim.labels.train.name=adamv"): "unknown optimizer 'adamv'",
    (RETRIEVAL, "--config.optim.labels.train.name=sgd"): "optimizer 'sgd' has no field 'b1'",
    (RETRIEVAL, "--config.optim.schedule=cosin"): "Did you mean 'cosine'?",
    (RETRIEVAL, "--config.model.heads=3"): "3 heads do not divide the width 64",
    (RETRIEVAL, "--config.model.mixer=softmx"): "unknown mixer 'softmx'",
    (RETRIEVAL, "--config.model.mixing_scale=theroy"): "unknown mixing scale 'theroy'",
    (RETRIEVAL, "--config.model.dtype=float31"): "unknown dtype 'float31'",
    (RETRIEVAL, "--config.task.max_pairs=99"): "retrieval needs 1 <= max_pairs <= vocab / 4",
    (RETRIEVAL, "--config.n_seeds=0"): "n_seeds must be at least 1, got 0",
    (RETRIEVAL, "--config.data.test_size=0"): "data.test_size must be at least 1",
    (RETRIEVAL, "--config.optim.warmup=999"): "the warm-up (999 steps) must not exceed",
    (
        "--config=configs/mixit/retrieval.py:variant=standard",
        "--config.model.heads=64",
    ): "even head dimension, got width 64 / 64 heads = 1",
    (
        RETRIEVAL,
        "--config.partition=(('.*/mx', 'frozen'), ('.*', 'train'))",
    ): "the pattern '.*/mx' matches no path",
    (
        RETRIEVAL,
        "--config.partition=(('.*', 'train'), ('.*/mix', 'frozen'))",
    ): "has no effect: earlier rules",
    (RETRIEVAL, "--config.partition=(('.*/mix', 'frozen'),)"): "no rule covers",
    (RETRIEVAL, "--config.partition=(('.*', 'trian'),)"): "no optimizer for the label 'trian'",
}


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: " ".join(words)[-60:] or "nothing")
def test_a_mistake_is_one_line_and_writes_nothing_over(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and error.endswith("\n")
    assert MISTAKES[words] in error
    assert not list(tmp_path.rglob("result.json"))


def test_an_argument_of_its_own_is_no_field(tmp_path):
    """With context=16 the run has 16, and nothing may say that it has 8."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from configs import common\n"
        "def get_config(arg=''):\n"
        "    arguments = common.parse(arg, context=('8', '16'), scale=common.SCALES)\n"
        "    config = common.training('mixit/mine', arguments)\n"
        "    config.task = dict(name='retrieval', max_pairs=int(arguments['context']))\n"
        "    return config\n"
    )
    config = flags.load_config(f"{file}:context=16")
    assert config.arguments.context == "16" and config.arguments.is_locked
    for name in ("context", "arguments.context"):
        with pytest.raises(UserError, match="after the colon of --config=FILE:context="):
            flags.override(config, name, "8")
    assert config.arguments.context == "16" and config.task.max_pairs == 16


RULES = "(('.*/value/.*', 'frozen'), ('.*', 'train'))"


@pytest.mark.parametrize(
    "file, field, label",
    [
        (RETRIEVAL, f"partition={RULES}", "variant"),
        (RETRIEVAL, "model.mixer=softmax", "variant"),
        (RETRIEVAL, "unfreeze=((10, (('.*', 'train'),)),)", "variant"),
        ("--config=configs/mixit/unfreezing.py:thaw=at_100", "unfreeze=()", "thaw"),
    ],
)
def test_rules_of_ones_own_are_never_recorded_under_a_variants_name(file, field, label):
    command = parse([file, f"--config.{field}"])
    held = flags.to_dict(command.config)
    assert held["arguments"][label] == held["arguments"]["variant"] == "custom"
    assert "-custom-" in run_name(held, "0" * 12)
    again = flags.load_with_overrides(command.file, json.loads(dumps(command.overrides)))
    assert dumps(flags.to_dict(again)) == dumps(held)


@pytest.mark.parametrize(
    "field, value",
    [("data.ood", ("mnist",)), ("data.classes", (3, 2, 1)), ("optim.learning_rate", (0.1,))],
)
def test_what_is_spelled_is_read_back(field, value):
    config = flags.load_with_overrides("configs/attention_paths/oneshot.py", {field: [*value]})
    assert flags.flatten_config(config.to_dict())[field] == value


def test_a_variants_own_rules_and_other_fields_keep_its_name():
    own = "--config.partition=(('.*/mix', 'frozen'), ('.*', 'train'))"
    command = parse([RETRIEVAL, own, "--config.model.width=32"])
    assert command.config.arguments.variant == "mixit"


def test_help_lists_the_configs(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "--dry-run" in out and "configs/mixit/retrieval.py\n      Needle retrieval (" in out
    assert out.count("\n  configs/") == len(flags.config_files())


def test_help_of_a_config_is_its_docstring(capsys):
    assert main(["--help", RETRIEVAL]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Needle retrieval (MixiT papers") and "--dry-run" not in out
    assert main(["--help", "--config=configs/mixit/retreival.py"]) == 2
    assert "Did you mean 'configs/mixit/retrieval.py'?" in capsys.readouterr().err


def test_a_config_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert flags.load_config("configs/mixit/retrieval.py").name == "mixit/retrieval"
    (tmp_path / "mine.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="has no function get_config"):
        flags.load_config("mine.py")


EVIL = """
import pathlib
pathlib.Path({!r}).touch()
def get_config(arg):
    raise OSError("nobody should be here")
"""


@pytest.mark.parametrize("way", ["absolute", "above", "linked", "not Python"])
def test_a_record_runs_no_file_but_a_config_of_this_checkout(tmp_path, monkeypatch, way):
    (tmp_path / "repo/configs").mkdir(parents=True)
    monkeypatch.setattr(flags, "ROOT", tmp_path / "repo")
    touched = tmp_path / "touched"
    evil = tmp_path / "evil.py"
    evil.write_text(EVIL.format(str(touched)))
    (tmp_path / "repo/configs/linked.py").symlink_to(evil)
    (tmp_path / "repo/configs/text.txt").write_text(EVIL.format(str(touched)))
    name = {
        "absolute": str(evil),
        "above": "configs/../../evil.py",
        "linked": "configs/linked.py",
        "not Python": "configs/text.txt",
    }[way]
    with pytest.raises(UserError, match="below configs/ of this checkout"):
        flags.load_recorded_config(name, {})
    assert not touched.exists()
    if way == "absolute":
        with pytest.raises(UserError, match="raises OSError: nobody should be here"):
            flags.load_config(name)
        assert touched.exists()  # what a user names is run


@pytest.mark.parametrize(
    "text, words",
    [
        ("def get_config(arg:", "raises SyntaxError"),
        ("\0", "raises "),
        ("import nothing_of_this_name", "raises ModuleNotFoundError"),
        ("raise SystemExit(0)", "raises SystemExit: 0"),
        ("def get_config(): pass", "raises TypeError"),
        ("def get_config(arg): 1 / 0", "raises ZeroDivisionError"),
        ("def get_config(arg): return None", "it returned a NoneType"),
        ("def get_config(arg): return {}", "it returned a dict"),
        ("from ml_collections import ConfigDict as C\nget_config = C", "raises AttributeError"),
        ("from ml_collections import ConfigDict as C\ndef get_config(arg): return C()", "recipe"),
        (
            "from configs import common\ndef get_config(arg):\n"
            "    c = common.training('x', common.parse(arg, scale=('tiny',)))\n"
            "    del c.train\n    return c",
            "lacks train",
        ),
    ],
)
def test_what_is_wrong_inside_a_config_is_one_line(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=words) as error:
        flags.load_config(str(tmp_path / "mine.py"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["1e999", "-1e999", "9" * 400, "nan", "[" * 300, "1e300"])
def test_numbers_that_nobody_means_are_refused(text):
    for field in ("optim.clip", "train.steps", "optim.learning_rate", "unfreeze"):
        with pytest.raises(UserError, match=f"--config.{field} must be"):
            parse([RETRIEVAL, f"--config.{field}={text}"])


def test_what_is_said_twice_is_refused():
    with pytest.raises(UserError, match="argument 'variant' is given 2 times"):
        flags.load_config("configs/mixit/retrieval.py:variant=mixit,scale=tiny,variant=mixit")
    config = "configs/mixit/retrieval.py:scale=tiny"
    for values in (["1e-3", "0.001"], ["1", "1"]):
        with pytest.raises(UserError, match="has a value twice"):
            grids.expand(config, {"optim.learning_rate": values}, {})
    with pytest.raises(UserError, match="the grid makes 1,000,000 runs"):
        many = [str(i) for i in range(1000)]
        grids.expand(config, {"model.layers": many, "model.width": many}, {})
