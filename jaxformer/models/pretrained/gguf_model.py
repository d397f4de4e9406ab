"""Gives a GGUF file the config.json and the tensor names of a Hugging Face checkpoint.

Families that llama.cpp writes too have the column `gguf`. Its transformations are reversed:

    Llama       rows of query and key are permuted, so that the pairs of a rotation are neighbours
    Gemma       norms are stored as 1 + w
    Falcon      all queries, then all keys, then all values; the checkpoint has them in groups
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, one_line, unknown
from jaxformer.models.pretrained.families import FAMILIES
from jaxformer.models.pretrained.gguf_file import GGUFFile

# {field of config.json: key of the metadata after the architecture's name, such as "llama."}
FIELDS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
# {field of config.json: key of the metadata after "tokenizer.ggml."}
TOKEN_FIELDS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "pad_token_id": "padding_token_id",
}
# {key after the architecture's name that changes the function of a network: its value if it does
# not}. An architecture that does not read such a key would load as another network: OLMo 3, which
# has windows, is an "olmo2", and Mixtral a "llama".
NEUTRAL = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.scale": 0.0,
    "attention.sliding_window": 0,
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "expert_count": 0,
    "final_logit_softcapping": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
}
SUFFIXES = (".weight", ".bias")
ROPE_FACTORS = "rope_freqs.weight"  # a factor for each rotated pair, as Llama 3.1 has

ARCHITECTURES = {
    family.gguf.architecture: (model_type, family.gguf)
    for model_type, family in FAMILIES.items()
    if family.gguf is not None
}


class GGUFModel:
    """A GGUF file with the methods of a checkpoint (see `folder`)."""

    def __init__(self, file: Path):
        self.path, self.gguf = file, GGUFFile(file)
        name = self.gguf.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            raise unknown(f"architecture in {file}:", one_line(name, 60), ARCHITECTURES)
        self.name, (self.model_type, self.architecture) = name, ARCHITECTURES[name]

    @property
    def config_name(self) -> str:
        """The source of the config in messages."""
        return f"the metadata of {self.path}"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json that the metadata describe."""
        metadata, tensors = self.gguf.metadata, self.gguf.tensors
        read: set[str] = set()

        def value(name: str) -> Any:
            read.add(name)
            return metadata.get(f"{self.name}.{name}")

        for name in (self.architecture.epsilon, *self.architecture.required):
            if value(name) is None:
                raise UserError(
                    f"{self.path} lacks the key {self.name}.{name}, and a default would make "
                    "another network of it: convert or download the model again."
                )
        config = {
            "model_type": self.model_type,
            "architectures": [self.architecture.class_name],
            "tie_word_embeddings": "output.weight" not in tensors,
        }
        if not self.architecture.has_implied_biases:
            config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        for field, name in FIELDS.items():
            if value(name) is not None:
                config[field] = value(name)
        if "token_embd.weight" in tensors:
            config["vocab_size"] = tensors["token_embd.weight"].shape[0]
        for field, name in TOKEN_FIELDS.items():
            if isinstance(token := metadata.get(f"tokenizer.ggml.{name}"), int):
                config[field] = token
        try:
            config |= self.architecture.more_fields(config, value)
            config |= self._rope_scaling(value)
        except (KeyError, TypeError, ZeroDivisionError) as error:
            raise UserError(
                f"{self.config_name} of a {self.name} model lack a field or have a wrong one: "
                f"{one_line(error, 100)}."
            ) from None
        for name in NEUTRAL.keys() - read:
            if (found := value(name)) not in (None, NEUTRAL[name]):
                raise UserError(
                    f"{self.path} has {self.name}.{name} = {one_line(repr(found), 60)}, which is "
                    f"not supported for {self.model_type}, and without it the model would be "
                    "another network: load the folder of safetensors that it was converted from."
                )
        return config

    def _rope_scaling(self, value: Callable[[str], Any]) -> dict[str, Any]:
        if ROPE_FACTORS in self.gguf.tensors:
            factors = self.gguf.tensor(ROPE_FACTORS).tolist()
            # With equal short and long factors, longrope divides each rate by its factor.
            scaling = {"rope_type": "longrope", "attention_factor": 1.0}
            return {"rope_scaling": scaling | {"short_factor": factors, "long_factor": factors}}
        # The first files name the factor otherwise, and no kind is "linear", as in llama.cpp.
        factor = value("rope.scaling.factor") or value("rope.scale_linear")
        kind = value("rope.scaling.type") or ("linear" if factor else "none")
        if kind == "none":
            return {}
        scaling = {"rope_type": kind, "factor": factor}
        if (pretraining_length := value("rope.scaling.original_context_length")) is not None:
            scaling["original_max_position_embeddings"] = pretraining_length
        return {"rope_scaling": scaling}

    def stored_names(self, names: Sequence[str], prefix: str) -> dict[str, str]:
        """Returns {tensor name of Hugging Face: tensor name in the file}.

        `prefix`, which other checkpoints need, has no effect.
        """
        import gguf

        numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
        table = gguf.get_tensor_name_map(numbers[self.name], self.config["num_hidden_layers"])
        return {name: table.get_name(name, SUFFIXES) or name for name in names}

    @property
    def names(self) -> set[str]:
        """The names of the tensors in the file, without ROPE_FACTORS, which the config contains."""
        return set(self.gguf.tensors) - {ROPE_FACTORS}

    def location(self, name: str) -> str:
        return f"{self.path}: {name}"

    def tensor(self, name: str) -> np.ndarray:
        """Returns a tensor of the file in Hugging Face's layout."""
        array = self.gguf.tensor(name)
        if self.architecture.is_norm_shifted and name.endswith("norm.weight"):
            return array - 1
        if self.architecture.is_ungrouped and ".attn_qkv." in name:
            heads, kv_heads = (self.config[n] for n in ("num_attention_heads", "num_kv_heads"))
            return _in_groups(array, heads, kv_heads)
        match = re.search(r"\.attn_([qk])\.", name)
        if not match or not self.architecture.is_permuted:
            return array
        has_own_count = match[1] == "k" and "num_key_value_heads" in self.config
        count = "num_key_value_heads" if has_own_count else "num_attention_heads"
        return _without_permutation(array, self.config[count])


def _without_permutation(rows: np.ndarray, heads: int) -> np.ndarray:
    """Returns rows in the order of Hugging Face: the pair k of a head is the rows k and k + D/2."""
    if len(rows) % (2 * heads):
        return rows  # a wrong shape, which the loader reports
    by_pair = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return by_pair.swapaxes(1, 2).reshape(rows.shape)


def _in_groups(rows: np.ndarray, heads: int, kv_heads: int) -> np.ndarray:
    """Joined rows as groups: the queries of a key head, then this head's key and value."""
    if heads % kv_heads or len(rows) % (heads + 2 * kv_heads):
        return rows  # a wrong shape, which the loader reports
    by_head = rows.reshape(heads + 2 * kv_heads, -1, *rows.shape[1:])
    queries, keys, values = np.split(by_head, [heads, heads + kv_heads])
    queries = queries.reshape(kv_heads, heads // kv_heads, *by_head.shape[1:])
    return np.concatenate([queries, keys[:, None], values[:, None]], 1).reshape(rows.shape)
