"""What a model says next when one matrix changes: the blocks below that matrix are computed once.

The blocks of a published model are one function of different parameters. Three programs serve the
whole search, whatever the block, the matrix and the rank:

    enter    tokens -> the stream before block_0
    advance  the stream before a block -> the stream after it
    leave    the stream after the last block -> log p of the next token

A search over all matrices computes half as much as one that begins at the tokens every time.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.associations import prompts
from experiments.papers.associations.prompts import Prompts
from jaxformer.capture import capture, intervene, run
from jaxformer.models.pretrained import Pretrained

Says = Callable[[Any, str], np.ndarray]


def reader(model: Any, params: Any, asked: Prompts, at_once: int) -> Says:
    """says(cut, path): (B, V) log p after each prompt, of parameters that differ at `path` alone.

    Prompts are taken `at_once`. Only of published models it is known that their blocks are equal;
    another model is run as a whole.
    """
    parts = prompts.parts(asked, at_once)
    if isinstance(model, Pretrained):
        return Blockwise(model, params, parts).says

    def says(cut: Any, path: str) -> np.ndarray:
        return prompts.joined(
            (start, prompts.next_log_probabilities(model, cut, part)) for start, part in parts
        )

    return says


class Blockwise:
    """The stream of every part of the prompts before one block, of the parameters as they are."""

    def __init__(self, model: Any, params: Any, parts: list[tuple[int, Prompts]]):
        self.model, self.params, self.parts = model, params, parts
        self.block, self.streams = model.spec.layers + 1, []  # nothing is known yet

    def says(self, cut: Any, path: str) -> np.ndarray:
        programs, first = _programs(self.model), self._first(path)
        if first is not None:
            self._go_to(first)
        return prompts.joined(
            (start, np.asarray(self._logs(programs, cut, first, i)))
            for i, (start, _) in enumerate(self.parts)
        )

    def _logs(self, programs: "Programs", cut: Any, first: int | None, i: int) -> jax.Array:
        tokens_BxT, ends_Bx1, *_ = self.parts[i][1]
        h = programs.enter(cut, tokens_BxT) if first is None else self.streams[i]
        for block in range(first or 0, self.model.spec.layers):
            h = programs.advance(cut, cut[f"block_{block}"], tokens_BxT, h)
        return programs.leave(cut, tokens_BxT, ends_Bx1, h)

    def _first(self, path: str) -> int | None:
        """The first block that a change at `path` reaches; None if it reaches the embedding."""
        if not path:
            return 0  # nothing is changed
        if inside := re.match(r"block_(\d+)/", path):
            return int(inside[1])
        return self.model.spec.layers if path.startswith(("unembed/", "final_norm/")) else None

    def _go_to(self, block: int) -> None:
        """The streams before `block`, from those that are held if they lie below it."""
        enter, advance, _ = _programs(self.model)
        if self.block > block:
            self.block = 0
            self.streams = [enter(self.params, part.tokens_BxT) for _, part in self.parts]
        for i in range(self.block, block):
            mine = self.params[f"block_{i}"]
            self.streams = [
                advance(self.params, mine, part.tokens_BxT, h)
                for (_, part), h in zip(self.parts, self.streams, strict=True)
            ]
        self.block = block


class Programs(NamedTuple):
    enter: Any
    advance: Any
    leave: Any


def compiled(model: Any) -> int:
    """How many programs the busiest of the three has: 1, unless shapes have changed."""
    return max(program._cache_size() for program in _programs(model))


@lru_cache(maxsize=8)
def _programs(model: Any) -> Programs:
    """What a request makes superfluous is not compiled: each of them is a part of the model."""
    last = f"block_{model.spec.layers - 1}/states"

    def enter(params, tokens_BxT):
        return capture(model, params, tokens_BxT, names=["block_0/before"])["block_0/before"]

    def advance(params, block, tokens_BxT, h_BxTxN):
        """Any block is block_0 with that block's parameters."""
        found = run(
            model,
            dict(params) | {"block_0": block},
            tokens_BxT,
            names=["block_0/states"],
            edits={"block_0/before": h_BxTxN},
        )[1]
        return found["block_0/states"]

    def leave(params, tokens_BxT, ends_Bx1, h_BxTxN):
        logits_Bx1xV = intervene(model, params, tokens_BxT, ends_Bx1, {last: h_BxTxN})
        return jax.nn.log_softmax(logits_Bx1xV[:, 0].astype(jax.numpy.result_type(float)))

    return Programs(*map(jax.jit, (enter, advance, leave)))
