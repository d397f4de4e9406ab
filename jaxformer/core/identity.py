"""Identities of tasks and models: a few values that say what they do, to store and compare.

Code is no identity: a class keeps its name and its fields when a function that it calls is edited.
So a run stores what its task drew and what its model computed, and is reused only if both are the
same today: the first held-out and training examples, the scores of trivial predictors, the logits
of a model, and its initial parameters, each by itself, so that an edit of a small one is seen.
Whole numbers are compared by a hash. Floats may differ in their last bits between two
machines, so an array of them is represented by one number, which is compared with a tolerance.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-4
CHUNK = 2**20  # values of which noise is in memory at a time
# What the folders of older versions lack. The hash that names them has nothing of it.
LATER_KINDS = ("initial", "training", "weighted")


def float_identity(values: npt.ArrayLike) -> float:
    """The distance of an array from noise of its size, which depends on each value and its place.

    Unlike a projection it has no cancellation, so its relative error is that of the values.
    """
    flat = np.asarray(values).ravel()
    chunks = [flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK)]
    total = sum(np.sum(np.asarray(chunk, np.float64) ** 2) for chunk in chunks)
    scale = np.sqrt(total / flat.size) if flat.size else 0.0
    generator = np.random.default_rng(0)
    distances = []
    for chunk in chunks:
        noise = generator.standard_normal(chunk.size)
        distances.append(np.linalg.norm(np.asarray(chunk, np.float64) - scale * noise))
    return float(np.linalg.norm(distances))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The reason why two identities differ, or "".

    An identity is {"examples": hash, "training": hash, "numbers": {name: float}}. The first word
    of a name is its kind. A kind that `before` lacks altogether is not compared (`not_compared`).
    """
    if before.get("examples") != now["examples"]:
        return "the first held-out examples are others"
    if "training" in before and before["training"] != now.get("training", before["training"]):
        return "the first training examples are others"
    known, numbers = _kinds(before), before.get("numbers", {})
    for name, value in now["numbers"].items():
        if _kind(name) not in known:
            continue
        was = numbers.get(name)
        if was is None or not math.isclose(was, value, rel_tol=TOLERANCE, abs_tol=1e-9):
            return f"{name}: {was if was is None else format(was, '.6g')} then, {value:.6g} now"
    return ""


def not_compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The kinds of numbers that `now` has and an identity of an older version lacks."""
    return _kinds(now) - _kinds(before)


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The identity `before` with what it lacks."""
    return {**now, **before, "numbers": {**now["numbers"], **before.get("numbers", {})}}


def rounded(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity whose floats have four digits, for a hash, which has no tolerance."""
    numbers = {name: f"{value:.4g}" for name, value in identity["numbers"].items()}
    return {**identity, "numbers": numbers}


def of_older_version(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity without what older versions did not note."""
    numbers = {
        name: value for name, value in identity["numbers"].items() if _kind(name) not in LATER_KINDS
    }
    kept = {name: value for name, value in identity.items() if name not in LATER_KINDS}
    return {**kept, "numbers": numbers}


def _kinds(identity: Mapping[str, Any]) -> set[str]:
    """The kinds of numbers and hashes that an identity has."""
    return {*map(_kind, identity.get("numbers", {})), *(identity.keys() & {"training"})}


def _kind(name: str) -> str:
    return name.split()[0]
