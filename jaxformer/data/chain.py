"""A prepared text that needs no file: random walks on the Markov chain of tiny Shakespeare.

    packaged()                       2,000 documents of 100 symbols
    packaged(reversed_class=True)    documents of 10 to 60 symbols; half of them are reversed

Reversed documents form the second class. Both classes have the same symbols and differ only in
their order.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.data.characters import characters
from jaxformer.data.tokenizer import byte_vocabulary_json
from jaxformer.data.tokens import Tokens
from jaxformer.io.huggingface_tokenizer import END

N_DOCUMENTS = 2000
DOCUMENT_LENGTH = 100  # symbols
PART_ENDS = {"train": 0.8, "validation": 0.9, "test": 1.0}  # as shares of the documents


class Symbols:
    """The tokenizer of the chain: a token for each ASCII symbol, and one that ends a document."""

    start, mask, end_text = -1, -1, END

    def __init__(self):
        self.symbols = characters().symbols
        self.vocab_size, self.end = len(self.symbols) + 1, len(self.symbols)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        return [np.array([ids[s] for s in text if s in ids], np.int32) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.symbols[int(t)] for t in tokens if int(t) < self.end)

    def n_bytes(self) -> np.ndarray:
        return np.append(np.ones(self.end, np.int32), 0)

    def as_json(self) -> str:
        return byte_vocabulary_json(map(ord, self.symbols), self.end)


class InMemoryTokens(Tokens):
    """A prepared text whose files are in memory."""

    def __init__(self, files: dict[str, np.ndarray], index: dict[str, Any]):
        super().__init__(Path("the packaged chain"), index)
        # `Tokens` is a frozen dataclass.
        object.__setattr__(self, "contents", {n: x.tobytes() for n, x in files.items()})

    @property
    def fingerprint(self) -> str:
        return "the chain"

    @property
    def tokenizer(self) -> Symbols:  # type: ignore[override]
        return Symbols()

    @property
    def start(self) -> int:  # type: ignore[override]
        return Symbols().start

    @property
    def mask(self) -> int:  # type: ignore[override]
        return Symbols().mask

    @property
    def bytes_of_token(self) -> np.ndarray:  # type: ignore[override]
        return Symbols().n_bytes()

    def _pieces(self, name: str, offsets: list[int], size: int) -> bytearray:
        content: bytes = self.contents[name]  # type: ignore[attr-defined]
        return bytearray(b"".join(content[offset : offset + size] for offset in offsets))


@cache
def packaged(reversed_class: bool = False) -> InMemoryTokens:
    """Returns the packaged text, which is the same in every process.

    Args:
        reversed_class: whether every second document is reversed and the direction is its class.
    """
    rng, end = np.random.default_rng(0), Symbols().end
    text_DxT = _walks(rng, N_DOCUMENTS, DOCUMENT_LENGTH)
    lengths = np.full(N_DOCUMENTS, DOCUMENT_LENGTH)
    classes = np.full(N_DOCUMENTS, -1)  # no classes
    if reversed_class:
        lengths = rng.integers(10, 61, N_DOCUMENTS)
        classes = np.arange(N_DOCUMENTS) % 2
    documents = []
    for symbols, length, label in zip(text_DxT, lengths, classes, strict=True):
        document = symbols[:length]
        documents += [document[::-1] if label == 1 else document, [end]]
    ends = np.cumsum(lengths + 1)
    starts = [0, *ends.tolist()]
    parts, first = {}, 0
    for name, share in PART_ENDS.items():
        last = int(share * N_DOCUMENTS)
        start, stop = starts[first], starts[last]
        parts[name] = dict(start=start, stop=stop, first=first, last=last)
        # Each document has an end token, which stands for no text.
        parts[name]["bytes"] = stop - start - (last - first)
        first = last
    files = {
        "tokens.bin": np.concatenate(documents).astype("<u2"),
        "documents.bin": ends.astype("<i8"),
        "labels.bin": classes.astype("<i4"),
    }
    index = dict(dtype="uint16", vocab_size=end + 1, end=end, parts=parts)
    labels = ["forwards", "backwards"] if reversed_class else []
    return InMemoryTokens(files, index | {"labels": labels})


def _walks(rng: np.random.Generator, n: int, length: int) -> np.ndarray:
    """Draws (n, length) stationary walks by inverting cumulative probabilities."""
    chain = characters()
    # Row 0 counts first symbols, row s + 1 the symbols after s.
    counts = np.concatenate([chain.counts_V[None], chain.pairs_VxV]).astype(float)
    cumulative = np.cumsum(counts, 1) / counts.sum(1, keepdims=True)
    symbols, row = np.empty((n, length), np.int64), np.zeros(n, np.int64)
    for t in range(length):
        symbols[:, t] = (cumulative[row, :-1] <= rng.random(n)[:, None]).sum(1)
        row = symbols[:, t] + 1
    return symbols
