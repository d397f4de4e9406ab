"""StarCoder2: Llama with LayerNorm, biases and an MLP without a gate."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.family import ALL_BIASES, GGUF, GROUPED, SIZES, TIED, Family
from jaxformer.models.pretrained.tensor_names import block_names
from jaxformer.models.pretrained.window_fields import uniform_window

EPSILON = "attention.layer_norm_epsilon"


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    return {
        "norm_epsilon": value(EPSILON),
        "hidden_act": "gelu_pytorch_tanh",
        "sliding_window": value("attention.sliding_window"),
    }


# Fields of published configs that the model does not read, with the values that say what it does.
ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu", "gelu_pytorch_tanh"),  # the model reads hidden_act
    "layer_norm_epsilon": (1e-5,),  # the model reads norm_epsilon
    "mlp_type": ("default",),
    "norm_type": ("layer_norm",),
    "attention_softmax_in_fp32": (True,),
    "scale_attention_softmax_in_fp32": (True,),
    "scale_attn_weights": (True,),
}
FAMILIES = {
    "starcoder2": Family(
        SIZES
        | GROUPED
        | TIED
        | {"eps": ("norm_epsilon", 1e-5), "act": ("hidden_act", "gelu_pytorch_tanh")}
        | {"init_std": ("initializer_range", 0.018042)}
        | {name: ("use_bias", True) for name in ALL_BIASES},
        {},
        llama.NAMES | block_names("model.layers.#", mlp_in="mlp.c_fc", mlp_out="mlp.c_proj"),
        ONLY,
        windows=uniform_window(None),
        gguf=GGUF(
            "starcoder2",
            "Starcoder2ForCausalLM",
            gguf_fields,
            has_implied_biases=True,
            epsilon=EPSILON,
        ),
    )
}
