"""Configs on the command line: overrides, custom rules, broken configs and help."""

import ast
import json
from types import SimpleNamespace

import pytest
from ml_collections import ConfigDict

from experiments import litmus, sweep
from experiments.cli import completion, flags
from experiments.ledger.record import run_name
from experiments.run import main, parse
from experiments.schedule import grids
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps

RETRIEVAL = "--config=configs/mixit/retrieval.py:variant=mixit,scale=tiny"
MANUAL = "Which parts of a transformer must be trained for retrieval?"  # its first words


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


def test_another_text_needs_no_empty_fingerprint():
    def fingerprint(*fields):
        return parse(["--config=text/lm:scale=small", *fields]).config.task.fingerprint

    assert fingerprint() == fingerprint("--config.task.tokens=/data/tinyshakespeare-bpe1024") != ""
    assert fingerprint("--config.task.tokens=runs/data/my") == ""
    given = ("--config.task.fingerprint=12ab", "--config.task.tokens=my")
    assert fingerprint(*given) == fingerprint(*given[::-1]) == "12ab"


def test_an_argument_of_a_config_cannot_be_overridden_as_a_field(tmp_path):
    """Otherwise the label of a run could contradict its fields."""
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


def test_nested_sequences_keep_their_form():
    fields = {
        "sizes": ((16, 1), (16, 4)),
        "betas": ((1.0, 0.0),),
        "panels": ((6, 0.02, (0.5, 1.0)),),
        "design": (("uniform", "random", "random"), ("uniform", "random", "random")),
    }
    config = ConfigDict(fields | {"name": "", "recipe": "", "arguments": {}})
    for name, text in {
        "sizes": "((8,2),)",
        "betas": "((1,0),(2.5,1))",
        "panels": "((4,1.8,(1.0,)),)",
        "design": "(('previous','random'),('uniform','random'))",
    }.items():
        assert flags.override(config, name, text) == ast.literal_eval(text)
    for name, text in {
        "sizes": "(('.*','frozen'),)",
        "betas": "((1,0,2),)",
        "panels": "((4,'x',(1.0,)),)",
        "design": "((1,2),)",
    }.items():
        with pytest.raises(UserError, match="must be a sequence such as"):
            flags.override(config, name, text)


FROZEN_VALUES = "(('.*/value/.*', 'frozen'), ('.*', 'train'))"


CUSTOM_RULES = [
    (RETRIEVAL, f"partition={FROZEN_VALUES}", "variant"),
    (RETRIEVAL, "model.mixer=softmax", "variant"),
    (RETRIEVAL, "unfreeze=((10, (('.*', 'train'),)),)", "variant"),
    ("--config=configs/mixit/unfreezing.py:thaw=at_100", "unfreeze=()", "thaw"),
]


def test_custom_rules_are_never_recorded_under_the_name_of_a_variant():
    for file, field, label in CUSTOM_RULES:
        args = parse([file, f"--config.{field}"])
        config = flags.to_dict(args.config)
        assert config["arguments"][label] == config["arguments"]["variant"] == "custom", field
        assert "-custom-" in run_name(config, "0" * 12), field
        again = flags.load_with_overrides(args.file, json.loads(dumps(args.overrides)))
        assert dumps(flags.to_dict(again)) == dumps(config), field


def test_formatted_values_are_parsed_back():
    values = {"data.ood": ("mnist",), "data.classes": (3, 2, 1), "optim.learning_rate": (0.1,)}
    overrides = {field: [*value] for field, value in values.items()}
    config = flags.load_with_overrides("configs/attention_paths/oneshot.py", overrides)
    assert values.items() <= flags.flatten_config(config.to_dict()).items()


def test_the_rules_of_a_variant_and_other_fields_keep_its_name():
    own = "--config.partition=(('.*/mix', 'frozen'), ('.*', 'train'))"
    command = parse([RETRIEVAL, own, "--config.model.width=32"])
    assert command.config.arguments.variant == "mixit"


def test_help_lists_the_configs(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "--dry-run" in out
    assert f"configs/mixit/retrieval.py\n      {MANUAL}" in out
    assert out.count("\n  configs/") == len(flags.config_files())


def test_help_of_a_config_is_its_docstring(capsys):
    assert main(["--help", RETRIEVAL]) == 0
    out = capsys.readouterr().out
    assert out.startswith(MANUAL) and "--dry-run" not in out
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
def test_a_record_executes_only_configs_of_this_checkout(tmp_path, monkeypatch, way):
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
        assert touched.exists()  # a file that the user names is executed


BROKEN_CONFIGS = [
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
]


def test_an_error_inside_a_config_is_a_one_line_error(tmp_path):
    failures = []
    for i, (text, message) in enumerate(BROKEN_CONFIGS):
        (tmp_path / f"config{i}.py").write_text(text)
        with pytest.raises(UserError) as error:
            flags.load_config(str(tmp_path / f"config{i}.py"))
        if message not in str(error.value) or "\n" in str(error.value):
            failures.append(f"{text!r}: expected {message!r}, got {error.value}")
    assert not failures


def test_huge_and_infinite_numbers_are_refused():
    for text in ("1e999", "-1e999", "9" * 400, "nan", "[" * 300, "1e300"):
        for field in ("optim.clip", "train.steps", "optim.learning_rate", "unfreeze"):
            with pytest.raises(UserError, match=f"--config.{field} must be"):
                parse([RETRIEVAL, f"--config.{field}={text}"])


def test_repeated_arguments_and_values_are_refused():
    with pytest.raises(UserError, match="argument 'variant' is given 2 times"):
        flags.load_config("configs/mixit/retrieval.py:variant=mixit,scale=tiny,variant=mixit")
    config = "configs/mixit/retrieval.py:scale=tiny"
    for values in (["1e-3", "0.001"], ["1", "1"]):
        with pytest.raises(UserError, match="has a value twice"):
            grids.expand(config, {"optim.learning_rate": values}, {})
    with pytest.raises(UserError, match="the grid makes 1,000,000 runs"):
        many = [str(i) for i in range(1000)]
        grids.expand(config, {"model.layers": many, "model.width": many}, {})


def test_short_names_are_configs_wherever_a_config_is_given(capsys):
    """The name that a command takes as its first word is right behind --config= too."""
    assert flags.load_config("mixit/retrieval:scale=tiny").name == "mixit/retrieval"
    args = parse(["--config=mixit/retrieval:scale=tiny"])
    assert args.file == "configs/mixit/retrieval.py:scale=tiny"  # as records name it
    assert main(["--config=mixit/retrieval", "--help"]) == 0
    assert MANUAL in capsys.readouterr().out
    assert (
        sweep.main(["--config=mixit/retrieval:scale=tiny,variant={standard,mixit}", "--dry-run"])
        == 0
    )
    assert "2 runs" in capsys.readouterr().out
    args = SimpleNamespace(task="", config=completion.config_path("mixit/retrieval"))
    assert litmus.task_of(args) == ("retrieval", "configs/mixit/retrieval.py")
