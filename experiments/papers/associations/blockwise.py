"""Next-token probabilities when one matrix of a model changes: lower blocks are computed once.

The blocks of a published model are one function of different parameters. Three compiled programs
serve the whole search, for any block, matrix and rank:

    enter    tokens -> the residual stream before block_0
    advance  the residual stream before a block -> the stream after it
    leave    the residual stream after the last block -> log probabilities of the next token

A search over all matrices costs half as much as one that starts from the tokens each time.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.associations import next_token
from experiments.papers.associations.next_token import PromptBatch
from jaxformer.capture import capture, intervene, run
from jaxformer.models.pretrained import Pretrained

LogProbabilities = Callable[[Any, str], np.ndarray]


def make_log_probabilities(
    model: Any, params: Any, prompts: PromptBatch, batch_size: int
) -> LogProbabilities:
    """Returns a function of changed parameters that computes log probabilities after each prompt.

    Args:
      model: A published model is computed block by block, any other model as a whole, because only
        blocks of published models are known to be equal.
      params: The unchanged parameters.
      prompts: B prompts.
      batch_size: Prompts in one step.

    Returns:
      log_probabilities(changed, path): (B, V), for parameters `changed`, which differ from `params`
      at `path` only.
    """
    parts = next_token.split(prompts, batch_size)
    if isinstance(model, Pretrained):
        return Blockwise(model, params, parts).log_probabilities

    def log_probabilities(changed: Any, path: str) -> np.ndarray:
        return next_token.join(
            (start, next_token.log_probabilities(model, changed, part)) for start, part in parts
        )

    return log_probabilities


class Blockwise:
    """The residual streams of all prompts before one block, at unchanged parameters."""

    def __init__(self, model: Any, params: Any, parts: list[tuple[int, PromptBatch]]):
        self.model, self.params, self.parts = model, params, parts
        # No stream is computed yet: a block above all others makes `_move_to` start at the tokens.
        self.block, self.streams = model.spec.layers + 1, []

    def log_probabilities(self, changed: Any, path: str) -> np.ndarray:
        programs, first = _programs(self.model), self._first_changed_block(path)
        if first is not None:
            self._move_to(first)
        return next_token.join(
            (start, np.asarray(self._part_log_probabilities(programs, changed, first, i)))
            for i, (start, _) in enumerate(self.parts)
        )

    def _part_log_probabilities(
        self, programs: "Programs", changed: Any, first: int | None, i: int
    ) -> jax.Array:
        tokens_BxT, ends_Bx1, *_ = self.parts[i][1]
        h = programs.enter(changed, tokens_BxT) if first is None else self.streams[i]
        for block in range(first or 0, self.model.spec.layers):
            h = programs.advance(changed, changed[f"block_{block}"], tokens_BxT, h)
        return programs.leave(changed, tokens_BxT, ends_Bx1, h)

    def _first_changed_block(self, path: str) -> int | None:
        """Returns the first block that a change at `path` reaches; None if it is the embedding."""
        if not path:
            return 0  # no parameter changes
        if match := re.match(r"block_(\d+)/", path):
            return int(match[1])
        return self.model.spec.layers if path.startswith(("unembed/", "final_norm/")) else None

    def _move_to(self, block: int) -> None:
        """Computes the streams before `block`, from the stored ones if those lie below it."""
        enter, advance, _ = _programs(self.model)
        if self.block > block:
            self.block = 0
            self.streams = [enter(self.params, part.tokens_BxT) for _, part in self.parts]
        for i in range(self.block, block):
            block_params = self.params[f"block_{i}"]
            self.streams = [
                advance(self.params, block_params, part.tokens_BxT, h)
                for (_, part), h in zip(self.parts, self.streams, strict=True)
            ]
        self.block = block


class Programs(NamedTuple):
    """The three compiled programs of a model."""

    enter: Any
    advance: Any
    leave: Any


@lru_cache(maxsize=8)
def _programs(model: Any) -> Programs:
    """Compiles the parts of a model. XLA removes the operations that a part does not need."""
    last = f"block_{model.spec.layers - 1}/states"

    def enter(params, tokens_BxT):
        return capture(model, params, tokens_BxT, names=["block_0/before"])["block_0/before"]

    def advance(params, block, tokens_BxT, h_BxTxN):
        # Any block is computed as block_0 with that block's parameters.
        activations = run(
            model,
            dict(params) | {"block_0": block},
            tokens_BxT,
            names=["block_0/states"],
            edits={"block_0/before": h_BxTxN},
        )[1]
        return activations["block_0/states"]

    def leave(params, tokens_BxT, ends_Bx1, h_BxTxN):
        logits_Bx1xV = intervene(model, params, tokens_BxT, ends_Bx1, {last: h_BxTxN})
        return jax.nn.log_softmax(logits_Bx1xV[:, 0].astype(jax.numpy.result_type(float)))

    return Programs(*map(jax.jit, (enter, advance, leave)))
