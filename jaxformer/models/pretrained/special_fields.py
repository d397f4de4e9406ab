"""Readers of fields that only one family has in config.json: the column `finish` of `FAMILIES`.

Each function adds to the numbers of a network or changes them. This module does not import jax.
"""

from collections.abc import Callable

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.config_fields import Config, Numbers, read_rotary


def finish_gpt2(config: Config, numbers: Numbers) -> None:
    """Reads GPT-2: scores are not scaled if scale_attn_weights is false."""
    if config.get("scale_attn_weights") is False:
        numbers["score_scale"] = 1.0


def finish_gemma(config: Config, numbers: Numbers) -> None:
    """Reads Gemma: the embedding is scaled by sqrt(width).

    From Gemma 2 on, a field determines the scale of the scores.
    """
    numbers["embed_scale"] = numbers["width"] ** 0.5
    if config["model_type"] == "gemma":
        # Early configs name the exact gelu, but the models use the tanh approximation.
        numbers["act"] = "gelu_tanh" if numbers["act"] == "gelu" else numbers["act"]
    else:
        numbers["score_scale"] = config.get("query_pre_attn_scalar", 256) ** -0.5


def finish_gemma3(config: Config, numbers: Numbers) -> None:
    """Reads Gemma 3: blocks with a window have rotary positions with another base."""
    finish_gemma(config, numbers)
    # Configs of transformers 5 have one section of rope_parameters for each kind of block.
    nested = config.get("rope_parameters") or {}
    local = nested.get("sliding_attention") or {}
    local = {"rope_theta": config.get("rope_local_base_freq", 10_000.0)} | local
    full_config = dict(config) | {"rope_parameters": nested.get("full_attention")}
    numbers["rotary"] = read_rotary(full_config, numbers["head_width"], 1.0, 1_000_000.0)
    local_config = full_config | {"rope_scaling": None, "rope_parameters": local}
    numbers["local_rotary"] = read_rotary(local_config, numbers["head_width"], 1.0, 10_000.0)


def per_head_norm(norm: str) -> Callable[[Config, Numbers], None]:
    """Returns a reader of the field qk_layernorm, which adds norms of queries and keys.

    Args:
        norm: the `qk_norm` of the network if the field is true.
    """

    def read(config: Config, numbers: Numbers) -> None:
        if config.get("qk_layernorm"):
            numbers["qk_norm"] = norm

    return read


def finish_stablelm(config: Config, numbers: Numbers) -> None:
    """Reads StableLM: adds the norms of queries and keys; parallel branches share one norm."""
    per_head_norm("each_head")(config, numbers)
    numbers["shared_norm"] = numbers["parallel"]
    refuse_head_dim(config, numbers)


def refuse_head_dim(config: Config, numbers: Numbers) -> None:
    """Raises a UserError unless all heads together are as wide as the model."""
    # The rows of some families do not read head_dim into the numbers.
    head_width = config.get("head_dim") or numbers["head_width"]
    if head_width * numbers["heads"] != numbers["width"]:
        raise UserError(
            f"head_dim: {config['head_dim']} is not supported; a {config['model_type']} model has "
            f"heads of {numbers['width'] // numbers['heads']}."
        )


def finish_gptj(config: Config, numbers: Numbers) -> None:
    """Reads GPT-J: neighbouring pairs of the first rotary_dim numbers of each head are rotated."""
    width = config.get("rotary_dim", 64) or numbers["head_width"]
    numbers["rotary"] = {"width": width, "base": 10_000.0, "interleaved": True}


def finish_smollm3(config: Config, numbers: Numbers) -> None:
    """Reads SmolLM3: some blocks, by default every fourth one, have no rotary positions."""
    layers, interval = numbers["layers"], config.get("no_rope_layer_interval", 4)
    # In spite of its name, no_rope_layers is 1 for blocks with rotary positions.
    rotated = config.get("no_rope_layers")
    if rotated is None:
        rotated = [(i + 1) % interval != 0 for i in range(layers)]
    if len(rotated) < layers:
        raise UserError(f"no_rope_layers has {len(rotated)} entries for {layers} layers.")
    numbers["rotated"] = tuple(bool(x) for x in rotated[:layers])


def finish_opt(config: Config, numbers: Numbers) -> None:
    """Reads OPT: OPT-350M has norms after the residual sums and a narrower embedding."""
    if config.get("do_layer_norm_before") is False:
        numbers |= {"norm_at": "sum", "final_norm": False}
    elif config.get("_remove_final_layer_norm"):
        numbers["final_norm"] = False
    embed_width = config.get("word_embed_proj_dim") or numbers["width"]
    numbers["embed_width"] = 0 if embed_width == numbers["width"] else embed_width


def finish_falcon(config: Config, numbers: Numbers) -> None:
    """Reads Falcon: the new architecture groups keys.

    The old architecture has one key head, or one for each query head.
    """
    is_new, is_parallel = config.get("new_decoder_architecture"), config.get("parallel_attn", True)
    norms = config.get("num_ln_in_parallel_attn") or (2 if is_new else 1)
    if (is_new and not is_parallel) or (norms == 2 and not is_new):
        raise UserError(
            f"parallel_attn: {is_parallel} with num_ln_in_parallel_attn: {norms} and "
            f"new_decoder_architecture: {bool(is_new)} is not supported."
        )
    if not is_new:
        numbers["kv_heads"] = 1 if config.get("multi_query", True) else numbers["heads"]
    numbers |= {"parallel": is_parallel, "shared_norm": is_parallel and norms == 1}
    refuse_head_dim(config, numbers)
    if config.get("alibi"):
        numbers["rotary"] = None


def finish_encoder(config: Config, numbers: Numbers) -> None:
    """Reads BERT and RoBERTa. A model without a language-model head returns its hidden states."""
    architectures = " ".join(config.get("architectures") or ["ForMaskedLM"])
    names_of_heads = ("ForMaskedLM", "ForPreTraining", "LMHead", "ForCausalLM")
    has_head = any(name in architectures for name in names_of_heads)
    is_roberta = config["model_type"] == "roberta"
    numbers["causal"] = bool(config.get("is_decoder"))
    head_act = "gelu" if is_roberta else numbers["act"]
    numbers["head_act"] = head_act if has_head else ""
    numbers |= {"unembed_bias": has_head, "has_logits": has_head}
    if is_roberta:
        # The first token of a text uses row pad + 1 of the table of positions.
        pad = config.get("pad_token_id", 1)
        numbers |= {"pad": pad, "position_offset": pad + 1, "length": numbers["length"] - pad - 1}
