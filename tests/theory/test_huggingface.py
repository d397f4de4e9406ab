"""Tests the Architecture of config.json files, and the errors for unsupported ones."""

import json

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import describe
from tests.models.tiny_configs import CONFIGS
from tests.theory import config_json
from theory.signal import huggingface
from theory.signal.backward import backward
from theory.signal.recursion import forward


def read(tmp_path, config, length=None):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return huggingface.read_config(path, length)


@pytest.mark.parametrize("name", ["gelu_new", "swish", "tanh", "linear"])
def test_theory_and_model_read_the_same_activation(tmp_path, name):
    config = CONFIGS["gpt2"] | {"activation_function": name}
    judged = read(tmp_path, config).architecture.activation
    assert describe(config | {"vocab_size": 20}).act == judged


def test_well_known_configs_become_their_architectures(tmp_path):
    bert = read(tmp_path, config_json.BERT)
    assert bert.length == 512 and bert.architecture.input_moments() == pytest.approx((1, 1 / 3))
    assert (
        bert.architecture.describe() == "post-norm, bidirectional, LayerNorm, W_O, hidden 4d, gelu"
    )
    for kind in ("roberta", "electra", "camembert", "xlm-roberta"):
        other = read(tmp_path, config_json.BERT | {"model_type": kind, "type_vocab_size": 1})
        assert other.architecture == bert.architecture
    no_types = read(tmp_path, config_json.BERT | {"type_vocab_size": 0})
    assert no_types.architecture.input_moments()[1] == 0
    assert read(tmp_path, config_json.DISTILBERT).architecture.input_moments()[1] == 0
    small = config_json.BERT | {
        "model_type": "electra",
        "embedding_size": 128,
        "hidden_size": 256,
    }
    small |= {"num_attention_heads": 4}
    assert read(tmp_path, small).architecture.input_moments()[0] == pytest.approx(128 * 0.02**2)

    gpt2 = read(tmp_path, config_json.GPT2).architecture
    assert gpt2.std_o == gpt2.std_2 == pytest.approx(0.02 / 24**0.5) and gpt2.std_v == 0.02
    assert gpt2.mlp_width == 3072 and gpt2.activation == "gelu_tanh"
    assert gpt2.describe() == "pre-norm, causal, LayerNorm, W_O, hidden 4d, gelu_tanh"

    llama = read(tmp_path, config_json.LLAMA).architecture
    assert llama.describe() == (
        "pre-norm, causal, RMSNorm, W_O, hidden 2.75d, gated silu, 32 query and 4 key heads, "
        "rotary positions"
    )
    assert llama.std_position == 0 and llama.head_width == 64

    pythia = read(tmp_path, config_json.PYTHIA).architecture
    assert pythia.parallel and pythia.rotary == 0.25 and pythia.causal

    vit = read(tmp_path, config_json.VIT)
    assert vit.length == 197 and vit.architecture.input_moments()[0] == pytest.approx(0.02**2 * 769)

    t5 = read(tmp_path, config_json.T5).architecture
    assert t5.score_variance == pytest.approx(1) and t5.sigma_v2 == pytest.approx(1)
    assert t5.sigma_2_squared == pytest.approx(1) and t5.activation == "relu" and not t5.gated
    gated = read(tmp_path, config_json.T5 | {"feed_forward_proj": "gated-gelu"}).architecture
    assert gated.gated and gated.activation == "gelu_tanh"


def test_a_bert_that_is_a_decoder_is_causal(tmp_path):
    net = read(tmp_path, config_json.BERT | {"is_decoder": True}).architecture
    assert net.causal
    assert forward(net, 64).entropy[0] < forward(net.replace(causal=False), 64).entropy[0] - 0.5


def test_a_sliding_window_limits_the_length(tmp_path):
    mistral = config_json.LLAMA | {"model_type": "mistral", "sliding_window": 512}
    assert read(tmp_path, mistral).length == 512
    with pytest.raises(UserError, match=r"sliding_window: 512 .* --length 512 is possible"):
        read(tmp_path, mistral, 1024)
    qwen = mistral | {"model_type": "qwen2", "use_sliding_window": False}
    assert read(tmp_path, qwen, 1024).length == 2048


@pytest.mark.parametrize(
    "base, changes, message",
    [
        ("BERT", {"hidden_act": ["gelu"]}, "hidden_act must be the name of an activation"),
        ("BERT", {"hidden_act": "gellu"}, "Did you mean 'gelu'"),
        ("BERT", {"intermediate_size": 0}, "intermediate_size must be a whole number"),
        ("BERT", {"num_hidden_layers": "12"}, "num_hidden_layers must be a whole number"),
        ("BERT", {"hidden_size": True}, "hidden_size must be a whole number"),
        ("BERT", {"hidden_size": None}, "hidden_size must be a whole number"),
        ("BERT", {"num_attention_heads": 11}, "11 heads do not divide the width 768"),
        ("BERT", {"initializer_range": "0.02"}, "initializer_range must be a number"),
        ("BERT", {"initializer_range": float("nan")}, "initializer_range must be a number"),
        ("BERT", {"type_vocab_size": -1}, "type_vocab_size must be"),
        ("BERT", {"position_embedding_type": "relative_key"}, "position_embedding_type: 'relative"),
        ("BERT", {"is_decoder": "yes"}, "is_decoder must be true or false"),
        ("BERT", {"add_cross_attention": True}, "add_cross_attention: True is not supported"),
        ("DISTILBERT", {"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds: True is not"),
        ("GPT2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("T5", {"feed_forward_proj": "gated-"}, "unknown feed_forward_proj"),
        ("BERT", {"model_type": "albert"}, "num_hidden_groups"),
        ("BERT", {"model_type": "mamba"}, "unknown model_type 'mamba'"),
        ("BERT", {"model_type": ["bert"]}, "unknown model_type"),
    ],
)
def test_unsupported_configs_give_one_line_errors(tmp_path, base, changes, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, getattr(config_json, base) | changes)
    assert "\n" not in str(error.value)


def test_every_family_of_the_loader_is_judged(tmp_path):
    """One table of fields serves both; what the recursion leaves out is refused by name."""
    refused = {}
    for kind, config in CONFIGS.items():
        try:
            reading = read(tmp_path, config)
        except UserError as error:
            refused[kind] = str(error)
            continue
        arch, spec = reading.architecture, describe(config | {"vocab_size": 20})
        assert (arch.layers, arch.width, arch.heads) == (spec.layers, spec.width, spec.heads)
        assert arch.causal == spec.causal and arch.gated == spec.gated, kind
        assert np.isfinite(forward(arch, 3).cosine).all(), kind
        assert np.isfinite(backward(arch, 3).size).all(), kind
    with_experts = {kind for kind, config in CONFIGS.items() if "num_experts_per_tok" in config}
    others = {"gpt2_scaled", "gpt2_untied", "falcon_alibi", "falcon_alibi_new"}
    assert set(refused) == others | with_experts and len(with_experts) > 3
    assert "olmoe is not supported: each token uses a few experts" in refused["olmoe"]
    assert "alibi: True is not supported" in refused["falcon_alibi"]
    gemma = read(tmp_path, CONFIGS["gemma3_text"])
    assert gemma.architecture.output_norm and gemma.architecture.qk_norm
    assert gemma.architecture.std_embed == pytest.approx(0.02 * 4) and gemma.length == 3
    assert read(tmp_path, CONFIGS["opt_post"]).architecture.pre_norm is False
    with pytest.raises(UserError, match="a field has the wrong type or size"):
        read(tmp_path, CONFIGS["olmo"] | {"num_attention_heads": "x"})
