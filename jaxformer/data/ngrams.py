"""What unigrams, bigrams and trigrams of the training text say of the next token.

    p1(c)    = (n_c + 1/2) / (N + V/2)
    p2(c|b)  = max(n_bc - D2, 0) / n_b  +  D2 N(b.) / n_b  p1(c)
    p3(c|ab) = max(n_abc - D3, 0) / n_ab  +  D3 N(ab.) / n_ab  p2(c|b)

N(b.) is the number of different tokens after b: absolute discounting. The discounts D2 and D3 are
those that describe the last tenth of the training text best, counted on the other nine; then
everything is counted again on all of it. A context that was never seen leaves the shorter one.
Of a training text that is longer than MOST tokens only the first MOST are counted.
"""

from typing import NamedTuple

import numpy as np

DISCOUNTS = np.linspace(0.05, 0.95, 19)
MOST = 5_000_000


class Counts(NamedTuple):
    """Sorted n-grams as single numbers, how often each occurs, and the same of their contexts."""

    grams: np.ndarray
    n: np.ndarray
    contexts: np.ndarray
    total: np.ndarray  # tokens after a context
    kinds: np.ndarray  # different tokens after it


class Ngrams(NamedTuple):
    """The fitted predictor."""

    unigram_V: np.ndarray
    pairs: Counts
    triples: Counts
    discounts: tuple[float, float]

    def probabilities(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
        """Of the tokens c after b, and after a b; a = -1 has no token before b."""
        V = len(self.unigram_V)
        p1 = self.unigram_V[c]
        p2 = _mixed(self.pairs, b, c, V, self.discounts[0], p1)
        p3 = np.where(a < 0, p2, _mixed(self.triples, _pair(a, b, V), c, V, self.discounts[1], p2))
        return {"unigram": p1, "bigram": p2, "trigram": p3}

    def best_after(self) -> np.ndarray:
        """(V,) the most frequent token after each token."""
        V = len(self.unigram_V)
        best = np.full(V, int(self.unigram_V.argmax()))
        order = np.argsort(self.pairs.n, kind="stable")
        best[self.pairs.grams[order] // V] = self.pairs.grams[order] % V
        return best


def fit(tokens: np.ndarray, V: int) -> Ngrams:
    """The predictor of a training text, of which the first MOST tokens are counted."""
    tokens = tokens[:MOST].astype(np.int64)
    cut = len(tokens) * 9 // 10
    known, held = _counted(tokens[:cut], V), tokens[cut:]
    a, b, c = held[:-2], held[1:-1], held[2:]
    if not len(c):
        return _counted(tokens, V)
    first = min(DISCOUNTS, key=lambda d: _nats(known, (float(d), 0.5), "bigram", a, b, c))
    second = min(DISCOUNTS, key=lambda d: _nats(known, (first, float(d)), "trigram", a, b, c))
    return _counted(tokens, V)._replace(discounts=(float(first), float(second)))


def _nats(known: Ngrams, discounts, name: str, a, b, c) -> float:
    return -np.log(known._replace(discounts=discounts).probabilities(a, b, c)[name]).mean()


def _counted(tokens: np.ndarray, V: int) -> Ngrams:
    n_V = np.bincount(tokens, minlength=V)
    unigram_V = (n_V + 0.5) / (n_V.sum() + V / 2)
    pairs = _count(tokens[:-1], tokens[1:], V)
    triples = _count(_pair(tokens[:-2], tokens[1:-1], V), tokens[2:], V)
    return Ngrams(unigram_V, pairs, triples, (0.75, 0.75))


def _pair(a: np.ndarray, b: np.ndarray, V: int) -> np.ndarray:
    return a.astype(np.int64) * V + b


def _count(context: np.ndarray, token: np.ndarray, V: int) -> Counts:
    grams, n = np.unique(context.astype(np.int64) * V + token, return_counts=True)
    contexts, first, kinds = np.unique(grams // V, return_index=True, return_counts=True)
    total = np.add.reduceat(n, first) if len(n) else n
    return Counts(grams, n, contexts, total, kinds)


def _mixed(counts: Counts, context, token, V: int, discount: float, shorter: np.ndarray):
    """Absolute discounting: the n-gram where it was seen, and the rest to the shorter context."""
    gram = context.astype(np.int64) * V + token
    n = _look_up(counts.grams, counts.n, gram)
    total = _look_up(counts.contexts, counts.total, context)
    kinds = _look_up(counts.contexts, counts.kinds, context)
    p = (np.maximum(n - discount, 0) + discount * kinds * shorter) / np.maximum(total, 1)
    return np.where(total > 0, p, shorter)


def _look_up(known: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values of what is known, 0 of the rest."""
    if not len(known):
        return np.zeros(wanted.shape, np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, values[place], 0)
