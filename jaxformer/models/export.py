"""Exports a trained decoder as a Llama folder for Hugging Face's `transformers`.

    jaxformer export RUN FOLDER

    AutoModelForCausalLM.from_pretrained(FOLDER)    AutoTokenizer.from_pretrained(FOLDER)

  RUN         the folder of a run that trained on prepared text
  FOLDER      the new folder: config.json, model.safetensors, tokenizer.json
  --member=I  a member of the population (default: the first seed of the chosen learning rate)

Standard, Frozen-QK, Frozen-MLP and the random transformer are Llamas. MixiT cannot be exported: a
Llama has no fixed mixing. The branch factor of the authors' preset is multiplied into the last
matrix of each branch. The logits agree to 1e-4 in float32.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import errors_name, write_atomically, write_json
from jaxformer.io.partial_folder import list_own_files
from jaxformer.runtime.command_line import Parser, command

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
# {path in a block: name in a Llama layer}
MODULES = {
    "attn/query": "self_attn.q_proj",
    "attn/key": "self_attn.k_proj",
    "attn/value": "self_attn.v_proj",
    "attn/out": "self_attn.o_proj",
    "mlp/gate": "mlp.gate_proj",
    "mlp/in": "mlp.up_proj",
    "mlp/out": "mlp.down_proj",
}


def export(model: Any, params: Any, folder: str | Path, tokenizer: Any = None) -> Path:
    """Writes the folder atomically.

    Args:
      model: a decoder that is a Llama.
      params: its parameters.
      folder: the path of a new folder.
      tokenizer: the tokenizer, which is written as tokenizer.json.

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
    try:
        from safetensors.numpy import save
    except ImportError:
        raise UserError(
            "exporting needs the package safetensors: pip install 'jaxformer[data]'."
        ) from None
    partial = folder.with_name(f"{folder.name}.partial")
    with errors_name(partial):
        for file in list_own_files(partial, FILES):
            file.unlink()
        partial.mkdir(parents=True, exist_ok=True)
    weights = llama_weights(model, params)
    write_atomically(partial / "model.safetensors", save(weights, {"format": "pt"}))
    write_json(partial / "config.json", llama_config(model, getattr(tokenizer, "end", None)))
    if tokenizer is not None:
        write_atomically(partial / "tokenizer.json", tokenizer.as_json().encode())
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "eos_token": tokenizer.end_text,
            "bos_token": tokenizer.end_text,
        }
        write_json(partial / "tokenizer_config.json", tokenizer_config)
    with errors_name(folder):
        partial.rename(folder)
    return folder


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
        "has no norms": not getattr(spec, "use_norm", True),
        "has no MLPs": not getattr(spec, "use_mlp", True),
        "has another activation than silu": getattr(spec, "act", "silu") != "silu",
    }
    if present := [difference for difference, differs in differences.items() if differs]:
        raise UserError(f"this model is not a Llama: it {', and '.join(present)}.")


def llama_weights(model: Any, params: Any) -> dict[str, np.ndarray]:
    """Returns {Llama's name: float32 array}; its matrices are (outputs, inputs)."""
    spec, params = model.spec, jax.device_get(params)
    weights = {
        "model.embed_tokens.weight": params["embed"]["embedding"],
        "model.norm.weight": params["final_norm"]["scale"],
        "lm_head.weight": params["unembed"]["kernel"].T,
    }
    for i in range(spec.layers):
        block, layer = params[f"block_{i}"], f"model.layers.{i}"
        weights[f"{layer}.input_layernorm.weight"] = block["attn_norm"]["scale"]
        weights[f"{layer}.post_attention_layernorm.weight"] = block["mlp_norm"]["scale"]
        for path, llama_name in MODULES.items():
            branch, name = path.split("/")
            factor = spec.branch if name == "out" else 1.0
            for kind, value in block[branch][name].items():
                suffix = "weight" if kind == "kernel" else "bias"
                weights[f"{layer}.{llama_name}.{suffix}"] = factor * value.T
    return {name: np.ascontiguousarray(x, np.float32) for name, x in weights.items()}


def llama_config(model: Any, end: int | None) -> dict[str, Any]:
    """Returns the content of config.json; `end` is the token that ends a text."""
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
        "head_dim": spec.width // spec.heads,
        "max_position_embeddings": spec.length,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": spec.use_bias,
        "mlp_bias": spec.use_bias,
        "tie_word_embeddings": False,
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": "float32",
    }


@command
def main(argv: Sequence[str]) -> int:
    from jaxformer import build
    from jaxformer.loading import load_run

    parser = Parser(__doc__)
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("--member", type=int, default=None)
    args = parser.parse_args(argv)
    model, params, config = load_run(args.run, args.member)[:3]
    task = build.task(config)
    prepared = getattr(task, "prepared", None)
    if prepared is None:
        raise UserError(f"{args.run} was not trained on prepared text: there is no tokenizer.")
    print(f"exported to {export(model, params, args.folder, prepared.tokenizer)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
