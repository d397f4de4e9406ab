r"""Activations of many prompts on disk, in files of one batch each.

store("runs/states", model, params, prompts, names=[r"block_\d+/states"], positions=[-1])
states = load_stored("runs/states")["block_3/states"]        (prompts, positions, N)
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_range, one_line
from jaxformer.interp.capture import edits
from jaxformer.interp.capture.running import capture, check_tokens
from jaxformer.io import npz_store
from jaxformer.io.atomic_files import with_checksum, without_checksum, write_json
from jaxformer.models.activation_points import in_order
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens, check_model_first

REQUEST = "request.json"


def store(
    folder: str | Path,
    model: Model,
    params: Any,
    tokens_PxT: Any,
    names: Sequence[str],
    *,
    positions: Sequence[int] | None = None,
    batch_size: int = 8,
    dtype: Any = None,
) -> Path:
    """Writes activations of many prompts; the same call resumes after the last complete file.

    Only the activations of one batch are in memory.

    Args:
        folder: a new folder, or one that the same call began.
        model: a model with activation addresses.
        params: its parameters.
        tokens_PxT: the prompts, (P, T), or a list of texts.
        names: patterns of addresses, or names of TransformerLens' hooks.
        positions: the query positions to keep; negative ones count from the end. By default all.
        batch_size: the prompts of a file.
        dtype: the dtype on disk, such as "float16"; by default that of the activations, and
            float32 for bfloat16.

    Returns:
        The folder.
    """
    check_range("batch_size", batch_size, 1)
    check_model_first(model, params)
    tokens_PxT, folder = np.asarray(as_tokens(model, tokens_PxT)), Path(folder)
    if tokens_PxT.ndim != 2 or not tokens_PxT.size:
        raise UserError(f"prompts must be tokens (prompts, length), got {tokens_PxT.shape}.")
    check_tokens(model, tokens_PxT)
    kept = None
    if positions is not None:
        kept = [_from_start(position, tokens_PxT.shape[1]) for position in positions]
    dtype = _dtype(dtype)
    request = {
        "names": list(names),
        "positions": kept,
        "batch_size": batch_size,
        "dtype": None if dtype is None else dtype.name,
        "prompts": tokens_PxT.shape[0],
        "checksum": _checksum({"tokens": tokens_PxT} | paths.flatten(params)),
    }
    _check_request(folder, request)

    @jax.jit
    def activations(params, tokens):
        values = capture(model, params, tokens, names=names)
        return {
            address: _at_positions(address, value, kept, dtype) for address, value in values.items()
        }

    for number, start in enumerate(range(0, len(tokens_PxT), batch_size)):
        if (folder / _batch_name(number)).exists():
            continue
        batch = tokens_PxT[start : start + batch_size]
        # The last batch is filled up, because another size would need another compilation.
        filled = np.concatenate([batch, np.repeat(batch[-1:], batch_size - len(batch), 0)])
        values = activations(params, jnp.asarray(filled))
        arrays = {address: np.asarray(value)[: len(batch)] for address, value in values.items()}
        npz_store.write(folder / _batch_name(number), arrays | {"place": np.array(number)})
    return folder


def _dtype(dtype: Any) -> np.dtype | None:
    """Returns a dtype of NumPy, None for None; raises UserError for another value."""
    try:
        return None if dtype is None else np.dtype(dtype)
    except TypeError:
        raise UserError(f"dtype must be one of NumPy, such as 'float16', got {dtype!r}.") from None


def load_stored(folder: str | Path) -> dict[str, np.ndarray]:
    """Returns {address: activations (P, ..)} of a complete folder, in the order of computation."""
    batches = list(iterate_stored(folder))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def iterate_stored(folder: str | Path) -> Iterator[dict[str, np.ndarray]]:
    """Yields {address: activations (batch, ..)} of each batch of a complete folder."""
    folder = Path(folder)
    request = _request(folder)
    if request is None:
        raise UserError(f"{folder} has no activations: it has no {REQUEST}.")
    n_batches = -(-request["prompts"] // request["batch_size"])
    for number in range(n_batches):
        file = folder / _batch_name(number)
        if not file.exists():
            raise UserError(
                f"{folder} has {number} of {n_batches} batches; call store again: it resumes."
            )
        yield in_order(npz_store.read(file, number))


def _at_positions(address: str, value: jax.Array, positions: Any, dtype: Any) -> jax.Array:
    """Returns an activation at the query positions, in the dtype of the files."""
    axis = edits.axes(address, value.ndim)["position"]
    if positions is not None:
        if axis is None:
            raise UserError(f"{address} of shape {value.shape} has no axis of positions.")
        value = jnp.take(value, jnp.asarray(positions), axis)
    if dtype is None and value.dtype == jnp.bfloat16:  # NumPy's files have no such dtype
        dtype = jnp.float32
    return value if dtype is None else value.astype(dtype)


def _from_start(position: int, length: int) -> int:
    """Returns a position counted from the first token."""
    if not -length <= position < length:
        raise UserError(f"positions are from {-length} to {length - 1}, got {position}.")
    return position % length


def _batch_name(number: int) -> str:
    return f"batch_{number:06}.npz"


def _request(folder: Path) -> dict[str, Any] | None:
    """Reads the request of a folder and verifies what `iterate_stored` needs of it."""
    file = folder / REQUEST
    if not file.is_file():
        return None
    try:
        request = without_checksum(json.loads(file.read_bytes()))
        if request["prompts"] < 1 or request["batch_size"] < 1:
            raise ValueError("it has no prompts")
        return request
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = one_line(error, 100)
        raise UserError(f"{file} is damaged ({reason}); store into a new folder.") from None


def _check_request(folder: Path, request: dict[str, Any]) -> None:
    """Writes the request into a new folder, or raises if the folder has another request."""
    stored = _request(folder)
    if stored is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / REQUEST, with_checksum(request))
    elif stored != request:
        changed = ", ".join(name for name in request if stored.get(name) != request[name])
        raise UserError(f"{folder} has activations of another call ({changed}); give a new folder.")


def _checksum(arrays: Mapping[str, Any]) -> str:
    """Returns a checksum of prompts and parameters, so that no file of another model is reused."""
    checksum = 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        checksum = zlib.crc32(content, zlib.crc32(name.encode(), checksum))
    return f"{checksum:08x}"
