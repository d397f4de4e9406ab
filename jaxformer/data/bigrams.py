"""Unigram and bigram statistics of a text: the packaged counts of tiny Shakespeare, or any file."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from jaxformer.errors import UserError


@dataclass(frozen=True, eq=False)
class Statistics:
    """The N most frequent symbols in the order of their code points, and their probabilities."""

    symbols: tuple[str, ...]
    unigram_N: np.ndarray
    bigram_NxN: np.ndarray  # rows: p(next | symbol)


@cache
def statistics(text: str, n_symbols: int) -> Statistics:
    """Counts of the file `text` ("": the packaged ones), cut to `n_symbols` and renormalised."""
    symbols, unigram, bigram = counts(text)
    if not 2 <= n_symbols <= len(symbols):
        raise UserError(
            f"the text has {len(symbols)} symbols; n_symbols must be 2 to that, got {n_symbols}."
        )
    kept = np.sort(np.argsort(-unigram, kind="stable")[:n_symbols])
    chosen = tuple(symbols[i] for i in kept)
    unigram, bigram = unigram[kept].astype(float), bigram[np.ix_(kept, kept)].astype(float)
    for symbol, total in zip(chosen, bigram.sum(1), strict=True):
        if not total:
            raise UserError(
                f"nothing follows {symbol!r} among the {n_symbols} symbols of the text: it has no "
                "bigrams. Use a longer text or another n_symbols."
            )
    return Statistics(chosen, unigram / unigram.sum(), bigram / bigram.sum(1, keepdims=True))


def counts(text: str) -> tuple[str, np.ndarray, np.ndarray]:
    """(symbols, unigram counts (V,), bigram counts (V, V)) of a whole text."""
    if not text:
        file = resources.files("jaxformer") / "data" / "shakespeare_bigrams.json"
        held = json.loads(file.read_text(encoding="utf-8"))
        symbols = "".join(sorted(held["following"]))
        bigram = np.array([[held["following"][a].get(b, 0) for b in symbols] for a in symbols], int)
        # A symbol is counted once more than it is followed if the text ends with it.
        unigram = bigram.sum(1) + np.array([symbol == held["last"] for symbol in symbols])
        return symbols, unigram, bigram
    try:
        letters = Path(text).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the text {text!r}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"the text {text!r} is not UTF-8.") from None
    if len(letters) < 2:
        raise UserError(f"the text {text!r} has {len(letters)} symbols, at least 2 are needed.")
    symbols, ids = np.unique(np.array(list(letters)), return_inverse=True)
    V = len(symbols)
    bigram = np.bincount(ids[:-1] * V + ids[1:], minlength=V * V).reshape(V, V)
    return "".join(symbols), np.bincount(ids, minlength=V), bigram


def alias_tables(p_RxN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias tables of R distributions: cell i keeps i with probability keep, else alias.

    A draw is then two look-ups whatever N is.
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
