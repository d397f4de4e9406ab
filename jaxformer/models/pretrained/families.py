"""The families of published models: how each config.json determines the numbers of a network.

A number of a network is an argument of `PretrainedSpec`, which explains it.
`FAMILIES` has one row for each model_type. The loader (`jaxformer.models.pretrained`) and the
advisor (`theory.signal.huggingface`) read this table. Defaults are those of transformers. This
module does not import jax.

    fields     {number of the network: (field of config.json, default)}
    constants  {number of the network: its value in this family}
    only       {field: its supported values}
    windows    a function that reads which blocks attend to a window of tokens
    rotary     the share of a head that rotates by default; None: no rotary positions, unless
               `finish` adds them
    partial    whether config.json may change this share
    base       the default base of the rotary positions
    finish     a function that reads further fields and changes the numbers
    further    the fields that `finish` or `windows` reads, except WINDOW_FIELDS

A field that no column names is refused, unless it is empty or has no effect
(`config_fields.HARMLESS`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxformer.models.pretrained.config_fields import (
    ROTARY_FIELDS,
    Config,
    Numbers,
    alternating_windows,
    gemma3_windows,
    gpt_neo_windows,
    qwen_windows,
    smollm3_windows,
    uniform_window,
)
from jaxformer.models.pretrained.special_fields import (
    finish_encoder,
    finish_falcon,
    finish_gemma,
    finish_gemma3,
    finish_gpt2,
    finish_gptj,
    finish_opt,
    finish_smollm3,
    finish_stablelm,
    per_head_norm,
    refuse_head_dim,
)

REQUIRED = object()  # the default of a field without which a config is incomplete


@dataclass(frozen=True)
class Family:
    """A row of the table; the module's docstring explains the columns."""

    fields: dict[str, tuple[str, Any]]
    constants: dict[str, Any] = field(default_factory=dict)
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    windows: Callable[[Config, int], tuple[int, tuple[bool, ...]]] | None = None
    rotary: float | None = 1.0
    partial: bool = False
    base: float = 10_000.0
    finish: Callable[[Config, Numbers], None] | None = None
    further: tuple[str, ...] = ()


