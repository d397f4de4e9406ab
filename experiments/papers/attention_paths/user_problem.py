"""A user's problem from an .npz file: paths after fixed attention, or tokens and attention maps.

np.savez("my.npz", attentioned=.., heads=.., labels=..)

    attentioned       (P, H_1 .. H_L, n)      sums of tokens weighted along each path
    heads             (H_1, .., H_L)          heads of each layer

Instead of these two, tokens and attention maps may be given:

    tokens            (P, T, n)               token vectors
    attention_1 ..    (P, H_l, T, T)          attention weights of layer l, one row per query
    readout           "last"                  the token that is read: first, last or mean

Both forms also have:
    labels            (P,) or (P, outputs)    +1 and -1, or real numbers
    NAME_test         test examples, for all but heads and readout               optional
    names             one for each path                                          optional
    variances         prior variances: embedding, values 1 .. L, readout         optional

The network is linear in each layer, so only the product s of the variances matters. The attentioned
inputs are multiplied by sqrt(s). This equals a temperature T/s with labels Y/sqrt(s), and the order
parameter U is then in units of its prior.
"""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.io import npz_store
from jaxformer.training.cost.memory import free_memory
from theory.attention_paths.network_paths import from_maps

ARRAYS = ("attentioned", "heads", "tokens", "readout", "labels", "names", "variances")


def read(file: str) -> dict[str, Any]:
    """Reads a problem: attentioned, labels, heads, names, and the test set.

    Without a test set the training set is returned in its place.
    """
    arrays = _arrays(Path(file).expanduser())
    for name in arrays:
        base = name.removesuffix("_test")
        if base not in ARRAYS and not base.startswith("attention_"):
            raise UserError(f"{file} has an array {name!r}; expected {', '.join(ARRAYS)}.")
    if "labels" not in arrays:
        raise UserError(
            f"{file} has no array 'labels'; it has {', '.join(sorted(arrays)) or 'none'}."
        )
    labels = np.asarray(arrays["labels"], np.float64)
    _check_memory(arrays, file)
    attentioned, heads = _inputs(arrays, "", file)
    _check_differ(attentioned, file)
    scale = _scale(arrays, len(heads), file)
    problem = {"attentioned": scale * attentioned, "labels": labels, "heads": heads}
    if "labels_test" in arrays:
        tests, test_heads = _inputs(arrays, "_test", file, heads)
        if test_heads != heads or len(tests) != len(arrays["labels_test"]):
            raise UserError(
                f"{file}: {len(arrays['labels_test'])} test labels of heads {heads} need as many "
                f"test inputs, got {len(tests)} of heads {test_heads}."
            )
        problem |= {"attentioned_test": scale * tests}
        problem |= {"labels_test": np.asarray(arrays["labels_test"], np.float64)}
    else:
        problem |= {"attentioned_test": problem["attentioned"], "labels_test": labels}
    paths = math.prod(heads)
    names = [str(name) for name in arrays.get("names", ())]
    if names and len(names) != paths:
        raise UserError(
            f"{file} has names for {len(names)} paths; its heads {heads} have {paths} paths."
        )
    return problem | {"names": tuple(names)}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"data.file={path}: there is no such file of arrays (.npz).")
    try:
        return npz_store.load(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise UserError(f"data.file={path} is no file of arrays (.npz): {error}.") from None


def _inputs(
    arrays: dict[str, np.ndarray], ending: str, file: str, heads: tuple[int, ...] = ()
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Returns (attentioned, heads) of the training set, or of the test set for "_test"."""
    layers = sum(f"attention_{l}{ending}" in arrays for l in range(1, len(arrays) + 1))
    if f"attentioned{ending}" in arrays:
        if not heads and "heads" not in arrays:
            raise UserError(f"{file} has 'attentioned' and no 'heads': the heads of each layer.")
        heads = heads or tuple(int(h) for h in np.atleast_1d(arrays["heads"]))
        return np.asarray(arrays[f"attentioned{ending}"], np.float64), heads
    if not layers or f"tokens{ending}" not in arrays:
        raise UserError(
            f"{file} needs 'attentioned{ending}' with 'heads', or 'tokens{ending}' with "
            f"'attention_1{ending}' .. for each layer; it has {', '.join(sorted(arrays))}."
        )
    readout = str(arrays.get("readout", "last"))
    tokens = np.asarray(arrays[f"tokens{ending}"], np.float64)
    maps = [np.asarray(arrays[f"attention_{l}{ending}"], np.float64) for l in range(1, layers + 1)]
    return np.asarray(from_maps(tokens, maps, readout)), tuple(m.shape[1] for m in maps)


def _check_differ(attentioned: np.ndarray, file: str) -> None:
    """Raises if all examples are equal, since their kernel then has rank 1 or 0."""
    if attentioned.ndim > 1 and len(attentioned) > 1 and (attentioned == attentioned[:1]).all():
        rank = int(attentioned.any())
        kind = "alike" if rank else "zero"
        raise UserError(
            f"{file}: the inputs of all {len(attentioned)} examples are {kind}: their kernel is "
            f"singular, of rank {rank}, and cannot tell labels apart; expected inputs that differ."
        )


def _scale(arrays: dict[str, np.ndarray], layers: int, file: str) -> float:
    """Returns the square root of the product of the prior variances."""
    variances = np.atleast_1d(arrays.get("variances", np.ones(layers + 2)))
    if variances.shape != (layers + 2,):
        raise UserError(
            f"{file}: 'variances' must be {layers + 2} numbers (embedding, values of {layers} "
            f"layers, readout), got shape {variances.shape}."
        )
    check_range(f"{file}: the smallest of 'variances'", float(variances.min()), 1e-300)
    return float(np.sqrt(np.prod(variances)))


def _check_memory(arrays: dict[str, np.ndarray], file: str) -> None:
    """Raises if the paths do not fit into memory: U has a row and a column for each path."""
    map_shapes = [
        arrays[f"attention_{l}"].shape for l in range(1, len(arrays)) if f"attention_{l}" in arrays
    ]
    heads = [shape[1] for shape in map_shapes if len(shape) == 4]
    heads = heads or [int(h) for h in np.atleast_1d(arrays.get("heads", 1))]
    labels, paths = arrays["labels"], math.prod(heads)
    n = arrays.get("attentioned", arrays.get("tokens", np.zeros(1))).shape[-1]
    outputs = labels.shape[1] if labels.ndim == 2 else 1
    # Bytes of three copies of the inputs, and of 45 arrays like U: L-BFGS stores 20 pairs of them.
    need = 8 * (3 * len(labels) * paths * n * outputs**2 + 45 * (paths * outputs) ** 2)
    free = free_memory()
    if free is not None and need > free:
        raise UserError(
            f"{file}: {paths:,} paths of heads {tuple(heads)} and {len(labels):,} examples need "
            f"about {need / 2**30:,.1f} GiB, {free / 2**30:,.1f} are free; take fewer heads."
        )
