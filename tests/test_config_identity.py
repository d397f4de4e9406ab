"""The identity of a record is its config without labels and defaults."""

import copy
import dataclasses
import json
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from experiments.cli import flags
from jaxformer import build
from jaxformer.core import settings
from jaxformer.io.run_folder import config_hash

CONFIG = "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
GOLDEN = json.loads((Path(__file__).parent / "reference/config_hashes.json").read_text())


def plain(text=CONFIG, **overrides):
    return flags.to_dict(flags.load_with_overrides(text, overrides))


def hash_of(config):
    return config_hash(build.config_identity(config))


def with_option(noun):
    """Returns the dataclass with one more option, which is off by default."""
    return dataclasses.make_dataclass(
        noun.__name__, [("new_option", bool, False)], bases=(noun,), frozen=True, kw_only=True
    )


# section -> what a later version of the code would put in place of its dataclass
LATER = {
    "model": ("MODELS", "decoder", lambda held: (held[0], with_option(held[1]))),
    "task": ("TASKS", "retrieval", with_option),
    "train": ("SETTINGS", "train", with_option),
    "data": ("SETTINGS", "data", with_option),
    "optim": ("SETTINGS", "optim", with_option),
}


def test_a_new_option_moves_a_hash_only_where_it_is_on(monkeypatch):
    before = hash_of(plain())
    for section, (table, name, later) in LATER.items():
        config = plain()
        monkeypatch.setitem(getattr(build, table), name, later(getattr(build, table)[name]))
        config[section]["new_option"] = False  # written out, as configs/common.py does
        assert hash_of(config) == before == hash_of(plain()), section
        config[section]["new_option"] = True
        assert hash_of(config) != before, section


def test_a_new_option_of_an_optimizer_moves_no_hash(monkeypatch):
    before, config = hash_of(plain()), plain()
    monkeypatch.setitem(build.OPTIMIZERS, "adamw", with_option(build.OPTIMIZERS["adamw"]))
    config["optim"]["labels"]["train"]["new_option"] = False
    assert hash_of(config) == before


def test_labels_are_not_said_and_the_config_stays_whole():
    config = plain()
    whole = copy.deepcopy(config)
    identity = build.config_identity(config)
    assert config == whole and "arguments" not in identity
    assert identity["task"] == {"name": "retrieval"} and "devices" not in identity
    assert identity["data"] == {"test_size": 4000, "split": "hash"}
    assert identity["train"] == {"target": 0.999}
    assert identity["optim"]["labels"] == {"train": {"name": "adamw", "weight_decay": 1e-3}}
    assert hash_of(config | {"arguments": {"scale": "other"}}) == hash_of(config)
    assert hash_of(plain(**{"devices.fsdp": "2"})) != hash_of(config)


def test_a_section_of_its_own_is_said_whole():
    oneshot = plain("configs/attention_paths/oneshot.py:scale=small")
    posterior = plain("configs/attention_paths/posterior.py:scale=small")
    identity = build.config_identity(oneshot) | {"task": build.config_identity(posterior)["task"]}
    for name in ("data", "model", "bayes"):
        later = build.FIELDS_OFF.get(name, {})
        assert identity[name] == {n: v for n, v in oneshot[name].items() if n not in later}
    assert identity["task"] == posterior["task"]


def test_a_later_field_of_a_section_without_a_class_moves_no_hash_while_it_is_off():
    fields = [(s, f, off) for s, fields in build.FIELDS_OFF.items() for f, off in fields.items()]
    for section, field, off in fields:
        config = plain()
        config[section] = {**config.get(section, {}), "some": 1}
        before = hash_of(config)
        config[section][field] = off
        assert hash_of(config) == before, (section, field)
        config[section][field] = [off, "on"]
        assert hash_of(config) != before, (section, field)


def test_golden_hashes():
    hashes = {config: hash_of(plain(config)) for config in GOLDEN["hashes"]}
    assert hashes == GOLDEN["hashes"], GOLDEN["what a change means"]


def test_a_changed_default_that_a_config_relied_on_moves_a_golden_hash(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Longer(settings.TrainSettings):
        steps: int = 2000

    before = hash_of(plain())
    monkeypatch.setitem(build.SETTINGS, "train", Longer)
    assert hash_of(plain()) != before


FIELDS = {field.name: field.default for field in dataclasses.fields(settings.TrainSettings)}
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from([default, 7 if isinstance(default, int) else default])
        for name, default in FIELDS.items()
    },
)


@hypothesis.given(SECTIONS)
@hypothesis.settings(derandomize=True, deadline=None, max_examples=50)
def test_defaults_are_left_out_and_can_be_restored(section):
    identity = build._without_defaults(section, settings.TrainSettings)
    assert identity == {name: v for name, v in section.items() if v != FIELDS[name]}
    assert build._without_defaults(identity, settings.TrainSettings) == identity
    assert FIELDS | identity == FIELDS | section
    backwards = dict(reversed(section.items()))
    assert config_hash(build._without_defaults(backwards, settings.TrainSettings)) == config_hash(
        identity
    )
