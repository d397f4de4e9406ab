"""Every family of published models has the logits of transformers for the same weights."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import capture
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.generation import generate
from jaxformer.models.pretrained import Pretrained, describe, families, save_folder, tiny
from jaxformer.models.pretrained.families import FAMILIES
from tests.models.families import REAL, TOKENS, VOCAB, padded
from tests.models.published_configs import PUBLISHED
from tests.models.tiny_configs import CONFIGS

ROOT = Path(__file__).parents[1]
REFERENCE = np.load(ROOT / "reference/families.npz")
TOLERANCE = 1e-5  # of the logits' standard deviation


def error_of(logits, kind, name):
    expected = REFERENCE[f"{kind}/{name}"]
    return np.abs(np.asarray(logits) - expected)[REAL].max() / expected.std()


def check(kinds, compiled=lambda apply: apply):
    """Compares logits of a padded sequence and lists all failures."""
    failures = {}
    for kind in kinds:
        model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
        apply = compiled(model.apply)
        logits = apply({"params": params}, jnp.asarray(padded(kind)), None, REAL)
        if not (error := error_of(logits, kind, "padded")) < TOLERANCE:
            failures[kind] = f"{error:.1e}"
    assert not failures


def test_logits_of_the_most_different_families():
    assert set(FAMILIES) <= set(CONFIGS)
    check(["bert", "falcon_new", "gemma2"], jax.jit)


def test_a_family_is_in_one_file():
    """A second row of a model_type, or of an architecture of GGUF, would replace the first."""
    modules = [
        import_module(f"{families.__name__}.{m.name}") for m in iter_modules(families.__path__)
    ]
    rows = [row for module in modules for row in module.FAMILIES.items()]
    assert sorted(kind for kind, _ in rows) == sorted(FAMILIES)
    architectures = [family.gguf.architecture for _, family in rows if family.gguf]
    assert len({*architectures}) == len(architectures) == 11


def test_a_family_that_joins_tensors_says_how():
    for kind, family in FAMILIES.items():
        assert bool(family.joined) == any("+" in modules for modules in family.names), kind


@pytest.mark.slow
def test_logits_of_every_family_and_variant():
    check(CONFIGS)  # without jit: models of the same shapes share the compiled operations
    for kind in CONFIGS:
        model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
        logits = model.apply({"params": params}, jnp.asarray(TOKENS))
        assert error_of(logits, kind, "logits") < TOLERANCE, kind


@pytest.mark.slow
def test_greedy_tokens_of_every_variant():
    """Generates six tokens with a cache."""
    failures = []
    for kind in CONFIGS:
        if f"{kind}/greedy" in REFERENCE:
            model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
            tokens = jnp.asarray(TOKENS, jnp.int32)
            result = generate(model, params, tokens, new=6).tokens
            if not np.array_equal(result, REFERENCE[f"{kind}/greedy"]):
                failures.append(kind)
    assert not failures


def test_saved_folders_load_with_equal_bits(tmp_path):
    for kind in ("bert", "falcon_new", "gemma3_text", "opt_post", "stablelm_parallel"):
        model, params, config = tiny.tiny(CONFIGS[kind], VOCAB)
        folder = save_folder(tmp_path / kind, model, params, config)
        again_model, again, _ = jaxformer.load(folder)
        assert replace(again_model.spec, dtype=float, param_dtype=float) == model.spec, kind
        again = paths.flatten(again)
        for path, leaf in paths.flatten(params).items():
            np.testing.assert_array_equal(again[path], leaf, err_msg=f"{kind} {path}")


@pytest.mark.slow
def test_the_reference_is_that_of_transformers(tmp_path):
    """Makes the reference again if transformers is installed, which also reads our folders."""
    pytest.importorskip("transformers")
    folders, file = tmp_path / "folders", tmp_path / "families.npz"
    for kind in CONFIGS:
        tiny.save(CONFIGS[kind], folders / kind, vocab=VOCAB)
    script = ROOT / "reference/make_families.py"
    subprocess.run([sys.executable, script, folders, file], check=True)
    again = np.load(file)
    assert set(again.files) == set(REFERENCE.files)
    for name in again.files:
        np.testing.assert_allclose(again[name], REFERENCE[name], atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_each_number_of_a_family_changes_the_logits():
    """Otherwise a setting that the network ignores would go unnoticed."""
    changes = [
        ("gemma2", {"score_cap": 0.0}),
        ("gemma2", {"logit_cap": 0.0}),
        ("gemma2", {"score_scale": 1.0}),
        ("gemma2", {"windowed": (False, True)}),
        ("gemma3_text", {"local_rotary": None}),
        ("gemma", {"embed_scale": 1.0}),
        ("gemma", {"gain_offset": 0.0}),
        ("gptj", {"rotary": tiny.tiny(CONFIGS["phi"], VOCAB)[0].spec.rotary}),
        ("gpt2_scaled", {"scale_by_layer": False}),
        ("olmo", {"clip": 0.0}),
        ("smollm3", {"rotated": ()}),
        ("falcon_alibi", {"alibi": False}),
        ("opt", {"position_offset": 2, "act": "gelu"}),
        ("bert", {"causal": True}),
        ("gpt_oss", {"sinks": False}),
        ("gpt_oss", {"gate_limit": 0.0}),
        ("gpt_oss", {"mlp_bias": False}),
    ]
    unseen = []
    for kind, change in changes:
        model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
        other = Pretrained(replace(model.spec, **change))
        logits = other.apply({"params": params}, jnp.asarray(padded(kind)), None, REAL)
        if error_of(logits, kind, "padded") < 100 * TOLERANCE:
            unseen.append((kind, change))
    assert not unseen


@pytest.mark.parametrize("kind", ["gemma2", "bert_states"])
def test_addresses_of_norms_after_branches(kind):
    model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
    names = capture.names(model, params)
    assert ("block_1/attn_output_norm/output" in names) == (kind == "gemma2")
    assert names[-1] == ("logits" if kind == "gemma2" else "final")
    assert {"block_1/between", "block_1/states"} <= set(names)


REFUSED = [
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported"),
    ("llama", {"sliding_window": 8}, "sliding_window: 8 is not supported for llama"),
    ("llama", {"residual_multiplier": 0.2}, "residual_multiplier: 0.2 is not supported"),
    ("llama", {"logit_scale": 0.06}, "logit_scale: 0.06"),
    ("llama", {"use_qk_norm": True}, "use_qk_norm: True"),
    ("qwen2", {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 2 layers"),
    ("qwen3", {"layer_types": ["chunked_attention"] * 2}, "unknown layer_types 'chunked"),
    ("mistral", {"attention_bias": True}, "attention_bias: True is not supported for mistral"),
    ("mistral", {"layer_types": ["full_attention"] * 2}, "layer_types are not supported"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be"),
    (
        "gemma3_text",
        {"attn_logit_softcapping": 2.0},
        "attn_logit_softcapping: 2.0 is not supported",
    ),
    ("gemma", {"hidden_activation": "silu"}, "hidden_activation must be 'gelu_pytorch_tanh'"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn: 2"),
    ("falcon_new", {"parallel_attn": False}, "parallel_attn: False"),
    ("gpt_neo", {"attention_types": [[["global"], 1]]}, "has 1 entries for 2 layers"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers has 1 entries for 3 layers"),
    ("stablelm", {"head_dim": 8}, "head_dim: 8 is not supported"),
    ("gpt_neox", {"head_dim": 16}, "head_dim: 16 is not supported"),
    ("falcon", {"head_dim": 8}, "head_dim: 8 is not supported"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type must be"),
    ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
    ("llama", {"hidden_act": "silo"}, "Did you mean 'silu'"),
    ("llama", {"rope_scaling": {"rope_type": "proportional"}}, "rotary scaling 'proportional'"),
    ("gptj", {"model_type": "gpt_bigcode"}, "'gpt_bigcode' is not supported. Supported are: bert"),
    ("phi", {"model_type": "phi4"}, "'phi4' is not supported. Supported are: bert"),
    ("olmoe", {"quantization_config": {"quant_method": "mxfp4"}}, "quantised weights are not"),
    ("gpt_oss", {"quantization_config": {"quant_method": "fp8"}}, "must be 'mxfp4' for gpt_oss"),
    ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha must be 1.702, got 1.0"),
    ("gpt_oss", {"swiglu_limit": 0.0}, "swiglu_limit must be above 0, got 0"),
    ("gpt_oss", {"num_experts_per_tok": 8}, "between 1 and all 7 experts"),
    ("bert", {"model_type": "t5"}, "'t5' is not supported: cross attention reads the output of an"),
    ("bert", {"model_type": "vit"}, "'vit' is not supported: patches of an image take the place"),
]


def test_unsupported_fields_are_named_in_one_line():
    accepted = []
    for kind, fields, message in REFUSED:
        try:
            describe(CONFIGS[kind] | {"vocab_size": VOCAB} | fields)
            accepted.append((kind, fields))
        except UserError as error:
            assert message in str(error) and "\n" not in str(error)
            # A similar name would be another architecture.
            assert "model_type" not in fields or "Did you mean" not in str(error)
    assert not accepted


def test_fields_without_an_effect_are_ignored():
    harmless = {
        **{"attn_pdrop": 0.1, "hidden_dropout": 0.1, "bos_token_id": 5, "torch_dtype": "bfloat16"},
        **{"_name_or_path": "x", "temperature": 0.7, "use_cache": True, "auto_map": {"a": "b"}},
        **{"logit_scale": 1.0, "clip_qkv": None, "qk_layernorm": False, "pretraining_tp": 2},
    }
    for kind in FAMILIES:
        config = CONFIGS[kind] | {"vocab_size": VOCAB}
        fields = {name: x for name, x in harmless.items() if name not in config}
        assert describe(config | fields) == describe(config)
    assert json.loads(json.dumps(CONFIGS)) == CONFIGS


# What the reference implementation computes, where a published config has two fields for it.
ACTIVATIONS = {"google/gemma-2-2b": "gelu_tanh", "bigcode/starcoder2-3b": "gelu_tanh"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_as_it_is_published_is_read(name):
    config = PUBLISHED[name]
    spec = describe(config)
    assert spec.family == config["model_type"] and spec.vocab_size == config["vocab_size"]
    assert spec.act == ACTIVATIONS.get(name, spec.act)


def test_every_family_has_a_published_config():
    assert {config["model_type"] for config in PUBLISHED.values()} == {*FAMILIES}


@pytest.mark.parametrize(
    "name, field, value",
    [
        ("google/gemma-2-2b", "hidden_act", "gelu"),
        ("bigcode/starcoder2-3b", "mlp_type", "gated"),
        ("bigcode/starcoder2-3b", "norm_type", "rms_norm"),
        ("EleutherAI/gpt-j-6b", "scale_attn_weights", False),
    ],
)
def test_a_second_field_that_says_something_else_is_refused(name, field, value):
    with pytest.raises(UserError, match=f"{field} must be .*, got {value!r}"):
        describe(PUBLISHED[name] | {field: value})
