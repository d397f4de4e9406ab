"""What attention paths see of the data (arXiv 2405.15926): sums over tokens, no weights.

The model `models.attention_paths` and the data of `data.hidden_markov` both need it. It has only
operators, so that NumPy arrays (float64 without x64) and JAX arrays pass alike.
"""

from collections.abc import Sequence
from typing import Any

from jaxformer.core.errors import UserError, check_choice

READOUTS = ("first", "last", "mean")


def readout_queries(tokens_BxTxn, readout: str):
    """The tokens whose output is read: one of them (its axis kept) or, for the mean, all."""
    check_choice("readout", readout, READOUTS)
    chosen = {"first": slice(0, 1), "last": slice(-1, None), "mean": slice(None)}
    return tokens_BxTxn[:, chosen[readout]]


def attentioned_input(tokens_BxTxn, maps: Sequence[Any]):
    """xi^pi for every path, (B, D, n), from maps Omega^(l) of shape (B, H_l, key s, query t).

    The last map holds the queries that are read, one or several, and is averaged over them.
    """
    if not maps:
        raise UserError("attentioned_input needs the attention maps of at least one layer.")
    path_BxDxS = maps[-1].mean(-1)
    for map_BxHxSxT in maps[-2::-1]:
        path_BxHxSxD = map_BxHxSxT @ path_BxDxS.swapaxes(1, 2)[:, None]
        path_BxHxDxS = path_BxHxSxD.swapaxes(2, 3)
        path_BxDxS = path_BxHxDxS.reshape(len(tokens_BxTxn), -1, path_BxHxDxS.shape[-1])
    return path_BxDxS @ tokens_BxTxn
