"""Unigram, bigram and trigram predictors of the next token, with absolute discounting.

    p1(c)    = (n_c + 1/2) / (N + V/2)
    p2(c|b)  = max(n_bc - D2, 0) / n_b  +  D2 N(b.) / n_b  p1(c)
    p3(c|ab) = max(n_abc - D3, 0) / n_ab  +  D3 N(ab.) / n_ab  p2(c|b)

n_c, n_bc and n_abc count tokens, pairs and triples in a text of N tokens; n_b and n_ab count
contexts. N(b.) is the number of different tokens after b. D2 and D3 are discounts. They are chosen
on the last tenth of the training text, with counts of the first nine tenths. Then all counts are
taken again on the whole text, of at most MAX_TOKENS tokens. An unseen context falls back to the
shorter one.
"""

from typing import NamedTuple

import numpy as np

DISCOUNTS = np.linspace(0.05, 0.95, 19)
MAX_TOKENS = 5_000_000


class Counts(NamedTuple):
    """Counts of n-grams, each encoded as context * V + token, and of their contexts."""

    grams: np.ndarray  # sorted
    n: np.ndarray  # occurrences of each n-gram
    contexts: np.ndarray  # sorted
    total: np.ndarray  # occurrences of each context
    kinds: np.ndarray  # different tokens after each context


class Ngrams(NamedTuple):
    """A fitted n-gram predictor."""

    unigram_V: np.ndarray
    pairs: Counts
    triples: Counts
    discounts: tuple[float, float]  # D2 and D3

    def probabilities(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
        """Returns p(c), p(c|b) and p(c|ab) at P positions. a = -1: b has no predecessor.

        Args:
            a: token ids two positions before c, (P,).
            b: token ids before c, (P,).
            c: token ids, (P,).

        Returns:
            {"unigram": p(c), "bigram": p(c|b), "trigram": p(c|ab)}, each (P,).
        """
        V, (d2, d3) = len(self.unigram_V), self.discounts
        p1 = self.unigram_V[c]
        p2 = _discounted(self.pairs, b, c, V, d2, p1)
        p3 = _discounted(self.triples, _pair(a, b, V), c, V, d3, p2)
        p3 = np.where(a < 0, p2, p3)
        return {"unigram": p1, "bigram": p2, "trigram": p3}

    def best_after(self) -> np.ndarray:
        """Returns the most frequent token after each token, (V,)."""
        V = len(self.unigram_V)
        best = np.full(V, int(self.unigram_V.argmax()))
        order = np.argsort(self.pairs.n, kind="stable")
        # NumPy assigns in sequence: the last and most frequent pair of each context remains.
        best[self.pairs.grams[order] // V] = self.pairs.grams[order] % V
        return best


def fit(tokens: np.ndarray, V: int) -> Ngrams:
    """Fits the predictor to the first MAX_TOKENS tokens of a training text.

    Args:
        tokens: the token ids of the text, (T,).
        V: the number of different tokens.
    """
    tokens = tokens[:MAX_TOKENS].astype(np.int64)
    cut = len(tokens) * 9 // 10
    fitted, validation = _with_counts(tokens[:cut], V), tokens[cut:]
    a, b, c = validation[:-2], validation[1:-1], validation[2:]
    if not len(c):
        return _with_counts(tokens, V)
    # D3 has no effect on bigrams.
    d2 = min(DISCOUNTS, key=lambda d: _mean_nats(fitted, (float(d), 0.5), "bigram", a, b, c))
    d3 = min(DISCOUNTS, key=lambda d: _mean_nats(fitted, (d2, float(d)), "trigram", a, b, c))
    return _with_counts(tokens, V)._replace(discounts=(float(d2), float(d3)))


def _mean_nats(ngrams: Ngrams, discounts, name: str, a, b, c) -> float:
    """Returns the mean of -log p for one of the predictors, in nats."""
    return -np.log(ngrams._replace(discounts=discounts).probabilities(a, b, c)[name]).mean()


def _with_counts(tokens: np.ndarray, V: int) -> Ngrams:
    """Returns the predictor with the counts of a text, and with discounts of 0.75."""
    n_V = np.bincount(tokens, minlength=V)
    unigram_V = (n_V + 0.5) / (n_V.sum() + V / 2)
    pairs = _count_grams(tokens[:-1], tokens[1:], V)
    triples = _count_grams(_pair(tokens[:-2], tokens[1:-1], V), tokens[2:], V)
    return Ngrams(unigram_V, pairs, triples, (0.75, 0.75))


def _pair(a: np.ndarray, b: np.ndarray, V: int) -> np.ndarray:
    """Returns pairs of tokens encoded as integers."""
    return a.astype(np.int64) * V + b


def _count_grams(context: np.ndarray, token: np.ndarray, V: int) -> Counts:
    grams, n = np.unique(context.astype(np.int64) * V + token, return_counts=True)
    contexts, first, kinds = np.unique(grams // V, return_index=True, return_counts=True)
    total = np.add.reduceat(n, first) if len(n) else n
    return Counts(grams, n, contexts, total, kinds)


def _discounted(counts: Counts, context, token, V: int, discount: float, shorter: np.ndarray):
    """Returns p(token | context) with absolute discounting.

    Args:
        counts: the counts of the n-grams.
        context: the encoded contexts, (P,).
        token: the tokens, (P,).
        V: the number of different tokens.
        discount: D2 or D3.
        shorter: p(token | shorter context), which receives the discounted mass, (P,).
    """
    gram = context.astype(np.int64) * V + token
    n = _look_up(counts.grams, counts.n, gram)
    total = _look_up(counts.contexts, counts.total, context)
    kinds = _look_up(counts.contexts, counts.kinds, context)
    p = (np.maximum(n - discount, 0) + discount * kinds * shorter) / np.maximum(total, 1)
    return np.where(total > 0, p, shorter)


def _look_up(keys: np.ndarray, values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Returns the value of each query in the sorted keys, 0 for a missing key."""
    if not len(keys):
        return np.zeros(queries.shape, np.int64)
    index = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[index] == queries, values[index], 0)
