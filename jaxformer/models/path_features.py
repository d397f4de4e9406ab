"""Features of attention paths (arXiv 2405.15926): tokens summed with the weights of attention maps.

The model `models.attention_paths` and the data of `data.hidden_markov` both need them. The
functions accept NumPy arrays (float64 without x64) and JAX arrays, since they use only operators.
"""

from collections.abc import Sequence
from typing import Any

from jaxformer.core.errors import UserError, check_choice

READOUTS = ("first", "last", "mean")


def readout_queries(tokens_BxTxn, readout: str):
    """Returns the tokens whose output is read, (B, 1, n), or all tokens for "mean", (B, T, n)."""
    check_choice("readout", readout, READOUTS)
    chosen = {"first": slice(0, 1), "last": slice(-1, None), "mean": slice(None)}
    return tokens_BxTxn[:, chosen[readout]]


def attentioned_input(tokens_BxTxn, maps: Sequence[Any]):
    """Returns the input as each attention path combines it, xi^pi in the paper.

    A path has one head of each layer. Its feature is the sum of the tokens with the weights of the
    product of the heads' maps.

    Args:
        tokens_BxTxn: sequences of T tokens of size n.
        maps: the attention maps Omega^(l), one for each layer l with H_l heads, (B, H_l, S, T) with
            keys S and queries T. The last map has only the queries that are read, and the result
            is the mean over them.

    Returns:
        The features of the D paths, (B, D, n). D is the product of all H_l.
    """
    if not maps:
        raise UserError("attentioned_input needs the attention maps of at least one layer.")
    path_BxDxS = maps[-1].mean(-1)
    for map_BxHxSxT in maps[-2::-1]:
        path_BxHxSxD = map_BxHxSxT @ path_BxDxS.swapaxes(1, 2)[:, None]
        path_BxHxDxS = path_BxHxSxD.swapaxes(2, 3)
        path_BxDxS = path_BxHxDxS.reshape(len(tokens_BxTxn), -1, path_BxHxDxS.shape[-1])
    return path_BxDxS @ tokens_BxTxn
