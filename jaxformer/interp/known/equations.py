"""The equations of the parts, in NumPy: what each adds to the answer of each prompt.

The variables of the residual stream are separate arrays here. There are no weights, rotation, idle
heads or noise, so this says what the compiled network should do, and what happens to its answer if
a node is replaced.

Shape letters: B prompts, T positions, K values of a variable, D numbers of a query.
"""

from collections.abc import Mapping

import numpy as np

from jaxformer.interp.known.parts import SHARPNESS, Head, Neurons, Read
from jaxformer.interp.known.placement import EMBEDDED, Placed
from jaxformer.interp.known.program import ANSWER, POSITION, TOKEN

Outputs = dict[str, dict[str, np.ndarray]]  # {node: {variable: what it adds, (B, T, K)}}


def outputs(
    placed: Placed, tokens_BxT: np.ndarray, replaced: Mapping[str, dict[str, np.ndarray]]
) -> Outputs:
    """The outputs of all nodes on prompts.

    Args:
        placed: the parts of a program.
        tokens_BxT: the prompts.
        replaced: {node: what it writes instead}.
    """
    B, T = tokens_BxT.shape
    sizes = placed.plan.sizes
    stream = {name: np.zeros((B, T, size)) for name, size in sizes.items()}
    stream[TOKEN] = np.eye(sizes[TOKEN])[tokens_BxT]
    stream[POSITION] = np.broadcast_to(np.eye(sizes[POSITION])[:T], (B, T, sizes[POSITION]))
    found: Outputs = {EMBEDDED: {TOKEN: stream[TOKEN], POSITION: stream[POSITION]}}
    for node in placed.nodes:
        written: dict[str, np.ndarray] = {}
        for part, place in zip(placed.plan.parts, placed.places, strict=True):
            if place.node == node:
                added = _head(part, stream) if isinstance(part, Head) else _neurons(part, stream)
                written[part.writes] = written.get(part.writes, 0) + added
        found[node] = replaced.get(node, written)
        # The heads of a block work at the same time, but none of them reads what another one of
        # the same block writes, so they may as well work one after the other.
        for variable, added in found[node].items():
            stream[variable] = stream[variable] + added
    return found


def answer(found: Outputs) -> np.ndarray:
    """The answer that the nodes write, (B, T, K)."""
    written = [values[ANSWER] for values in found.values() if ANSWER in values]
    return np.sum(written, axis=0)


def replacements(
    placed: Placed, clean_BxT: np.ndarray, corrupted_BxT: np.ndarray, ablation: str
) -> Outputs:
    """The outputs that replace those of ablated nodes."""
    clean = outputs(placed, clean_BxT, {})
    corrupted = outputs(placed, corrupted_BxT, {})
    others: Outputs = {}
    for node, written in clean.items():
        others[node] = {}
        for variable, value_BxTxK in written.items():
            other_BxTxK = corrupted[node][variable]
            if ablation == "zero":
                other_BxTxK = np.zeros_like(value_BxTxK)
            elif ablation == "mean":
                mean_1xTxK = ((value_BxTxK + other_BxTxK) / 2).mean(0, keepdims=True)
                other_BxTxK = np.broadcast_to(mean_1xTxK, value_BxTxK.shape)
            others[node][variable] = other_BxTxK
    return others


def _head(part: Head, stream: Mapping[str, np.ndarray]) -> np.ndarray:
    value_BxTxK = stream[part.values.variable] @ part.values.matrix
    B, T = value_BxTxK.shape[:2]
    query_BxTxD = _sum(part.queries, stream, (B, T, len(part.bias))) + part.bias
    key_BxTxD = _sum(part.keys, stream, (B, T, len(part.bias)))
    score_BxTxS = SHARPNESS * query_BxTxD @ np.swapaxes(key_BxTxD, 1, 2)
    score_BxTxS = np.where(np.tril(np.ones((T, T), bool)), score_BxTxS, -np.inf)
    weight_BxTxS = np.exp(score_BxTxS - score_BxTxS.max(-1, keepdims=True))
    weight_BxTxS /= weight_BxTxS.sum(-1, keepdims=True)
    return weight_BxTxS @ value_BxTxK @ part.out


def _neurons(part: Neurons, stream: Mapping[str, np.ndarray]) -> np.ndarray:
    B, T = stream[TOKEN].shape[:2]
    hidden_BxTxM = _sum(part.inputs, stream, (B, T, len(part.bias))) + part.bias
    return np.maximum(hidden_BxTxM, 0) @ part.out


def _sum(
    reads: tuple[Read, ...], stream: Mapping[str, np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    total = np.zeros(shape)
    for read in reads:
        total = total + stream[read.variable] @ read.matrix
    return total
