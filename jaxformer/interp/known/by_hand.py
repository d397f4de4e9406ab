"""Networks whose circuit is known, because their weights were set by hand.

    known = network("induction")
    known.model, known.params                     a decoder of two blocks without norms
    known.clean, known.corrupted, known.answers   pairs of prompts, as `circuits` takes them
    known.circuits["resample"]                    the smallest circuits, each a set of edges

A method that claims to find circuits should find these. The residual stream has a part of its own
for tokens, positions, the previous token and the answer, so each head reads and writes exactly what
its name says. Besides, every network has heads and an MLP that compute something from the tokens
and write it where no answer reads: they matter to their own activations and to nothing else.

    copy       head 0 of block 0 copies the previous token into the answer
    induction  a head of block 0 writes the previous token, a head of block 1 looks it up
    majority   one head averages all tokens
    sort       one head finds the smallest number above the last one
    add        a head writes the previous token, the MLP adds the current one modulo 5
    useless    copy, and a head that copies another token where nothing reads
    twins      two heads write the previous token, of which the MLP needs one
    cancel     copy, and two heads that write opposite answers

A circuit depends on what replaces the edges outside it. The queries and keys of "copy" see
positions only, which are equal in all prompts: they belong to the circuit of "zero" and not to that
of "mean" or "resample".
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import unknown
from jaxformer.interp.answers import Answers
from jaxformer.interp.known.builder import HIDDEN, LENGTH, VOCAB, Builder
from jaxformer.models.decoder import Decoder

PREFIX = "known:"
PAIRS, SCORED = 12, 4
EMBEDDED, LOGITS = "embedded", "logits"
Edge = tuple[str, str]  # (the node that writes, the reader)


class Known(NamedTuple):
    """A network, pairs of prompts and its smallest circuits by the kind of ablation."""

    model: Decoder
    params: dict[str, Any]
    clean: np.ndarray  # (B, T)
    corrupted: np.ndarray  # (B, T)
    answers: Answers
    circuits: dict[str, tuple[frozenset[Edge], ...]]  # "resample", "mean", "zero"


def network(name: str) -> Known:
    """Builds a network of the module's docstring.

    Args:
        name: such as "copy", with or without "known:".
    """
    name = name.removeprefix(PREFIX)
    if name not in NETWORKS:
        raise unknown("known network", name, NETWORKS)
    return NETWORKS[name]()


def _known(
    builder: Builder,
    prompt: Callable[[np.random.Generator], tuple[Any, Sequence[int], Any]],
    content: Sequence[Edge],
    wiring: Sequence[Edge] = (),
    alternatives: dict[str, tuple[frozenset[Edge], ...]] | None = None,
) -> Known:
    """Draws pairs of prompts whose answers differ at all scored positions.

    Args:
        builder: the kernels.
        prompt: draws (tokens, scored positions, their answers).
        content: the edges that carry what differs between prompts.
        wiring: further edges of the circuit of "zero".
        alternatives: the circuits of kinds of ablation that have several.
    """
    random = np.random.default_rng(1)
    pairs = []
    while len(pairs) < PAIRS:
        clean, corrupted = prompt(random), prompt(random)
        if all(right != wrong for right, wrong in zip(clean[2], corrupted[2], strict=True)):
            pairs.append((clean, corrupted))
    position, target, against = (
        np.array([_filled(pair[i][j]) for pair in pairs], np.int32)
        for i, j in ((0, 1), (0, 2), (1, 2))
    )
    n_scored = len(pairs[0][0][1])
    weight = np.broadcast_to(np.arange(SCORED) < n_scored, position.shape)
    answers = Answers(*map(jnp.asarray, (position, target, against, weight.astype(np.float32))))
    clean, corrupted = (np.array([pair[i][0] for pair in pairs], np.int32) for i in (0, 1))
    circuits = {
        "resample": (frozenset(content),),
        "mean": (frozenset(content),),
        "zero": (frozenset([*content, *wiring]),),
    }
    return Known(*builder.finish(), clean, corrupted, answers, circuits | (alternatives or {}))


def _filled(values: Sequence[int]) -> list[int]:
    """Repeats the last of some values up to SCORED; its copies have the weight 0."""
    return [*values, *[values[-1]] * (SCORED - len(values))]


def _edge(source: str, reader: str) -> Edge:
    """An edge from short names: "0.1" is head 1 of block 0, "0.1.q" are its queries, "0.mlp"."""
    return _long_name(source), _long_name(reader)


def _long_name(short: str) -> str:
    if short in (EMBEDDED, LOGITS):
        return short
    block, part, *letter = short.split(".")
    if part == "mlp":
        return f"block_{block}/mlp"
    letters = {"q": "/query", "k": "/key", "v": "/value"}
    return f"block_{block}/attn/head_{part}" + "".join(letters[x] for x in letter)


def _edges(text: str) -> list[Edge]:
    """Reads edges such as "embedded>0.0.v 0.0>logits"."""
    return [_edge(*edge.split(">")) for edge in text.split()]


def _second_last(random: np.random.Generator):
    """Draws a prompt whose answer is its second last token."""
    tokens = random.integers(0, VOCAB, LENGTH)
    return tokens, [LENGTH - 1], [tokens[-2]]


def _copy(useless: bool = False) -> Known:
    builder = Builder()
    builder.previous(0, 0, "answer")
    if useless:
        builder.head(0, 1, "token", "before")
    content, wiring = _edges("embedded>0.0.v 0.0>logits"), _edges("embedded>0.0.q embedded>0.0.k")
    return _known(builder, _second_last, content, wiring)


def _induction() -> Known:
    builder = Builder()
    builder.previous(0, 2, "before")
    same = np.eye(VOCAB)
    builder.head(1, 1, "token", "answer", ("token", same), ("before", same))

    def draw(random: np.random.Generator):
        # Token 0 begins each prompt, because the first token is its own previous token.
        tokens = 1 + random.permutation(VOCAB - 1)[: LENGTH - 2]
        place = random.integers(0, LENGTH - 3)
        return [0, *tokens, tokens[place]], [LENGTH - 1], [tokens[place + 1]]

    content = _edges("embedded>0.2.v 0.2>1.1.k embedded>1.1.q embedded>1.1.v 1.1>logits")
    return _known(builder, draw, content, _edges("embedded>0.2.q embedded>0.2.k"))


def _majority() -> Known:
    builder = Builder()
    builder.head(0, 3, "token", "answer")

    def draw(random: np.random.Generator):
        while True:
            tokens = random.integers(0, 4, LENGTH)
            counts = np.sort(np.bincount(tokens, minlength=4))
            if counts[-1] > counts[-2]:
                return tokens, [LENGTH - 1], [np.bincount(tokens).argmax()]

    return _known(builder, draw, _edges("embedded>0.3.v 0.3>logits"))


def _sort() -> Known:
    builder = Builder()
    # The next number is the smallest one above the last, so no head needs to know a position.
    last, key = np.meshgrid(np.arange(VOCAB), np.arange(VOCAB), indexing="ij")
    wanted = np.where(key > last, float(VOCAB) - key, 0.0)
    builder.head(1, 0, "token", "answer", ("token", wanted), ("token", np.eye(VOCAB)))

    def draw(random: np.random.Generator):
        given = 1 + random.permutation(VOCAB - 1)[:SCORED]
        answer = np.sort(given)
        return [*given, 0, *answer[:-1]], [*range(SCORED, LENGTH)], answer

    content = _edges("embedded>1.0.q embedded>1.0.k embedded>1.0.v 1.0>logits")
    return _known(builder, draw, content)


def _add(modulus: int = 5) -> Known:
    builder = Builder()
    builder.previous(0, 1, "before")
    # A hidden unit for each pair of tokens: one token opens its gate, the other is its value.
    first, second = (np.zeros((VOCAB, HIDDEN)) for _ in range(2))
    first[:modulus] = np.repeat(np.eye(modulus), modulus, 1)
    second[:modulus] = np.tile(np.eye(modulus), modulus)
    total = np.add.outer(np.arange(modulus), np.arange(modulus)).reshape(-1) % modulus
    builder.mlp(0, {"before": first}, {"token": second}, {"answer": np.eye(VOCAB)[total]})

    def draw(random: np.random.Generator):
        tokens = random.integers(0, modulus, LENGTH)
        return tokens, [LENGTH - 1], [(tokens[-1] + tokens[-2]) % modulus]

    content = _edges("embedded>0.1.v 0.1>0.mlp embedded>0.mlp 0.mlp>logits")
    return _known(builder, draw, content, _edges("embedded>0.1.q embedded>0.1.k"))


def _twins() -> Known:
    builder = Builder()
    builder.previous(0, 0, "before")
    builder.previous(0, 3, "before")
    # The answer is min(1, relu(8 p - 4)): one head gives p = 1, both give 2, a mean gives 0.
    # The MLP of block 1 reads them, so that block 0 has an MLP without use as well.
    gate, threshold, out = (np.zeros(n) for n in ((VOCAB, HIDDEN), (1, HIDDEN), (HIDDEN, VOCAB)))
    for token in range(VOCAB):
        rising, stopping = 2 * token, 2 * token + 1
        gate[token, [rising, stopping]] = 8
        threshold[0, [rising, stopping]] = -4, -5
        out[[rising, stopping], token] = 1, -1
    linear = {"one": np.ones((1, HIDDEN))}
    builder.mlp(1, {"before": gate, "one": threshold}, linear, {"answer": out})
    constant = set(_edges("embedded>1.mlp"))  # differs between prompts in no ablation but zero
    one, other = (set(_edges(f"embedded>0.{h}.v 0.{h}>1.mlp 1.mlp>logits")) for h in (0, 3))
    wiring = [constant.union(_edges(f"embedded>0.{h}.q embedded>0.{h}.k")) for h in (0, 3)]
    alternatives = {
        "mean": (frozenset(one), frozenset(other)),
        "zero": (frozenset(one | wiring[0]), frozenset(other | wiring[1])),
    }
    return _known(builder, _second_last, sorted(one | other), (), alternatives)


def _cancel() -> Known:
    builder = Builder()
    builder.previous(0, 0, "answer")
    here = ("position", np.eye(LENGTH))
    builder.head(0, 1, "token", "answer", here, here, factor=1.0)
    builder.head(0, 2, "token", "answer", here, here, factor=-1.0)
    content, wiring = _edges("embedded>0.0.v 0.0>logits"), _edges("embedded>0.0.q embedded>0.0.k")
    return _known(builder, _second_last, content, wiring)


NETWORKS: dict[str, Callable[[], Known]] = {
    "copy": _copy,
    "induction": _induction,
    "majority": _majority,
    "sort": _sort,
    "add": _add,
    "useless": lambda: _copy(useless=True),
    "twins": _twins,
    "cancel": _cancel,
}
