"""BERT, RoBERTa and other sentence encoders: both directions, norms after the sums, segments."""

from jaxformer.models.pretrained.family import (
    ALL_BIASES,
    SIZES,
    TIED,
    Config,
    Family,
    Names,
    Numbers,
)
from jaxformer.models.pretrained.tensor_names import block_names


def finish_encoder(config: Config, numbers: Numbers) -> None:
    """A model without a language-model head returns its hidden states."""
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


def _encoder(root: str, head: Names) -> Family:
    """BERT and RoBERTa differ only in the names of the stack and of the head."""
    names = {
        "embed": f"{root}.embeddings.word_embeddings",
        "positions": f"{root}.embeddings.position_embeddings",
        "types": f"{root}.embeddings.token_type_embeddings",
        "embed_norm": f"{root}.embeddings.LayerNorm",
        **block_names(
            f"{root}.encoder.layer.#",
            query="attention.self.query",
            key="attention.self.key",
            value="attention.self.value",
            out="attention.output.dense",
            attn_norm="attention.output.LayerNorm",
            mlp_in="intermediate.dense",
            mlp_out="output.dense",
            mlp_norm="output.LayerNorm",
        ),
        **head,
    }
    return Family(
        SIZES
        | TIED
        | {"eps": ("layer_norm_eps", 1e-12), "act": ("hidden_act", "gelu")}
        | {"types": ("type_vocab_size", 2)},
        ALL_BIASES
        | {"norm_at": "sum", "final_norm": False, "embed_norm": True, "learned_positions": True},
        names,
        {"position_embedding_type": ("absolute",), "tie_word_embeddings": (True,)},
        rotary=None,
        finish=finish_encoder,
        further=("is_decoder", "architectures", "pad_token_id"),
    )


BERT_HEAD = {
    "head": "cls.predictions.transform.dense",
    "head_norm": "cls.predictions.transform.LayerNorm",
    "unembed": "cls.predictions",
}
ROBERTA_HEAD = {"head": "lm_head.dense", "head_norm": "lm_head.layer_norm", "unembed": "lm_head"}
FAMILIES = {"bert": _encoder("bert", BERT_HEAD), "roberta": _encoder("roberta", ROBERTA_HEAD)}
