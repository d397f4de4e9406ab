"""The config.json of random tiny models: each family, and variants with other settings.

`tiny.tiny(CONFIGS[kind], 24)` is such a model with 24 tokens.
"""

from typing import Any

from jaxformer.models.pretrained.tiny import CONFIGS as OF_THE_LIBRARY

_GPT2, _NEOX, _PHI3 = (OF_THE_LIBRARY[kind] for kind in ("gpt2", "gpt_neox", "phi3"))
_LLAMA = {k: v for k, v in OF_THE_LIBRARY["llama"].items() if k != "rope_scaling"}

_LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [1.5, 4.0]}
_MISTRAL = _LLAMA | {
    "model_type": "mistral",
    "architectures": ["MistralForCausalLM"],
    "sliding_window": 3,
}
for _name in ("attention_bias", "mlp_bias"):
    del _MISTRAL[_name]
_QWEN = {
    **{name: value for name, value in _MISTRAL.items() if name != "sliding_window"},
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "use_sliding_window": False,
    "sliding_window": 3,
    "max_window_layers": 1,
}
_QWEN3 = _QWEN | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
_GEMMA = _MISTRAL | {
    "model_type": "gemma",
    "architectures": ["GemmaForCausalLM"],
    "hidden_act": "gelu",
    "attention_bias": False,
    "num_key_value_heads": 1,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
_GEMMA2 = _GEMMA | {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 3,
    "query_pre_attn_scalar": 12,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 4.0,
}
_GEMMA3 = _GEMMA2 | {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 3,
    "sliding_window_pattern": 3,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
del _GEMMA3["hidden_act"]  # published configs of Gemma 2 have both fields
_OLMO = _LLAMA | {
    "model_type": "olmo",
    "architectures": ["OlmoForCausalLM"],
    "clip_qkv": 0.8,
}
for _name in ("mlp_bias", "rms_norm_eps", "head_dim"):
    del _OLMO[_name]
_OLMO2 = _OLMO | {
    "model_type": "olmo2",
    "architectures": ["Olmo2ForCausalLM"],
    "rms_norm_eps": 1e-6,
}
del _OLMO2["clip_qkv"]
_PHI = _OLMO2 | {
    "model_type": "phi",
    "architectures": ["PhiForCausalLM"],
    "num_attention_heads": 2,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
}
del _PHI["rms_norm_eps"], _PHI["attention_bias"]
_STABLELM = _PHI | {
    "model_type": "stablelm",
    "architectures": ["StableLmForCausalLM"],
    "num_attention_heads": 4,
    "hidden_act": "silu",
    "use_qkv_bias": False,
    "use_parallel_residual": False,
}
_SMOLLM3 = _LLAMA | {
    "model_type": "smollm3",
    "architectures": ["SmolLM3ForCausalLM"],
    "num_hidden_layers": 3,
    "no_rope_layers": [1, 0, 1],
    "use_sliding_window": False,
    "sliding_window": None,
    "pad_token_id": 0,
}
_STARCODER2 = _QWEN | {
    "model_type": "starcoder2",
    "architectures": ["Starcoder2ForCausalLM"],
    "hidden_act": "gelu_pytorch_tanh",
    "norm_epsilon": 1e-5,
    "use_bias": True,
    "sliding_window": None,
    "tie_word_embeddings": True,
}
for _name in ("rms_norm_eps", "use_sliding_window", "max_window_layers", "head_dim"):
    del _STARCODER2[_name]
_GPTJ = _GPT2 | {
    "model_type": "gptj",
    "architectures": ["GPTJForCausalLM"],
    "rotary_dim": 4,
    "tie_word_embeddings": False,
}
_GPT_NEO = {
    "model_type": "gpt_neo",
    "architectures": ["GPTNeoForCausalLM"],
    "max_position_embeddings": 64,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": None,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 3,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_OPT = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "max_position_embeddings": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 24,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "word_embed_proj_dim": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_FALCON = {
    "model_type": "falcon",
    "architectures": ["FalconForCausalLM"],
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "multi_query": True,
    "parallel_attn": True,
    "new_decoder_architecture": False,
    "alibi": False,
    "bias": False,
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_FALCON_NEW = {"new_decoder_architecture": True, "num_kv_heads": 2}
_FALCON_ALIBI = {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
_BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "max_position_embeddings": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
_ROBERTA = _BERT | {
    "model_type": "roberta",
    "architectures": ["RobertaForMaskedLM"],
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
_MIXTRAL = _MISTRAL | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "sliding_window": None,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
# More than twice as many experts as a token uses, so that a plain pass groups tokens.
_OLMOE = _OLMO2 | {
    "model_type": "olmoe",
    "architectures": ["OlmoeForCausalLM"],
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.01,
}
_QWEN3_MOE = {name: value for name, value in _QWEN3.items() if name != "max_window_layers"} | {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 3,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
    "norm_topk_prob": True,
    "mlp_only_layers": [1],
}
_QWEN2_MOE = _QWEN3_MOE | {
    "model_type": "qwen2_moe",
    "architectures": ["Qwen2MoeForCausalLM"],
    "shared_expert_intermediate_size": 20,
    "norm_topk_prob": False,
    "mlp_only_layers": [],
    "decoder_sparse_step": 2,
    "head_dim": 4,
}
# Widths that are no multiples of each other, a limit that most units meet, and one window in two.
_GPT_OSS = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "max_position_embeddings": 64,
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 28,
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "swiglu_limit": 0.7,
    "sliding_window": 4,
    "rope_theta": 150000.0,
    "rope_scaling": _YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2,
    "gpt_neox": _NEOX,
    "gpt_neox_serial": _NEOX | {"use_parallel_residual": False, "rotary_pct": 1.0},
    "llama": OF_THE_LIBRARY["llama"],
    "llama2": _LLAMA | {"num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": True},
    "llama_biased": _LLAMA | {"attention_bias": True, "mlp_bias": True},
    "phi3": _PHI3,
    "phi3_long": _PHI3
    | {"sliding_window": None, "rope_scaling": _LONGROPE, "original_max_position_embeddings": 8},
    "llama_linear": _LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama_dynamic": _LLAMA
    | {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 8},
    "llama_yarn": _LLAMA | {"rope_scaling": _YARN},
    "gpt2_scaled": _GPT2 | {"scale_attn_by_inverse_layer_idx": True},
    "gpt2_unscaled": _GPT2 | {"scale_attn_weights": False},
    "gpt2_untied": _GPT2
    | {"tie_word_embeddings": False, "n_inner": 20, "scale_attn_weights": False}
    | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": False},
    "mistral": _MISTRAL,
    "mistral_full": _MISTRAL | {"sliding_window": None, "num_key_value_heads": 1},
    "qwen2": _QWEN | {"tie_word_embeddings": True},
    "qwen2_window": _QWEN | {"use_sliding_window": True},
    "qwen3": _QWEN3,
    "qwen3_biased": _QWEN3 | {"attention_bias": True, "rope_scaling": _YARN},
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma2_uncapped": _GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "gemma3_text": _GEMMA3,
    "olmo": _OLMO,
    "olmo2": _OLMO2,
    "phi": _PHI,
    "phi_normed": _PHI | {"qk_layernorm": True},
    "gptj": _GPTJ,
    "gpt_neo": _GPT_NEO,
    "opt": _OPT,
    "opt_post": _OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 8},
    "opt_plain": _OPT | {"layer_norm_elementwise_affine": False, "enable_bias": False},
    "falcon": _FALCON,
    "falcon_new": _FALCON | _FALCON_NEW,
    "falcon_one_norm": _FALCON | _FALCON_NEW | {"num_ln_in_parallel_attn": 1},
    "falcon_alibi_new": _FALCON
    | _FALCON_NEW
    | {"bias": True, "alibi": True, "num_kv_heads": 6, "tie_word_embeddings": False},
    "falcon_alibi": _FALCON | _FALCON_ALIBI,
    "stablelm": _STABLELM,
    "stablelm_parallel": _STABLELM
    | {"use_parallel_residual": True, "use_qkv_bias": True, "qk_layernorm": True},
    "smollm3": _SMOLLM3,
    "smollm3_window": _SMOLLM3 | {"use_sliding_window": True, "sliding_window": 3},
    "starcoder2": _STARCODER2,
    "starcoder2_window": _STARCODER2 | {"sliding_window": 3, "use_bias": False},
    "bert": _BERT,
    "bert_states": _BERT | {"architectures": ["BertModel"]},
    "roberta": _ROBERTA,
    "mixtral": _MIXTRAL,
    "mixtral_window": _MIXTRAL | {"sliding_window": 3, "num_experts_per_tok": 1},
    "olmoe": _OLMOE,
    "olmoe_clipped": _OLMOE | {"clip_qkv": 0.8, "norm_topk_prob": True},
    "qwen2_moe": _QWEN2_MOE,
    "qwen3_moe": _QWEN3_MOE,
    "gpt_oss": _GPT_OSS,
    "gpt_oss_plain": _GPT_OSS
    | {"rope_scaling": None, "attention_bias": False, "layer_types": ["full_attention"] * 3},
}
