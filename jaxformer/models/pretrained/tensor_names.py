"""The tensor names of published families on disk.

`NAMES` has a row for each family, which maps jaxformer's modules to names on disk. In both names #
stands for the number of a block and % for the number of a head. A kernel, scale or embedding is the
"weight" of its module on disk. Modules joined with "+" are one tensor on disk. A row may contain
modules that a model of the family lacks.
"""

QKV = "block_#/attn/query+block_#/attn/key+block_#/attn/value"
GATE_IN = "block_#/mlp/gate+block_#/mlp/in"


def _block(layer: str, **names: str) -> dict[str, str]:
    """Returns {jaxformer's module in a block: name on disk}; `layer` begins each name on disk."""
    modules = {
        "query": "attn/query",
        "key": "attn/key",
        "value": "attn/value",
        "out": "attn/out",
        "query_norm": "attn/query_norm",
        "key_norm": "attn/key_norm",
        "gate": "mlp/gate",
        "mlp_in": "mlp/in",
        "mlp_out": "mlp/out",
    }
    return {f"block_#/{modules.get(name, name)}": f"{layer}.{x}" for name, x in names.items()}


LLAMA = {
    "embed": "model.embed_tokens",
    **_block(
        "model.layers.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        out="self_attn.o_proj",
        query_norm="self_attn.q_norm",
        key_norm="self_attn.k_norm",
        gate="mlp.gate_proj",
        mlp_in="mlp.up_proj",
        mlp_out="mlp.down_proj",
    ),
    "final_norm": "model.norm",
    "unembed": "lm_head",
}
OLMO2 = LLAMA | _block(
    "model.layers.#",
    attn_output_norm="post_attention_layernorm",
    mlp_output_norm="post_feedforward_layernorm",
)
GEMMA2 = OLMO2 | _block("model.layers.#", mlp_norm="pre_feedforward_layernorm")
PHI3 = LLAMA | {
    QKV: "model.layers.#.self_attn.qkv_proj",
    GATE_IN: "model.layers.#.mlp.gate_up_proj",
}
PHI = (
    LLAMA
    | _block(
        "model.layers.#",
        out="self_attn.dense",
        query_norm="self_attn.q_layernorm",
        key_norm="self_attn.k_layernorm",
        mlp_in="mlp.fc1",
        mlp_out="mlp.fc2",
    )
    | {"final_norm": "model.final_layernorm"}
)
STARCODER2 = LLAMA | _block("model.layers.#", mlp_in="mlp.c_fc", mlp_out="mlp.c_proj")
STABLELM = LLAMA | {
    "block_#/attn/query_norm/head_%": "model.layers.#.self_attn.q_layernorm.norms.%",
    "block_#/attn/key_norm/head_%": "model.layers.#.self_attn.k_layernorm.norms.%",
}
GPT2 = {
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    QKV: "transformer.h.#.attn.c_attn",
    **_block(
        "transformer.h.#",
        attn_norm="ln_1",
        mlp_norm="ln_2",
        out="attn.c_proj",
        mlp_in="mlp.c_fc",
        mlp_out="mlp.c_proj",
    ),
    "final_norm": "transformer.ln_f",
    "unembed": "lm_head",
}
GPT_NEO = GPT2 | _block(
    "transformer.h.#",
    query="attn.attention.q_proj",
    key="attn.attention.k_proj",
    value="attn.attention.v_proj",
    out="attn.attention.out_proj",
)
GPTJ = GPT2 | _block(
    "transformer.h.#",
    query="attn.q_proj",
    key="attn.k_proj",
    value="attn.v_proj",
    out="attn.out_proj",
    mlp_in="mlp.fc_in",
    mlp_out="mlp.fc_out",
)
del GPT_NEO[QKV], GPTJ[QKV]  # they store query, key and value apart
for _joined in (QKV, GATE_IN):
    for _module in _joined.split("+"):
        del PHI3[_module]
