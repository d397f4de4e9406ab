"""Writes a random tiny model of a family as a folder for `jaxformer.load` and transformers.

    python -m jaxformer.models.pretrained.tiny FAMILY FOLDER

  FAMILY     gpt2, gpt_neox, llama, phi3 or olmoe
  FOLDER     the new folder
  --vocab=N  the number of tokens; by default there is a tokenizer, which has each word of the
             associations paper's prompts as a single token
  --seed=N   the seed of the weights

The weights are noise: every command runs on the model within seconds, without meaningful numbers.
"""

import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import check_choice
from jaxformer.models.pretrained import folder, saving
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.runtime.command_line import Parser, command, count

# The config.json of each model, without the number of tokens. Configs of experiments and the docs
# name these; the tests have one for each family (tests/models/tiny_configs.py).
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": 64,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "max_position_embeddings": 8,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rotary_pct": 0.5,
        "rotary_emb_base": 10000,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "llama": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 24,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    },
    "phi3": {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        "max_position_embeddings": 64,
        "original_max_position_embeddings": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 24,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "sliding_window": 3,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    },
    "olmoe": {
        "model_type": "olmoe",
        "architectures": ["OlmoeForCausalLM"],
        "max_position_embeddings": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 24,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "clip_qkv": None,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
}


def tiny(
    kind: str | Mapping[str, Any], vocab_size: int, seed: int = 0
) -> tuple[Pretrained, dict[str, Any], dict]:
    """(model, parameters as NumPy arrays, config), equal on all machines.

    Args:
        kind: a key of CONFIGS, such as "gpt2", or the content of a config.json of any family, whose
            sizes you keep small.
        vocab_size: the number of tokens.
        seed: the seed of the weights.
    """
    if isinstance(kind, str):
        check_choice("kind of tiny model", kind, CONFIGS)
        kind = CONFIGS[kind]
    config = dict(kind) | {"vocab_size": vocab_size}
    model = Pretrained(describe(config))
    shapes = folder.shapes(model)
    params = {path: draw(path, shape, seed) for path, shape in shapes.items()}
    return model, paths.unflatten(params), config


def draw(path: str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Returns random weights, large enough that each parameter changes the logits."""
    generator = np.random.RandomState(zlib.crc32(f"{path}/{seed}".encode()))
    noise = generator.standard_normal(tuple(shape))
    leaf = path.rsplit("/", 1)[-1]
    if leaf == "scale":
        return (1 + 0.3 * noise).astype(np.float32)
    if leaf == "bias":
        return (0.3 * noise).astype(np.float32)
    std = 1.0 if leaf == "embedding" else shape[0] ** -0.5
    return (std * noise).astype(np.float32)


def tokenizer(texts: Sequence[str]) -> Any:
    """Returns a byte-level BPE that has each word of the texts, with its space, as one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=100_000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
        show_progress=False,
    )
    bpe.train_from_iterator(sorted(set(texts)), trainer)
    return bpe


def save(
    kind: str | Mapping[str, Any],
    where: str | Path,
    texts: Sequence[str] = (),
    vocab: int = 0,
    seed: int = 0,
) -> Path:
    """Writes the folder of a tiny model, with a tokenizer of the texts or with `vocab` tokens.

    Args:
        kind: as in `tiny`.
        where: the folder.
        texts: texts on which a tokenizer is trained; () for a model without a tokenizer.
        vocab: the number of tokens of a model without a tokenizer.
        seed: the seed of the weights.
    """
    bpe = tokenizer(texts) if texts else None
    model, params, config = tiny(kind, bpe.get_vocab_size() if bpe else vocab, seed)
    written = saving.save_folder(where, model, params, config)
    if bpe is not None:
        (written / "tokenizer.json").write_text(bpe.to_str())
        tokenizer_config = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
        (written / "tokenizer_config.json").write_text(tokenizer_config)
    return written


# The texts of the default tokenizer: the words of the associations paper's prompts.
TEXTS = (
    "Madrid is located in Spain Paris France Rome Italy the a southern northern one of",
    "When Mary and John went to a store, John gave a drink to Anna Paul him her them it",
    "The Question: Answer: 0 1 2 3 4 5 6 7 8 9 10 12 answer is #### so and then\n",
)


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("family", choices=list(CONFIGS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocab", type=count)
    args = parser.parse_args(argv)
    texts = () if args.vocab else TEXTS
    written = save(args.family, args.folder, texts, args.vocab, args.seed)
    print(f"a random {args.family}: {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
