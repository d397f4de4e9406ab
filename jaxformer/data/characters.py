"""Characters and their unigram and bigram statistics, from a text file or from tiny Shakespeare.

Tiny Shakespeare is packaged as a Markov chain: the 1,403 nonzero bigram counts of its 65 symbols. A
text drawn from the chain has the unigram and bigram frequencies of the original. The entropy of its
next symbol given the current one is computed from the counts.
"""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from jaxformer.core.errors import UserError

MAX_SYMBOLS = 100_000_000


@dataclass(frozen=True, eq=False)
class Characters:
    """Symbols in the order of their code points, their pair counts, and the text."""

    symbols: tuple[str, ...]
    pairs_VxV: np.ndarray  # (V, V) counts of (symbol, the symbol after it)
    counts_V: np.ndarray  # (V,) counts of the symbols
    text: np.ndarray | None = None  # the file as indices into `symbols`; None: tiny Shakespeare


def characters(path: str = "") -> Characters:
    """Returns the characters of a file, or those of tiny Shakespeare if `path` is empty.

    The same object is returned until the file changes.
    """
    return _kept_characters(path, _version(path)) if path else _tiny_shakespeare()


@lru_cache(maxsize=8)
def _kept_characters(path: str, version: tuple[int, int] | None) -> Characters:
    del version  # with another one, the file is read again
    return _characters_of_file(path)


def _version(path: str) -> tuple[int, int] | None:
    """The time and size of a file, which change when it is written; None if it cannot be read."""
    try:
        stat = Path(path).stat()
    except (OSError, ValueError):  # the reader says what is wrong
        return None
    return stat.st_mtime_ns, stat.st_size


@dataclass(frozen=True, eq=False)
class Statistics:
    """The N most frequent symbols, in the order of code points, and their probabilities."""

    symbols: tuple[str, ...]
    unigram_N: np.ndarray
    bigram_NxN: np.ndarray  # rows: p(next | symbol)


def statistics(text: str, n_symbols: int) -> Statistics:
    """Returns the statistics of the `n_symbols` most frequent symbols of a text, renormalised.

    Args:
      text: path of the text; "" is tiny Shakespeare.
      n_symbols: number of symbols.
    """
    return _statistics(characters(text), n_symbols)


@lru_cache(maxsize=8)
def _statistics(source: Characters, n_symbols: int) -> Statistics:
    symbols, unigram, bigram = source.symbols, source.counts_V, source.pairs_VxV
    if not 2 <= n_symbols <= len(symbols):
        raise UserError(
            f"n_symbols must be 2 to {len(symbols)}, the symbols of the text, got {n_symbols}."
        )
    indices = np.sort(np.argsort(-unigram, kind="stable")[:n_symbols])
    chosen = tuple(symbols[i] for i in indices)
    unigram, bigram = unigram[indices].astype(float), bigram[np.ix_(indices, indices)].astype(float)
    for symbol, total in zip(chosen, bigram.sum(1), strict=True):
        if not total:
            raise UserError(
                f"nothing follows {symbol!r} among the {n_symbols} symbols of the text: it has no "
                "bigrams. Use a longer text or another n_symbols."
            )
    return Statistics(chosen, unigram / unigram.sum(), bigram / bigram.sum(1, keepdims=True))


def alias_tables(p_RxN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns Walker's alias tables of R distributions over N values.

    To draw a value, choose a cell i of a row at random. It yields i with probability keep[i], else
    alias[i].
    """
    R, N = p_RxN.shape
    keep, alias = np.ones((R, N)), np.tile(np.arange(N), (R, 1))
    for row in range(R):
        scaled = p_RxN[row] * N
        small = [i for i in range(N) if scaled[i] < 1]
        large = [i for i in range(N) if scaled[i] >= 1]
        while small and large:
            low, high = small.pop(), large[-1]
            keep[row, low], alias[row, low] = scaled[low], high
            scaled[high] -= 1 - scaled[low]
            if scaled[high] < 1:
                small.append(large.pop())
    return keep.astype(np.float32), alias.astype(np.int32)


@cache
def _tiny_shakespeare() -> Characters:
    file = resources.files("jaxformer") / "data" / "shakespeare_bigrams.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    following = content["following"]
    symbols = tuple(sorted(following))
    pairs = np.array([[following[a].get(b, 0) for b in symbols] for a in symbols])
    counts = pairs.sum(1)
    counts[symbols.index(content["last"])] += 1  # nothing follows the last symbol
    return Characters(symbols, pairs, counts)


def _characters_of_file(path: str) -> Characters:
    try:
        if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise UserError(f"the text {path!r} must be a regular file; a device has no end.")
        if Path(path).stat().st_size > 4 * MAX_SYMBOLS:  # a symbol has at most 4 bytes in UTF-8
            raise UserError(f"the text {path!r} is too long: at most {MAX_SYMBOLS:,} symbols.")
        text = Path(path).read_text(encoding="utf-8-sig")
    except UserError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, UnicodeDecodeError):
            raise UserError(
                f"the text {path!r} is not UTF-8: byte {error.start} is invalid."
            ) from None
        reason = getattr(error, "strerror", error)
        raise UserError(f"cannot read the text {path!r}: {reason}.") from None
    if not text:
        raise UserError(f"the text {path!r} is empty.")
    if len(text) > MAX_SYMBOLS:
        raise UserError(f"the text {path!r} is too long: at most {MAX_SYMBOLS:,} symbols.")
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    code_points, ids, counts = np.unique(points, return_inverse=True, return_counts=True)
    V = len(code_points)
    if V == 1:
        raise UserError(f"the text {path!r} repeats one symbol; nothing can be learned from it.")
    pairs = np.bincount(ids[:-1].astype(np.int64) * V + ids[1:], minlength=V * V).reshape(V, V)
    dtype = np.uint8 if V <= 256 else np.int32
    return Characters(tuple(map(chr, code_points)), pairs, counts, ids.astype(dtype))
