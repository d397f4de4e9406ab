"""Checks of the arguments of the attention-path theory, before anything is compiled.

Attentioned inputs (P, D, n) are the inputs of P examples after the attention of each of D paths. A
path takes one head in each layer, and n is the dimension of a token. K is their kernel, the (P, P)
mean of products over paths and dimensions, and T the temperature.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.numerics import Array, Numbers, check_count, check_range, is_concrete


def check_problem(
    attentioned: Array, labels: Array, temperature: Numbers, heads: Sequence[int]
) -> tuple[jax.Array, jax.Array]:
    """Returns the attentioned inputs and the labels as arrays after checking all arguments.

    Args:
        attentioned: the path inputs xi, (P, D, n), with D the product of `heads`.
        labels: (P,) or (P, outputs).
        temperature: T > 0.
        heads: the number of heads of each layer.
    """
    for head_count in heads:
        check_count("every entry of heads", head_count)
    attentioned = check_attentioned("attentioned", attentioned, heads)
    labels = jnp.asarray(labels, attentioned.dtype)
    examples = attentioned.shape[0]
    if labels.shape[:1] != (examples,) or labels.ndim > 2 or not labels.size:
        raise UserError(
            f"labels must have shape ({examples},), one for each attentioned input, or "
            f"({examples}, outputs), got {labels.shape}."
        )
    if is_concrete(labels):
        _check_labels(np.asarray(labels))
    _check_temperature(temperature, attentioned)
    return attentioned, labels


def check_attentioned(
    name: str, attentioned: Array, heads: Sequence[int], n: int | None = None
) -> jax.Array:
    """Returns `attentioned` as a finite (P, D, n) array.

    Args:
        name: the name of the argument in messages.
        attentioned: the path inputs.
        heads: the number of heads of each layer; their product is D.
        n: the width of the inputs, which is checked if it is given.
    """
    attentioned = jnp.asarray(attentioned)
    if not jnp.issubdtype(attentioned.dtype, jnp.floating):
        attentioned = attentioned.astype(float)
    paths = math.prod(heads)
    shape = attentioned.shape
    expected = f"(examples, {paths} = product of heads {tuple(heads)}, {n or 'n'})"
    if len(shape) != 3 or shape[1] != paths or n not in (None, shape[2]):
        raise UserError(f"{name} must have shape {expected}, got {shape}.")
    if not attentioned.size:
        raise UserError(f"{name} must have at least one example, got shape {shape}.")
    if is_concrete(attentioned):
        bad = np.argwhere(~np.isfinite(np.asarray(attentioned)).all((1, 2)))
        if bad.size:
            raise UserError(
                f"{name} must be finite; {len(bad)} of {len(attentioned)} examples have NaN or "
                f"infinity, the first is number {bad[0, 0]}."
            )
    return attentioned


def check_widths(width: Any, heads: Sequence[int]) -> tuple:
    """Returns (N_1 .. N_{L+1}) from one width for all hidden layers, or one for each."""
    layers = len(heads) + 1
    widths = tuple(width) if np.ndim(width) else (width,) * layers
    if len(widths) != layers:
        raise UserError(
            f"width must be a number or {layers} numbers N_1 .. N_{layers} (one for each hidden "
            f"layer: {len(heads)} attention layers have {layers}), got {len(widths)}."
        )
    for value in widths:
        check_range("width", value, low=1)
    return widths


def check_whole_widths(width: Any, heads: Sequence[int]) -> tuple[int, ...]:
    """Returns (N_1 .. N_{L+1}) as whole numbers, which samplers of finite networks need."""
    widths = check_widths(width, heads)
    for value in widths:
        check_count("width", value)
    return tuple(int(value) for value in widths)


def _check_labels(labels: np.ndarray) -> None:
    """Checks that labels are finite, have more than one value, and are not 0 and 1."""
    bad = np.argwhere(~np.isfinite(labels))
    if bad.size:
        raise UserError(
            f"labels must be finite; {len(bad)} of {labels.size} are not. The first one belongs to "
            f"example {bad[0, 0]}."
        )
    values = set(np.unique(labels).tolist())
    if values == {0.0, 1.0}:
        raise UserError("classes must be +1 or -1, got 0; for labels 0 and 1 pass 2 y - 1.")
    if len(values) == 1 and len(labels) > 1:
        raise UserError(f"all labels are {labels.flat[0]:g}: there is one class, nothing to learn.")


def _check_temperature(temperature: Numbers, attentioned_PxDxn) -> None:
    """Checks that the temperature is positive and that K + T can be inverted accurately.

    Duplicate examples make K singular. Then the temperature alone bounds the condition number.
    """
    if not is_concrete(temperature):
        return
    values = np.asarray(temperature, float)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise UserError(
            f"temperature must be finite and above 0, got {temperature}; for the noiseless "
            "limit take a small one, such as 1e-4."
        )
    if not is_concrete(attentioned_PxDxn):
        return
    flat_PxF = np.asarray(attentioned_PxDxn).reshape(len(attentioned_PxDxn), -1)
    kernel_PxP = flat_PxF @ flat_PxF.T / flat_PxF.shape[1]
    eigenvalues = np.linalg.eigvalsh(kernel_PxP)
    lowest = float(np.min(values))
    condition = (eigenvalues[-1] + lowest) / (max(eigenvalues[0], 0.0) + lowest)
    # The relative error of (K + T)^-1 Y is about condition * eps: at most 1 %.
    limit = 0.01 / np.finfo(flat_PxF.dtype).eps
    if condition <= limit:
        return
    norms_P = np.sqrt(np.maximum(np.diagonal(kernel_PxP), 1e-300))
    cosines_PxP = kernel_PxP / norms_P[:, None] / norms_P[None, :]
    cosines_PxP -= 2 * np.eye(len(norms_P))  # so that the maximum is not on the diagonal
    first, second = np.unravel_index(np.argmax(cosines_PxP), cosines_PxP.shape)
    cause = "some examples are nearly dependent on others"
    if cosines_PxP.max() > 1 - 1e-9:
        cause = f"examples {first} and {second} are duplicates"
    raise UserError(
        f"K + T has condition number {condition:.1e} at temperature {lowest:g}, because {cause}; "
        f"{flat_PxF.dtype} needs at most {limit:.0e}. Remove such examples or raise the "
        "temperature."
    )
