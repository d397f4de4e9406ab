"""Mixtures of experts: Mixtral, OLMoE, Qwen2-MoE and Qwen3-MoE."""

from jaxformer.models.pretrained.families.llama import FIELDS, GATED_RMS, NAMES
from jaxformer.models.pretrained.family import ATTENTION_BIAS, Config, Family, Numbers
from jaxformer.models.pretrained.tensor_names import block_names
from jaxformer.models.pretrained.window_fields import uniform_window

# Settings of the losses that balance the experts in training, which no logit depends on.
BALANCE = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
EXPERT_NAMES = NAMES | block_names(
    "model.layers.#.mlp",
    **{
        "mlp/router": "gate",
        "mlp/expert_@/gate": "experts.@.gate_proj",
        "mlp/expert_@/in": "experts.@.up_proj",
        "mlp/expert_@/out": "experts.@.down_proj",
        "mlp/shared_gate": "shared_expert_gate",
        "mlp/shared/gate": "shared_expert.gate_proj",
        "mlp/shared/in": "shared_expert.up_proj",
        "mlp/shared/out": "shared_expert.down_proj",
    },
)
MIXTRAL_NAMES = NAMES | block_names(
    "model.layers.#.block_sparse_moe",
    **{
        "mlp/router": "gate",
        "mlp/expert_@/gate": "experts.@.w1",
        "mlp/expert_@/in": "experts.@.w3",
        "mlp/expert_@/out": "experts.@.w2",
    },
)


def experts(number: str, total: int, per_token: int) -> dict[str, tuple[str, int]]:
    """The fields of the numbers of experts, and their defaults."""
    return {"experts": (number, total), "experts_per_token": ("num_experts_per_tok", per_token)}


def sparse_blocks(config: Config, numbers: Numbers) -> None:
    """Every n-th block has experts, except the blocks that config.json lists."""
    step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    numbers["sparse"] = tuple(
        i not in dense and (i + 1) % step == 0 for i in range(numbers["layers"])
    )


QWEN = ("decoder_sparse_step", "mlp_only_layers", "sliding_window", "max_window_layers")
FAMILIES = {
    "mixtral": Family(
        FIELDS | experts("num_local_experts", 8, 2) | {"eps": ("rms_norm_eps", 1e-5)},
        GATED_RMS | {"normalised_experts": True},
        MIXTRAL_NAMES,
        windows=uniform_window(0),
        base=1_000_000.0,
        further=BALANCE,
    ),
    "olmoe": Family(
        FIELDS
        | ATTENTION_BIAS
        | experts("num_experts", 64, 8)
        | {"eps": ("rms_norm_eps", 1e-5), "clip": ("clip_qkv", None)}
        | {"normalised_experts": ("norm_topk_prob", False)},
        GATED_RMS | {"qk_norm": "width"},
        EXPERT_NAMES,
        further=BALANCE,
    ),
    "qwen2_moe": Family(
        FIELDS
        | experts("num_experts", 60, 4)
        | {"expert_width": ("moe_intermediate_size", 1408)}
        | {"shared_width": ("shared_expert_intermediate_size", 5632)}
        | {"normalised_experts": ("norm_topk_prob", False), "qkv_bias": ("qkv_bias", True)},
        GATED_RMS,
        EXPERT_NAMES,
        {"use_sliding_window": (False,)},
        finish=sparse_blocks,
        further=(*QWEN, *BALANCE),
    ),
    "qwen3_moe": Family(
        FIELDS
        | ATTENTION_BIAS
        | experts("num_experts", 128, 8)
        | {"expert_width": ("moe_intermediate_size", 768)}
        | {"normalised_experts": ("norm_topk_prob", False)},
        GATED_RMS | {"qk_norm": "head"},
        EXPERT_NAMES,
        {"use_sliding_window": (False,)},
        finish=sparse_blocks,
        further=(*QWEN, *BALANCE),
    ),
}
