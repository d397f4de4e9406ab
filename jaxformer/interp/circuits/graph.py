"""The graph of a network: which nodes write into the residual stream, and which readers read them.

Nodes that write are the embedding, each head and each MLP. Readers are the queries, keys and values
of each head (of each group of heads, where heads share keys and values), each MLP, and the logits.
An edge joins a writer to a later reader.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.interp.capture.running import run, shapes
from jaxformer.interp.programs import computed

LOGITS = "logits"
# The first of these addresses that a model has is its embedding.
INPUTS = "embedded", "token_embeddings", "block_0/before"
BRANCH = re.compile(r"(.*/)?(attn|mlp)(_\d+)?/(heads|output)")
LETTERS = {"query": "queries", "key": "keys", "value": "values"}


class Edge(NamedTuple):
    """A path of one step: what `source` writes, as `reader` reads it."""

    source: str  # such as "block_0/attn/head_3"
    reader: str  # such as "block_1/attn/head_0/query"

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"


class Stage(NamedTuple):
    """Readers that are computed together, and the address that they write.

    Attributes:
        writes: the address of the output, such as "block_0/attn/heads"; "" for the logits.
        n_units: the nodes in this output: heads, or 1.
        reads: (address, number of readers) such as ("block_0/attn/queries", 4). An MLP is its own
            reader.
        n_sources: the stages whose outputs the readers read: the embedding and the first ones.
    """

    writes: str
    n_units: int
    reads: tuple[tuple[str, int], ...]
    n_sources: int


@dataclass(frozen=True)
class Graph:
    """Nodes and edges of a network, in the order of computation.

    Attributes:
        input: the address of the embedding.
        stages: the readers and what they write; the logits are the last.
    """

    input: str
    stages: tuple[Stage, ...]

    @cached_property
    def writing(self) -> list[str]:
        """The addresses of what the nodes write."""
        return [self.input, *(stage.writes for stage in self.stages[:-1])]

    @cached_property
    def sources(self) -> list[str]:
        """The nodes that write, S of them."""
        names = [self.input]
        for stage in self.stages[:-1]:
            names += _units(stage.writes, stage.n_units)
        return names

    @cached_property
    def readers(self) -> list[str]:
        """The readers, R of them."""
        names = []
        for stage in self.stages:
            for address, n_readers in stage.reads:
                names += _readers(address, n_readers, stage)
        return names

    @cached_property
    def exists_RxS(self) -> np.ndarray:
        """Booleans, true where an edge joins reader and source."""
        # The embedding is the first stage that writes.
        counts = np.cumsum([0, 1, *(stage.n_units for stage in self.stages)])
        exists = np.zeros((len(self.readers), len(self.sources)), bool)
        row = 0
        for stage in self.stages:
            n_rows = sum(n_readers for _, n_readers in stage.reads)
            exists[row : row + n_rows, : counts[stage.n_sources]] = True
            row += n_rows
        return exists

    @cached_property
    def edges(self) -> list[Edge]:
        """All edges, by reader, then by source."""
        pairs = zip(*np.nonzero(self.exists_RxS), strict=True)
        return [Edge(self.sources[source], self.readers[reader]) for reader, source in pairs]

    @cached_property
    def _numbers(self) -> dict[Edge, int]:
        return {edge: number for number, edge in enumerate(self.edges)}

    def chosen(self, edges: Iterable[Any]) -> np.ndarray:
        """Returns booleans (E,), true at these edges; raises UserError for one that is no edge."""
        is_chosen = np.zeros(len(self.edges), bool)
        for edge in edges:
            number = self._numbers.get(edge)
            if number is None:
                text = (
                    str(Edge(*edge)) if isinstance(edge, tuple) and len(edge) == 2 else f"{edge!r}"
                )
                known = [str(edge) for edge in self.edges]
                raise UserError(
                    f"the network has no edge {text}.{did_you_mean(text, known)} Edges look like: "
                    f"{known[0]}."
                )
            is_chosen[number] = True
        return is_chosen

    def mask(self, chosen_ExC: np.ndarray) -> np.ndarray:
        """Returns numbers of edges (E, ..) as an array of readers and sources, (R, S, ..)."""
        mask = np.zeros((*self.exists_RxS.shape, *chosen_ExC.shape[1:]), np.float32)
        mask[self.exists_RxS] = chosen_ExC
        return mask

    def connected(self, chosen_E: np.ndarray) -> np.ndarray:
        """Returns the chosen edges that lie on a path from the embedding to the logits, (E,)."""
        edges = [edge for edge, is_in in zip(self.edges, chosen_E, strict=True) if is_in]
        from_input, to_logits = {self.input}, {LOGITS}
        for edge in edges:
            if edge.source in from_input:
                from_input |= {edge.reader, *self.writers(edge.reader)}
        for edge in reversed(edges):
            if edge.reader in to_logits or to_logits.intersection(self.writers(edge.reader)):
                to_logits.add(edge.source)
        kept = [
            edge
            for edge in edges
            if edge.source in from_input
            and (edge.reader == LOGITS or to_logits.intersection(self.writers(edge.reader)))
        ]
        return self.chosen(kept)

    def writers(self, reader: str) -> list[str]:
        """Returns the nodes whose output depends on a reader; none for the logits."""
        return self._writers.get(reader, [])

    @cached_property
    def _writers(self) -> dict[str, list[str]]:
        writers: dict[str, list[str]] = {}
        for stage in self.stages[:-1]:
            units = _units(stage.writes, stage.n_units)
            for address, n_readers in stage.reads:
                names = _readers(address, n_readers, stage)
                group = len(units) // n_readers
                for i, name in enumerate(names):
                    writers[name] = units[i * group : (i + 1) * group]
        return writers


def graph_of(model: Any, params: Any, tokens_BxT: Any) -> Graph:
    """Returns the graph of a model with activation addresses.

    Nodes are found by their addresses: "../attn/heads", "../attn/output" of attention without
    heads, and "../mlp/output". Modules of your own get them from `tap`.
    """
    example = jnp.asarray(tokens_BxT)[:1]
    known = computed(_shapes, model, example.shape, example.dtype)
    start = next((address for address in INPUTS if address in known), None)
    branches = [address for address in known if BRANCH.fullmatch(address)]
    # The output of attention is no node of its own if its heads are nodes.
    branches = [
        address
        for address in branches
        if not (address.endswith("/output") and address.replace("/output", "/heads") in known)
    ]
    if start is None or not branches:
        raise UserError(
            f"{type(model).__name__} has no nodes for a circuit: expected the address "
            f"{INPUTS[0]!r} and addresses such as 'block_0/attn/heads' or 'block_0/mlp/output'; "
            f"it has {', '.join([*known][:5]) or 'none'}."
        )
    stages: list[Stage] = []
    for i, address in enumerate(branches):
        prefix = address.rsplit("/", 1)[0]
        n_units, reads = 1, ((address, 1),)
        if address.endswith("/heads"):
            n_units = known[address][2]
            reads = tuple(
                (f"{prefix}/{name}", known[f"{prefix}/{name}"][2])
                for name in LETTERS.values()
                if f"{prefix}/{name}" in known
            )
        n_sources = i + 1
        if i and not _depends(model, params, example, known, branches[i - 1], address):
            n_sources = stages[-1].n_sources  # a parallel block
        stages.append(Stage(address, n_units, reads, n_sources))
    stages.append(Stage("", 0, ((LOGITS, 1),), len(branches) + 1))
    return Graph(start, tuple(stages))


def _shapes(model: Any, shape: tuple[int, ...], dtype: Any) -> dict[str, tuple[int, ...]]:
    """Returns {address: shape} for prompts of a shape."""
    found = shapes(model, None, jax.ShapeDtypeStruct(shape, dtype))
    return {address: x.shape for address, x in found.items()}


def _depends(model, params, example, known, earlier: str, later: str) -> bool:
    """Returns whether an activation depends on an earlier one of the same block."""
    block = later.rsplit("/", 2)[0]
    if earlier.rsplit("/", 2)[0] != block or f"{block}/between" in known:
        return True
    if hasattr(model.spec, "parallel"):
        return not model.spec.parallel

    # A nan spreads to everything that is computed from it.
    def later_value(params, tokens):
        edits = {re.escape(earlier): jnp.nan}
        return run(model, params, tokens, names=[re.escape(later)], edits=edits)[1][later]

    return bool(jnp.isnan(jax.jit(later_value)(params, example)).any())


def _units(address: str, n_units: int) -> list[str]:
    """Returns the names of the nodes whose outputs an address has."""
    branch, kind = address.rsplit("/", 1)
    return [f"{branch}/head_{i}" for i in range(n_units)] if kind == "heads" else [branch]


def _readers(address: str, n_readers: int, stage: Stage) -> list[str]:
    """Returns the names of the readers of an address."""
    branch, _, kind = address.rpartition("/")
    letter = next((letter for letter, name in LETTERS.items() if name == kind), None)
    if letter is None:
        return [branch or address]
    part = "head" if n_readers == stage.n_units else "group"
    return [f"{branch}/{part}_{i}/{letter}" for i in range(n_readers)]
