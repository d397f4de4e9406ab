"""A problem of one's own, from a file: what the theory needs, or the attention maps it is made of.

np.savez("my.npz", attentioned=.., heads=.., labels=..)

    attentioned       (P, H_1 .. H_L, n)      with heads = (H_1, .., H_L); or instead of both
    tokens            (P, T, n)               vectors, and for each layer from 1
    attention_1 ..    (P, H_l, T, T)          its weights, a row a query; readout = "last"
    labels            (P,) or (P, outputs)    +1 and -1, or real numbers
    .._test           the same of test examples (all but heads and readout)      optional
    names             one for each path                                          optional
    variances         of the prior, by layer: embedding, values 1 .. L, readout  optional

Only the product s of the variances enters, since f is linear in each layer: xi is scaled by its
root, and U is in units of its prior. It is the same as a temperature T/s and labels Y/sqrt(s).
"""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.training.cost import free_memory
from theory.attention_paths.network_paths import from_maps

KNOWN = ("attentioned", "heads", "tokens", "readout", "labels", "names", "variances")


def read(file: str) -> dict[str, Any]:
    """What a problem is made of: attentioned, labels, heads, names, and those of a test set."""
    held = _arrays(Path(file).expanduser())
    for name in held:
        base = name.removesuffix("_test")
        if base not in KNOWN and not base.startswith("attention_"):
            raise UserError(f"{file} has an array {name!r}; known are {', '.join(KNOWN)}.")
    if "labels" not in held:
        raise UserError(
            f"{file} has no array 'labels'; it has {', '.join(sorted(held)) or 'none'}."
        )
    labels = np.asarray(held["labels"], np.float64)
    _check_memory(held, file)
    attentioned, heads = _inputs(held, "", file)
    _check_differ(attentioned, file)
    scale = _scale(held, len(heads), file)
    found = {"attentioned": scale * attentioned, "labels": labels, "heads": heads}
    if "labels_test" in held:
        tests, other = _inputs(held, "_test", file, heads)
        if other != heads or len(tests) != len(held["labels_test"]):
            raise UserError(
                f"{file}: {len(held['labels_test'])} test labels of heads {heads} need as many "
                f"test inputs, got {len(tests)} of heads {other}."
            )
        found |= {"attentioned_test": scale * tests}
        found |= {"labels_test": np.asarray(held["labels_test"], np.float64)}
    else:
        found |= {"attentioned_test": found["attentioned"], "labels_test": labels}
    paths = math.prod(heads)
    names = [str(name) for name in held.get("names", ())]
    if names and len(names) != paths:
        raise UserError(f"{file} names {len(names)} paths, its heads {heads} have {paths}.")
    return found | {"names": tuple(names)}


def _arrays(place: Path) -> dict[str, np.ndarray]:
    if not place.is_file():
        raise UserError(f"data.file={place}: there is no such file of arrays (.npz).")
    try:
        with np.load(place, allow_pickle=False) as held:
            return dict(held)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise UserError(f"data.file={place} is no file of arrays (.npz): {error}.") from None


def _inputs(
    held: dict[str, np.ndarray], ending: str, file: str, heads: tuple[int, ...] = ()
) -> tuple[np.ndarray, tuple[int, ...]]:
    """(attentioned, heads) of the training or of the test set."""
    layers = sum(f"attention_{l}{ending}" in held for l in range(1, len(held) + 1))
    if f"attentioned{ending}" in held:
        if not heads and "heads" not in held:
            raise UserError(f"{file} has 'attentioned' and no 'heads': the heads of each layer.")
        given = heads or tuple(int(h) for h in np.atleast_1d(held["heads"]))
        return np.asarray(held[f"attentioned{ending}"], np.float64), given
    if not layers or f"tokens{ending}" not in held:
        raise UserError(
            f"{file} needs 'attentioned{ending}' with 'heads', or 'tokens{ending}' with "
            f"'attention_1{ending}' .. for each layer; it has {', '.join(sorted(held))}."
        )
    readout = str(held.get("readout", "last"))
    tokens = np.asarray(held[f"tokens{ending}"], np.float64)
    maps = [np.asarray(held[f"attention_{l}{ending}"], np.float64) for l in range(1, layers + 1)]
    return np.asarray(from_maps(tokens, maps, readout)), tuple(m.shape[1] for m in maps)


def _check_differ(attentioned: np.ndarray, file: str) -> None:
    """Raises if all examples are one: their kernel has rank 1, or 0, and tells no labels apart."""
    if attentioned.ndim > 1 and len(attentioned) > 1 and (attentioned == attentioned[:1]).all():
        rank = int(attentioned.any())
        what = "alike" if rank else "zero"
        raise UserError(
            f"{file}: the inputs of all {len(attentioned)} examples are {what}: their kernel is "
            f"singular, of rank {rank}, and cannot tell labels apart; expected inputs that differ."
        )


def _scale(held: dict[str, np.ndarray], layers: int, file: str) -> float:
    """The root of the product of the prior variances."""
    variances = np.atleast_1d(held.get("variances", np.ones(layers + 2)))
    if variances.shape != (layers + 2,):
        raise UserError(
            f"{file}: 'variances' must be {layers + 2} numbers (embedding, values of {layers} "
            f"layers, readout), got shape {variances.shape}."
        )
    check_range(f"{file}: the smallest of 'variances'", float(variances.min()), 1e-300)
    return float(np.sqrt(np.prod(variances)))


def _check_memory(held: dict[str, np.ndarray], file: str) -> None:
    """Raises if the paths of the heads do not fit: U has a row and a column for each."""
    layers = [held[f"attention_{l}"].shape for l in range(1, len(held)) if f"attention_{l}" in held]
    heads = [shape[1] for shape in layers if len(shape) == 4]
    heads = heads or [int(h) for h in np.atleast_1d(held.get("heads", 1))]
    labels, paths = held["labels"], math.prod(heads)
    n = held.get("attentioned", held.get("tokens", np.zeros(1))).shape[-1]
    outputs = labels.shape[1] if labels.ndim == 2 else 1
    # The inputs three times, and U with the memory of L-BFGS.
    need = 8 * (3 * len(labels) * paths * n * outputs**2 + 45 * (paths * outputs) ** 2)
    free = free_memory()
    if free is not None and need > free:
        raise UserError(
            f"{file}: {paths:,} paths of heads {tuple(heads)} and {len(labels):,} examples need "
            f"about {need / 2**30:,.1f} GiB, {free / 2**30:,.1f} are free; take fewer heads."
        )
