"""GPT-J: parallel blocks with one norm, and rotary positions of neighbouring pairs."""

from jaxformer.models.pretrained.families import gpt2
from jaxformer.models.pretrained.family import UNTIED, Config, Family, Numbers
from jaxformer.models.pretrained.tensor_names import QKV, block_names, without

NAMES = without(gpt2.NAMES, QKV) | block_names(
    "transformer.h.#",
    query="attn.q_proj",
    key="attn.k_proj",
    value="attn.v_proj",
    out="attn.out_proj",
    mlp_in="mlp.fc_in",
    mlp_out="mlp.fc_out",
)


def finish_gptj(config: Config, numbers: Numbers) -> None:
    """Neighbouring pairs of the first rotary_dim numbers of each head are rotated."""
    width = config.get("rotary_dim", 64) or numbers["head_width"]
    numbers["rotary"] = {"width": width, "base": 10_000.0, "interleaved": True}


FAMILIES = {
    "gptj": Family(
        gpt2.FIELDS | UNTIED,
        {"mlp_bias": True, "unembed_bias": True, "parallel": True, "shared_norm": True},
        NAMES,
        {"scale_attn_weights": (True,)},
        rotary=None,
        finish=finish_gptj,
        further=("rotary_dim", "rotary"),
    )
}