# Entries that several families share. SIZES to LLAMA and GPT belong to the column `fields`,
# GATED_RMS to ALL_BIASES to the column `constants`.
SIZES = {
    "vocab_size": ("vocab_size", REQUIRED),
    "length": ("max_position_embeddings", REQUIRED),
    "width": ("hidden_size", REQUIRED),
    "layers": ("num_hidden_layers", REQUIRED),
    "heads": ("num_attention_heads", REQUIRED),
    "mlp_width": ("intermediate_size", REQUIRED),
    "init_std": ("initializer_range", 0.02),
}
UNTIED = {"tied": ("tie_word_embeddings", False)}
TIED = {"tied": ("tie_word_embeddings", True)}
GROUPED = {"kv_heads": ("num_key_value_heads", None), "head_width": ("head_dim", None)}
ATTENTION_BIAS = {"qkv_bias": ("attention_bias", False), "out_bias": ("attention_bias", False)}
MLP_BIAS = {"mlp_bias": ("mlp_bias", False)}
SILU = {"act": ("hidden_act", "silu")}
RMS = {"eps": ("rms_norm_eps", 1e-6)}
LLAMA = SIZES | GROUPED | UNTIED | SILU | RMS
GATED_RMS = {"norm": "rms", "gated": True}
GEMMA = GATED_RMS | {"gain_offset": 1.0}
ALL_BIASES = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
GPT = {  # the names of fields in GPT-2 and GPT-J
    "vocab_size": ("vocab_size", REQUIRED),
    "length": ("n_positions", REQUIRED),
    "width": ("n_embd", REQUIRED),
    "layers": ("n_layer", REQUIRED),
    "heads": ("n_head", REQUIRED),
    "mlp_width": ("n_inner", None),
    "eps": ("layer_norm_epsilon", 1e-5),
    "act": ("activation_function", "gelu_new"),
    "init_std": ("initializer_range", 0.02),
}
BERT = Family(
    SIZES
    | TIED
    | {"eps": ("layer_norm_eps", 1e-12), "act": ("hidden_act", "gelu")}
    | {"types": ("type_vocab_size", 2)},
    ALL_BIASES
    | {"norm_at": "sum", "final_norm": False, "embed_norm": True, "learned_positions": True},
    {"position_embedding_type": ("absolute",), "tie_word_embeddings": (True,)},
    rotary=None,
    finish=finish_encoder,
    further=("is_decoder", "architectures", "pad_token_id"),
)
FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": BERT,
    "falcon": Family(
        SIZES
        | TIED
        | {"mlp_width": ("ffn_hidden_size", None), "kv_heads": ("num_kv_heads", None)}
        | {"length": ("max_position_embeddings", 2048), "act": ("activation", "gelu")}
        | {"eps": ("layer_norm_epsilon", 1e-5), "alibi": ("alibi", False)}
        | {name: ("bias", False) for name in ALL_BIASES},
        finish=finish_falcon,
        further=(
            "new_decoder_architecture",
            "multi_query",
            "parallel_attn",
            "head_dim",
            "num_ln_in_parallel_attn",
        ),
    ),
    "gemma": Family(
        LLAMA | TIED | ATTENTION_BIAS | {"act": ("hidden_act", "gelu_pytorch_tanh")},
        GEMMA,
        {"hidden_activation": ("gelu_pytorch_tanh",), "use_bidirectional_attention": (False,)},
        finish=finish_gemma,
    ),
    "gemma2": Family(
        LLAMA
        | TIED
        | ATTENTION_BIAS
        | {"act": ("hidden_activation", "gelu_pytorch_tanh")}
        | {"score_cap": ("attn_logit_softcapping", 50.0)}
        | {"logit_cap": ("final_logit_softcapping", 30.0)},
        GEMMA | {"norm_at": "both"},
        {"use_bidirectional_attention": (False,)},
        windows=alternating_windows,
        finish=finish_gemma,
        further=("query_pre_attn_scalar",),
    ),
    "gemma3_text": Family(
        LLAMA
        | TIED
        | ATTENTION_BIAS
        | {"act": ("hidden_activation", "gelu_pytorch_tanh")}
        | {"logit_cap": ("final_logit_softcapping", None)},
        GEMMA | {"norm_at": "both", "qk_norm": "head"},
        {"use_bidirectional_attention": (False,)},
        windows=gemma3_windows,
        rotary=None,
        finish=finish_gemma3,
        further=("query_pre_attn_scalar", "rope_local_base_freq", *ROTARY_FIELDS),
    ),
    "gpt2": Family(
        GPT | TIED | {"scale_by_layer": ("scale_attn_by_inverse_layer_idx", False)},
        ALL_BIASES | {"learned_positions": True},
        {"add_cross_attention": (False,)},
        rotary=None,
        finish=finish_gpt2,
        further=("scale_attn_weights", "reorder_and_upcast_attn"),
    ),
    "gpt_neo": Family(
        GPT
        | TIED
        | {"length": ("max_position_embeddings", REQUIRED), "width": ("hidden_size", REQUIRED)}
        | {"layers": ("num_layers", REQUIRED), "heads": ("num_heads", REQUIRED)}
        | {"mlp_width": ("intermediate_size", None)},
        {"out_bias": True, "mlp_bias": True, "learned_positions": True, "score_scale": 1.0},
        windows=gpt_neo_windows,
        rotary=None,
        further=("attention_types", "attention_layers", "window_size"),
    ),
    "gpt_neox": Family(
        SIZES
        | UNTIED
        | {"eps": ("layer_norm_eps", 1e-5), "act": ("hidden_act", "gelu")}
        | {"parallel": ("use_parallel_residual", True), "qkv_bias": ("attention_bias", True)}
        | {"out_bias": ("attention_bias", True)},
        {"mlp_bias": True},
        finish=refuse_head_dim,
        further=("head_dim",),
        rotary=0.25,
        partial=True,
    ),
    "gptj": Family(
        GPT | UNTIED,
        {"mlp_bias": True, "unembed_bias": True, "parallel": True, "shared_norm": True},
        rotary=None,
        finish=finish_gptj,
        further=("rotary_dim", "rotary"),
    ),
    "llama": Family(LLAMA | ATTENTION_BIAS | MLP_BIAS, GATED_RMS),
    "mistral": Family(LLAMA, GATED_RMS, windows=uniform_window(4096)),
    "olmo": Family(
        {name: field for name, field in LLAMA.items() if name != "eps"}
        | ATTENTION_BIAS
        | {"clip": ("clip_qkv", None)},
        {"gated": True, "norm_params": False, "eps": 1e-5},
    ),
    "olmo2": Family(
        LLAMA | ATTENTION_BIAS | {"eps": ("rms_norm_eps", 1e-5)},
        GATED_RMS | {"norm_at": "output", "qk_norm": "width"},
    ),
    "opt": Family(
        SIZES
        | TIED
        | {"mlp_width": ("ffn_dim", REQUIRED), "act": ("activation_function", "relu")}
        | {"init_std": ("init_std", 0.02), "norm_params": ("layer_norm_elementwise_affine", True)}
        | {name: ("enable_bias", True) for name in ALL_BIASES},
        {"learned_positions": True, "position_offset": 2, "eps": 1e-5},
        rotary=None,
        finish=finish_opt,
        further=("do_layer_norm_before", "_remove_final_layer_norm", "word_embed_proj_dim"),
    ),
    "phi": Family(
        SIZES
        | GROUPED
        | UNTIED
        | {"eps": ("layer_norm_eps", 1e-5), "act": ("hidden_act", "gelu_new")},
        ALL_BIASES | {"unembed_bias": True, "parallel": True, "shared_norm": True},
        rotary=0.5,
        partial=True,
        finish=per_head_norm("head"),
        further=("qk_layernorm",),
    ),
    "phi3": Family(
        LLAMA | {"eps": ("rms_norm_eps", 1e-5)},
        GATED_RMS,
        windows=uniform_window(None),
        partial=True,
    ),
    "qwen2": Family(LLAMA, GATED_RMS | {"qkv_bias": True}, windows=qwen_windows),
    "qwen3": Family(LLAMA | ATTENTION_BIAS, GATED_RMS | {"qk_norm": "head"}, windows=qwen_windows),
    "smollm3": Family(
        LLAMA | TIED | ATTENTION_BIAS | MLP_BIAS,
        GATED_RMS,
        windows=smollm3_windows,
        base=2_000_000.0,
        finish=finish_smollm3,
        further=("no_rope_layers", "no_rope_layer_interval"),
    ),
    "stablelm": Family(
        SIZES
        | GROUPED
        | UNTIED
        | SILU
        | {"eps": ("layer_norm_eps", 1e-5), "qkv_bias": ("use_qkv_bias", False)}
        | {"parallel": ("use_parallel_residual", False)},
        {"gated": True},
        finish=finish_stablelm,
        further=("qk_layernorm",),
        rotary=0.25,
        partial=True,
    ),
    "starcoder2": Family(
        SIZES
        | GROUPED
        | TIED
        | {"eps": ("norm_epsilon", 1e-5), "act": ("hidden_act", "gelu_pytorch_tanh")}
        | {"init_std": ("initializer_range", 0.018042)}
        | {name: ("use_bias", True) for name in ALL_BIASES},
        windows=uniform_window(None),
    ),
}
