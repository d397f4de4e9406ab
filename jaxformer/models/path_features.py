"""The features of attention paths (arXiv 2405.15926): sums of tokens weighted by attention maps.

The model `models.attention_paths` and the task data `data.hidden_markov` share these functions.
They use only operators, so they accept NumPy arrays (float64 without x64) and JAX arrays.

Shape letters: n token dimension, P paths, the others as in `jaxformer.models`.
"""

from collections.abc import Sequence
from typing import Any

from jaxformer.core.errors import UserError, check_choice

READOUTS = ("first", "last", "mean")


def readout_queries(tokens_BxTxn, readout: str):
    """Returns the tokens that the readout uses: (B, 1, n), or all (B, T, n) for "mean"."""
    check_choice("readout", readout, READOUTS)
    chosen = {"first": slice(0, 1), "last": slice(-1, None), "mean": slice(None)}
    return tokens_BxTxn[:, chosen[readout]]


def attentioned_input(tokens_BxTxn, maps: Sequence[Any]):
    """Returns the sum of tokens weighted by the attention along each path: xi^pi, (B, P, n).

    Args:
      tokens_BxTxn: token vectors.
      maps: attention weights Omega^(l) of each layer, (B, H_l, key s, query t). The last layer's
        map has only the queries of the readout; their mean is used.
    """
    if not maps:
        raise UserError("attentioned_input needs the attention maps of at least one layer.")
    path_BxPxS = maps[-1].mean(-1)  # the weight of token s in the sum of each path
    for map_BxHxSxT in maps[-2::-1]:
        path_BxHxSxP = map_BxHxSxT @ path_BxPxS.swapaxes(1, 2)[:, None]
        path_BxHxPxS = path_BxHxSxP.swapaxes(2, 3)
        path_BxPxS = path_BxHxPxS.reshape(len(tokens_BxTxn), -1, path_BxHxPxS.shape[-1])
    return path_BxPxS @ tokens_BxTxn
