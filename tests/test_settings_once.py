"""A setting has one default: that of the library's dataclass. Configs say only what differs.

The sections data, optim, devices and train of a config are made from their dataclasses. The
sections of models and optimizers are written out, because their classes need JAX; here they are
compared, and what differs on purpose is listed by name.
"""

import dataclasses

import pytest

from configs import common
from experiments.cli import flags
from jaxformer import build
from jaxformer.core import optim
from jaxformer.io.atomic_files import json_value
from jaxformer.models.decoder import DecoderSpec
from jaxformer.models.encoder import EncoderSpec
from tests.test_configs import NAMES, choices

# Fields that each config chooses: sizes, the variant, and the type of numbers.
CHOSEN = {
    DecoderSpec: {"width", "layers", "heads", "mlp_width", "mixer", "learned_positions"},
    EncoderSpec: {"width", "layers", "heads", "beta", "alpha_sa"},
    optim.AdamW: set(),
}
TYPES = {"dtype", "param_dtype"}  # "float32" in configs; the library's `float` follows x64
# What the papers' own scale and the authors' code have instead: their deviation of weights, and the
# fields of `common.authors`.
PAPERS = {"init_std", "qk_init_std", "embed_init_std"}
AUTHORS = {"use_bias", "depth_alpha", "base_layers", "sink_head", "act", "base_width"}
AUTHORS |= {"base_mlp_width", "mixing_scale", "mixing_identity", "residual_scale", "branch_scale"}
# {a config that asks about a field: the field}
ASKED = {
    "configs/mixit/initialisation.py": PAPERS,  # finding 1 by the initial values
    "configs/mixit/qk_scale.py": {"qk_init_std"},
}
DECAYS = {  # configs with another weight decay than the default, which their docstrings give
    "configs/associations/ioi.py": 0.0,
    "configs/attention_paths/oneshot.py": 5e-5,
    "configs/mixit/capacity.py": 1e-4,
    "configs/mixit/memorization.py": 1e-4,
    "configs/mixit/modular_addition.py": 0.1,  # at scale paper
    "configs/text/lm.py": 0.01,  # at scale paper
    "configs/text/masked.py": 0.01,
    "configs/text/yelp.py": 0.01,  # at scale paper
    "configs/two_failure_modes/fig1_losses.py": 0.01,
    "configs/two_failure_modes/fig4_entropy.py": 0.01,
    "configs/two_failure_modes/figC2_low_rate.py": 0.01,
}


def different(section, spec):
    """Returns {field: value} of a section's fields that differ from the dataclass's defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(spec)}
    return {
        name: value
        for name, value in section.items()
        if name != "name" and json_value(value) != json_value(defaults[name])
    }


def test_a_default_in_one_place_only_is_seen():
    changed = dataclasses.make_dataclass(
        "Changed", [("act", str, "gelu")], bases=(DecoderSpec,), frozen=True, kw_only=True
    )
    config = common.training("any", {"variant": "standard", "scale": "small", "preset": "paper"})
    common.decoder(config, width=64, layers=2, heads=4)
    assert different(config.model, changed) == different(config.model, DecoderSpec) | {
        "act": "silu"
    }


def configs():
    """Yields (file, scale, preset, config) of every config that trains a network."""
    for file in NAMES:
        for scale in choices(file).get("scale", ("",)):
            for preset in choices(file).get("preset", ("",)):
                given = {"scale": scale, "preset": preset}
                arguments = ",".join(f"{name}={value}" for name, value in given.items() if value)
                config = flags.load_config(f"{file}:{arguments}")
                if "model" in config and "train" in config:
                    yield file, scale, preset, config


def test_the_sections_of_a_training_are_the_dataclasses():
    config = flags.to_dict(common.training("any", {}))
    for name, kind in build.SETTINGS.items():
        expected = dataclasses.asdict(kind())
        expected |= {"labels": {"train": common.adamw()}} if name == "optim" else {}
        assert json_value(config[name]) == json_value(expected), name


def test_the_written_models_and_optimizers_have_the_defaults_of_their_dataclasses():
    config = common.training("any", {"variant": "standard", "scale": "small", "preset": "paper"})
    common.decoder(config, width=64, layers=2, heads=4)
    assert different(config.model, DecoderSpec).keys() <= CHOSEN[DecoderSpec] | TYPES
    common.encoder(config, width=64, layers=2, heads=4, beta=1.0, alpha_sa=1.0)
    assert different(config.model, EncoderSpec).keys() <= CHOSEN[EncoderSpec] | TYPES
    assert not different(common.adamw(), optim.AdamW)


@pytest.fixture(scope="module")
def loaded():
    return [*configs()]


def test_a_config_differs_from_the_defaults_only_where_it_is_listed(loaded):
    specs = {"decoder": DecoderSpec, "encoder": EncoderSpec}
    unlisted = {}
    for file, scale, preset, config in loaded:
        spec = specs.get(config.model.name)
        if spec is None:
            continue
        allowed = CHOSEN[spec] | TYPES | ASKED.get(file, set()) | {"document_end"}
        if scale == "paper" or preset not in ("", "paper"):
            allowed = allowed | PAPERS
        if preset not in ("", "paper"):
            allowed = allowed | AUTHORS
        if extra := different(config.model, spec).keys() - allowed:
            unlisted[file, scale, preset] = sorted(extra)
    assert not unlisted, "give the dataclass this default, or list the field here with its reason"


def test_weight_decay_differs_only_where_it_is_listed(loaded):
    unlisted = {}
    for file, scale, preset, config in loaded:
        for label, options in config.optim.labels.items():
            if options.name != "adamw":
                continue
            extra = different(options, optim.AdamW)
            if extra.pop("weight_decay", DECAYS.get(file)) != DECAYS.get(file) or extra:
                unlisted[file, scale, preset, label] = options.to_dict()
    assert not unlisted
