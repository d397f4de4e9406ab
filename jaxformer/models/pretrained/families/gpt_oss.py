"""gpt-oss: biased experts with a limit, sinks in the softmax, windows in every other block."""

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.families.experts import BALANCE, experts
from jaxformer.models.pretrained.family import Config, Family, Numbers, Windows
from jaxformer.models.pretrained.rotary_fields import read_rotary
from jaxformer.models.pretrained.tensor_names import block_names
from jaxformer.models.pretrained.window_fields import windowed_blocks

NAMES = llama.NAMES | block_names(
    "model.layers.#",
    **{
        "attn": "self_attn",  # the sinks
        "mlp/router": "mlp.router",
        "mlp/expert_@/gate+block_#/mlp/expert_@/in": "mlp.experts.gate_up_proj",
        "mlp/expert_@/out": "mlp.experts.down_proj",
    },
)
BASE = 150_000.0
# The rotary positions of a config.json that has none.
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def windows(config: Config, layers: int) -> Windows:
    """Every other block has the window, beginning with the first."""
    windowed = windowed_blocks(config, layers, [i % 2 == 0 for i in range(layers)])
    return config.get("sliding_window", 128) or 0, windowed


def finish_gpt_oss(config: Config, numbers: Numbers) -> None:
    """YaRN is the default, and MXFP4 the only quantisation (`mxfp4`)."""
    if not (config.get("rope_scaling") or config.get("rope_parameters")):
        scaled = dict(config) | {"rope_parameters": YARN}
        numbers["rotary"] = read_rotary(scaled, numbers["head_width"], 1.0, BASE)
    if not numbers["gate_limit"]:
        raise UserError("swiglu_limit must be above 0, got 0.")
    method = (config.get("quantization_config") or {}).get("quant_method", "mxfp4")
    if method != "mxfp4":
        raise UserError(
            f"quant_method must be 'mxfp4' for gpt_oss, got {one_line(repr(method), 60)}; use the "
            "unquantised model."
        )


FAMILIES = {
    "gpt_oss": Family(
        llama.FIELDS
        | experts("num_local_experts", 128, 4)
        | {"eps": ("rms_norm_eps", 1e-5), "gate_limit": ("swiglu_limit", 7.0)}
        | {"kv_heads": ("num_key_value_heads", 8), "head_width": ("head_dim", 64)}
        | {"qkv_bias": ("attention_bias", True), "out_bias": ("attention_bias", True)},
        llama.GATED_RMS
        | {"act": "quick_gelu", "mlp_bias": True, "normalised_experts": True, "sinks": True},
        NAMES,
        {"swiglu_alpha": (1.702,), "hidden_act": ("silu",)},
        windows=windows,
        base=BASE,
        finish=finish_gpt_oss,
        # Fields of OpenAI's own code repeat others.
        further=("quantization_config", "experts_per_token", "initial_context_length", *BALANCE),
        joined="stacked",
    )
}
