"""The wrapper of the tokenizers of Hugging Face's package `tokenizers`.

Prepared texts and published models share it. The package is imported where it is used.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, one_line

END = "<|endoftext|>"
END_NAMES = (END, "</s>", "<|end_of_text|>", "<eos>", "[SEP]")  # in the order of preference
MASK_NAMES = ("[MASK]", "<mask>")  # of BERT and RoBERTa
MAX_VOCABULARY = 10**7  # tables of all ids are kept in memory; the largest models have 10**6


class HuggingFace:
    """A tokenizer of the package `tokenizers`, trained by `jaxformer.data.tokenizer` or loaded.

    Args:
        model: the tokenizer of the package.
        needs_end: whether a tokenizer without an end token is refused. The documents of a prepared
            text need one.
        special_in_text: whether the name of a special token in a text becomes this token, as chat
            templates need; otherwise the name is ordinary text.
    """

    def __init__(self, model: Any, *, needs_end: bool = True, special_in_text: bool = False):
        self.model, vocab = model, model.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocab.values(), default=-1) + 1
        if self.vocab_size > MAX_VOCABULARY:
            raise UserError(
                f"the tokenizer has the token {self.vocab_size - 1:,}; expected ids below "
                f"{MAX_VOCABULARY:,}. Is its file damaged?"
            )
        # A special token goes first: "</s>" is an HTML tag in Gemma's vocabulary.
        special = {t.content for t in model.get_added_tokens_decoder().values() if t.special}
        named = [name for names in (special, vocab) for name in END_NAMES if name in names]
        self.end_text = named[0] if named else ""
        self.end = vocab.get(self.end_text, -1)
        # The token in whose place an encoder predicts a word; -1: none.
        self.mask = next((vocab[name] for name in MASK_NAMES if name in special), -1)
        if needs_end and not self.end_text:
            raise UserError(
                f"the tokenizer has no end token; expected one of {', '.join(END_NAMES)}."
            )
        model.encode_special_tokens = not special_in_text

    @property
    def start(self) -> int:
        """The token that the tokenizer puts before each text, as those of Llama do; -1 if none."""
        text, whole = (self.encode(["a"], add_special)[0].tolist() for add_special in (False, True))
        has_none = len(whole) == len(text) or whole[: len(text) or 1] == (text or [self.end])
        return -1 if has_none else whole[0]

    def encode(self, texts: Sequence[str], add_special: bool = False) -> list[np.ndarray]:
        """Returns the token ids of each text, with the tokenizer's start token if `add_special`."""
        try:
            encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=add_special)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the package is no Exception
            reason = one_line(error, 120)
            raise UserError(f"the tokenizer cannot encode the text: {reason}.") from None
        return [np.asarray(encoding.ids, np.int32) for encoding in encodings]

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Returns the text of tokens, without the names of special tokens if `skip_special`."""
        return self.model.decode([int(t) for t in tokens], skip_special_tokens=skip_special)

    def n_bytes(self) -> np.ndarray:
        """Returns the number of bytes of text of each token, (V,); 0 for special tokens."""
        sizes = np.zeros(self.vocab_size, np.int32)
        config = json.loads(self.as_json())
        is_byte_level = "ByteLevel" in json.dumps([config["pre_tokenizer"], config["decoder"]])
        byte_level = set(byte_characters()) if is_byte_level else set()
        special = {t for t, token in self.model.get_added_tokens_decoder().items() if token.special}
        for piece, token in self.model.get_vocab(with_added_tokens=True).items():
            if token in special:
                continue
            if piece and set(piece) <= byte_level:  # each character stands for a byte
                sizes[token] = len(piece)
            elif piece.startswith("<0x"):  # SentencePiece's fallback for single bytes
                sizes[token] = 1
            else:
                sizes[token] = len(piece.replace("\u2581", " ").encode())
        return sizes

    def as_json(self) -> str:
        """Returns the content of tokenizer.json."""
        return self.model.to_str()


def load(content: bytes, where: str, **options: bool) -> HuggingFace:
    """Loads a tokenizer.json.

    Args:
        content: the content of the file.
        where: the name of the file in errors.
        **options: options of `HuggingFace`.
    """
    try:
        model = package().Tokenizer.from_buffer(content)
    except UserError:
        raise
    except Exception as error:  # the package raises plain Exceptions
        reason = one_line(error, 120)
        raise UserError(f"{where} is not a tokenizer ({reason}).") from None
    return HuggingFace(model, **options)


def package() -> Any:
    """Imports `tokenizers`; raises UserError if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "this tokenizer needs the package `tokenizers`: pip install 'jaxformer[data]', or use "
            "bytes."
        ) from None
    return tokenizers


def byte_characters() -> list[str]:
    """Returns the printable characters that stand for the bytes 0 .. 255 in byte-level BPE."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
