"""Writes a random tiny model of a family as a folder for `jaxformer.load` and transformers.

    python -m jaxformer.models.pretrained.tiny FAMILY FOLDER

  FAMILY     a key of tiny_configs.CONFIGS
  FOLDER     the new folder
  --vocab=N  the number of tokens; by default there is a tokenizer, which has each word of the
             associations paper's prompts as a single token
  --seed=N   the seed of the weights

The weights are noise: every command runs on the model within seconds, without meaningful numbers.
"""

import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import check_choice
from jaxformer.models.pretrained import folder, saving
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.tiny_configs import CONFIGS
from jaxformer.runtime.command_line import Parser, command, count


def tiny(kind: str, vocab_size: int, seed: int = 0) -> tuple[Pretrained, dict[str, Any], dict]:
    """Returns (model, parameters as NumPy arrays, config), equal on all machines.

    Args:
        kind: a key of CONFIGS, such as "gpt2".
        vocab_size: the number of tokens.
        seed: the seed of the weights.
    """
    check_choice("kind of tiny model", kind, CONFIGS)
    config = CONFIGS[kind] | {"vocab_size": vocab_size}
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
    kind: str, where: str | Path, texts: Sequence[str] = (), vocab: int = 0, seed: int = 0
) -> Path:
    """Writes the folder of a tiny model, with a tokenizer of the texts or with `vocab` tokens.

    Args:
        kind: a key of CONFIGS, such as "gpt2".
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
