"""Tensor names of published models: how a row of names is written, and which tensors are ignored.

A row maps jaxformer's modules to names on disk. In both names # stands for the number of a block,
% for the number of a head and @ for the number of an expert. A kernel, scale or embedding is the
"weight" of its module on disk. Modules joined with "+" are one tensor on disk. A row may contain
modules that a model of the family lacks.
"""

from collections.abc import Mapping
from typing import Any

QKV = "block_#/attn/query+block_#/attn/key+block_#/attn/value"
GATE_IN = "block_#/mlp/gate+block_#/mlp/in"
# {argument of `block_names`: module in a block}; other arguments are modules themselves.
MODULES = {
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
# Patterns of constants in older checkpoints, and of heads that this package does not implement.
IGNORED = (
    r"(.*\.)?attn(\.attention)?\.(masked_)?bias",
    r"(.*\.)?attention\.(masked_)?bias",
    r"(.*\.)?rotary_emb\.inv_freq",
    r"(.*\.)?embeddings\.position_ids",
    r"((bert|roberta)\.)?pooler\..*|cls\.seq_relationship\..*",
)
# Copies of the embedding and of its bias in models whose unembedding is the embedding.
EMBEDDING_COPIES = (
    r"lm_head(\.decoder)?\.(weight|bias)",
    r"embed_out\.weight",
    r"cls\.predictions\.decoder\..*",
)


def block_names(layer: str, **names: str) -> dict[str, str]:
    """{module in a block: name on disk}; `layer` begins each name on disk."""
    return {f"block_#/{MODULES.get(name, name)}": f"{layer}.{x}" for name, x in names.items()}


def without(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A related family's row without these entries."""
    return {key: value for key, value in row.items() if key not in keys}