GPT_NEOX = {
    "embed": "gpt_neox.embed_in",
    QKV: "gpt_neox.layers.#.attention.query_key_value",
    **_block(
        "gpt_neox.layers.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        out="attention.dense",
        mlp_in="mlp.dense_h_to_4h",
        mlp_out="mlp.dense_4h_to_h",
    ),
    "final_norm": "gpt_neox.final_layer_norm",
    "unembed": "embed_out",
}
FALCON = {
    "embed": "transformer.word_embeddings",
    QKV: "transformer.h.#.self_attention.query_key_value",
    **_block(
        "transformer.h.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        out="self_attention.dense",
        mlp_in="mlp.dense_h_to_4h",
        mlp_out="mlp.dense_4h_to_h",
    ),
    "final_norm": "transformer.ln_f",
    "unembed": "lm_head",
}
FALCON_TWO_NORMS = FALCON | _block("transformer.h.#", attn_norm="ln_attn", mlp_norm="ln_mlp")
OPT = {
    "embed": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "embed_project": "model.decoder.project_in",
    **_block(
        "model.decoder.layers.#",
        attn_norm="self_attn_layer_norm",
        mlp_norm="final_layer_norm",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        out="self_attn.out_proj",
        mlp_in="fc1",
        mlp_out="fc2",
    ),
    "final_norm": "model.decoder.final_layer_norm",
    "unembed_project": "model.decoder.project_out",
    "unembed": "lm_head",
}


def _bert(root: str, head: dict[str, str]) -> dict[str, str]:
    """Returns the row of BERT or RoBERTa, which name the stack and the head differently."""
    return {
        "embed": f"{root}.embeddings.word_embeddings",
        "positions": f"{root}.embeddings.position_embeddings",
        "types": f"{root}.embeddings.token_type_embeddings",
        "embed_norm": f"{root}.embeddings.LayerNorm",
        **_block(
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


BERT_HEAD = {
    "head": "cls.predictions.transform.dense",
    "head_norm": "cls.predictions.transform.LayerNorm",
    "unembed": "cls.predictions",
}
ROBERTA_HEAD = {"head": "lm_head.dense", "head_norm": "lm_head.layer_norm", "unembed": "lm_head"}
NAMES: dict[str, dict[str, str]] = {
    "bert": _bert("bert", BERT_HEAD),
    "falcon": FALCON,
    "gemma": LLAMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "gpt2": GPT2,
    "gpt_neo": GPT_NEO,
    "gpt_neox": GPT_NEOX,
    "gptj": GPTJ,
    "llama": LLAMA,
    "mistral": LLAMA,
    "olmo": LLAMA,
    "olmo2": OLMO2,
    "opt": OPT,
    "phi": PHI,
    "phi3": PHI3,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "roberta": _bert("roberta", ROBERTA_HEAD),
    "smollm3": LLAMA,
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
}
# Layouts of single kernels in blocks (see `tensor_layouts`); other families have "transposed".
KERNELS = {"gpt2": "same"}
# Layouts of tensors that join several kernels.
JOINED = {"gpt2": "columns", "gpt_neox": "groups", "falcon": "groups", "phi3": "rows"}
# Prefixes that names on disk may lack: the hub's GPT-2 has the stack without its head.
PREFIXES = {name: row["embed"].split(".")[0] + "." for name, row in NAMES.items()}
# Patterns of constants in older checkpoints, and of heads that this package does not implement.
IGNORED = (
    r"(.*\.)?attn(\.attention)?\.(masked_)?bias",
    r"(.*\.)?attention\.(masked_)?bias",
    r"(.*\.)?rotary_emb\.inv_freq",
    r"(.*\.)?embeddings\.position_ids",
    r"((bert|roberta)\.)?pooler\..*|cls\.seq_relationship\..*",
)
# Copies of the embedding and of its bias in models whose unembedding is the embedding.
TIED = (
    r"lm_head(\.decoder)?\.(weight|bias)",
    r"embed_out\.weight",
    r"cls\.predictions\.decoder\..*",
)
