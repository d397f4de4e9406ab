"""Writes a trained decoder as a Llama folder for Hugging Face's `transformers`.

    export(model, params, FOLDER, tokenizer)

    AutoModelForCausalLM.from_pretrained(FOLDER)    AutoTokenizer.from_pretrained(FOLDER)

Standard, Frozen-QK, Frozen-MLP and the random transformer are Llamas. MixiT cannot be exported: a
Llama has no fixed mixing. The branch factor of the authors' preset is multiplied into the last
matrix of each branch. The logits agree to 1e-4 in float32.

A Llama has no `document_end`: the exported model equals the decoder within one document, but in a
packed window its tokens attend to earlier documents too.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import errors_name, write_atomically, write_json
from jaxformer.io.partial_folder import list_own_files
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.safetensors_folder import INDEX, SINGLE
from jaxformer.models.pretrained.saving import save_folder

FILES = ("config.json", SINGLE, INDEX, "tokenizer.json", "tokenizer_config.json", "README.md")


def export(
    model: Any, params: Any, folder: str | Path, tokenizer: Any = None, card: str = ""
) -> Path:
    """Writes the folder atomically.

    Args:
      model: a decoder that is a Llama.
      params: its parameters.
      folder: the path of a new folder.
      tokenizer: the tokenizer, which is written as tokenizer.json.
      card: the text of README.md, which hubs show as the model card.

    Returns:
      The path of the folder.
    """
    folder = Path(folder)
    check(model)
    if folder.exists():
        raise UserError(f"{folder} exists already; give the name of a new folder.")
    if tokenizer is not None and tokenizer.vocab_size != model.spec.vocab_size:
        raise UserError(
            f"the tokenizer has {tokenizer.vocab_size} tokens and the model "
            f"{model.spec.vocab_size}."
        )
    # Transformers must never see half a model under its final name.
    partial = folder.with_name(f"{folder.name}.partial")
    with errors_name(partial):
        shards = {file.name for file in partial.glob("model-*.safetensors")}
        for file in list_own_files(partial, {*FILES, *shards}):
            file.unlink()
    save_folder(partial, *as_llama(model, params, getattr(tokenizer, "end", None)))
    if tokenizer is not None:
        write_atomically(partial / "tokenizer.json", tokenizer.as_json().encode())
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "eos_token": tokenizer.end_text,
            "bos_token": tokenizer.end_text,
        }
        write_json(partial / "tokenizer_config.json", tokenizer_config)
    if card:
        write_atomically(partial / "README.md", card.encode())
    with errors_name(folder):
        partial.rename(folder)
    return folder


def as_llama(
    model: Any, params: Any, end: int | None = None
) -> tuple[Pretrained, dict[str, Any], dict[str, Any]]:
    """The same function as a published Llama: (model, float32 parameters, config).

    Both networks have the same paths, so only the branch factor, which a Llama lacks, moves.

    Args:
      model: a decoder that is a Llama.
      params: its parameters.
      end: the token that ends a text.
    """
    check(model)
    config = llama_config(model, end)

    def converted(path: str, leaf: Any) -> np.ndarray:
        is_last = path.split("/")[-2] == "out"  # the last linear map of its branch
        return np.asarray(leaf, np.float32) * np.float32(model.spec.branch if is_last else 1)

    flat = paths.flatten(jax.device_get(params))
    converted_params = paths.unflatten({path: converted(path, x) for path, x in flat.items()})
    return Pretrained(describe(config)), converted_params, config


def check(model: Any) -> None:
    """Raises unless the model is a Llama."""
    spec = model.spec
    differences = {
        "is not a decoder": type(model).__name__ != "Decoder",
        "mixes tokens by fixed matrices": getattr(spec, "mixer", "softmax") != "softmax",
        "attends to later tokens": not spec.causal,
        "has learned positions": getattr(spec, "learned_positions", False),
        "has no rotary positions": getattr(spec, "positions", "rotary") != "rotary",
        "scales its residual stream": getattr(spec, "residual_scale", 1.0) != 1.0,
        "scales its linear maps": bool(
            getattr(spec, "base_width", 0) or getattr(spec, "base_mlp_width", 0)
        ),
        "scales its scores": bool(getattr(spec, "score_scale", 0)),
        "scales its logits": getattr(spec, "logit_scale", 1.0) != 1.0,
        "has no norms": not getattr(spec, "use_norm", True),
        "has no MLPs": not getattr(spec, "use_mlp", True),
        "has an MLP without a gate": not getattr(spec, "gated", True),
        "has numbers as outputs": bool(getattr(spec, "outputs", 0)),
        "has another activation than silu": getattr(spec, "act", "silu") != "silu",
    }
    if present := [difference for difference, differs in differences.items() if differs]:
        raise UserError(f"this model is not a Llama: it {', and '.join(present)}.")


def llama_config(model: Any, end: int | None) -> dict[str, Any]:
    """The content of config.json; `end` is the token that ends a text."""
    spec = model.spec
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.width,
        "intermediate_size": spec.mlp_width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.length,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": spec.use_bias,
        "mlp_bias": spec.use_bias,
        "tie_word_embeddings": False,
        "bos_token_id": end,
        "eos_token_id": end,
    }
