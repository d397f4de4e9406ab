"""Loads published models: a folder of safetensors, or a GGUF file.

Tensors are memory-mapped, converted and placed on devices one by one. Loading therefore needs
memory for the parameters and one more tensor (on a mesh: one shard of it). Pickles are refused;
nothing is executed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import tensor_layouts, tensor_names
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.families import FAMILIES
from jaxformer.models.pretrained.gguf_file import is_gguf
from jaxformer.models.pretrained.gguf_model import GGUFModel
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.safetensors_folder import DTYPES, SafetensorsFolder, read_json
from jaxformer.models.pretrained.spec import PretrainedSpec
from jaxformer.models.pretrained.tensor_layouts import TensorEntry

# A sharding for all parameters, a function (path, shape) -> sharding, a device, or the default.
Placement = Callable[[str, Any], Any] | Any | None


# A published model on disk: its config, the names of its tensors, and one tensor at a time.
Checkpoint = SafetensorsFolder | GGUFModel


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a folder of safetensors or a GGUF file."""
    return GGUFModel(path) if is_gguf(path) else SafetensorsFolder(path)


def read_config(path: Path) -> dict[str, Any]:
    """Returns the content of config.json of a folder or GGUF file."""
    return GGUFModel(path).config if is_gguf(path) else read_json(path / "config.json")


def is_pretrained(path: Path) -> bool:
    """Returns whether a path is a published model, not a run."""
    if is_gguf(path) or any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*.bin")):
        return True
    try:
        return "model_type" in read_json(path / "config.json")
    except UserError:
        return False


def load_folder(
    folder: str | Path, dtype: Any = None, place: Placement = None
) -> tuple[Pretrained, dict[str, Any], dict[str, Any]]:
    """Loads a published model.

    Args:
      folder: a folder with config.json and safetensors, or a GGUF file.
      dtype: the dtype of parameters and computation, by default float32; "stored" is the dtype of
        the safetensors. Tensors of a GGUF file are dequantised to float32.
      place: a jax.sharding.Sharding for all parameters, or a function (path, shape) -> Sharding.

    Returns:
      (model, params, the content of config.json).
    """
    is_stored = isinstance(dtype, str) and dtype == "stored"
    requested = None if is_stored else _checked_dtype(dtype)
    _check_is_no_adapter(Path(folder))
    checkpoint = open_checkpoint(Path(folder))
    spec = describe(checkpoint.config, checkpoint.config_name)
    expected = shapes(Pretrained(spec))
    entries = tensor_layouts.tensor_entries(spec, list(expected))
    names = _stored_names(checkpoint, entries, spec)
    model_dtype = requested or _checked_dtype(checkpoint.tensor(names[entries[0].name]).dtype)
    model = Pretrained(replace(spec, dtype=model_dtype, param_dtype=model_dtype))
    params = _read_parameters(checkpoint, names, entries, model.spec, expected, place)
    return model, params, checkpoint.config


def _check_is_no_adapter(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        base = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
        raise UserError(
            f"{folder} has an adapter of peft, not a model: load its base model "
            f"({base or 'which it does not name'}), then add the adapter by "
            "jaxformer.models.pretrained.load_adapter(folder, model, params)."
        )


def _checked_dtype(dtype: Any) -> Any:
    """Returns the dtype of the computation; raises UserError for a dtype not in DTYPES."""
    try:  # numpy would read other strings as structured dtypes
        is_named = not isinstance(dtype, str) or dtype in DTYPES
        kind = jnp.dtype(float if dtype is None else dtype) if is_named else None
    except TypeError:
        kind = None
    if kind is None or kind.name not in DTYPES:
        raise UserError(f"dtype must be one of {', '.join(DTYPES)} and stored, got {str(dtype)!r}.")
    canonical = jax.dtypes.canonicalize_dtype(kind)
    if isinstance(dtype, str) and canonical != kind:
        raise UserError(f"{dtype} needs JAX_ENABLE_X64=1.")
    return canonical


def shapes(model: Pretrained) -> dict[str, tuple[int, ...]]:
    """Returns {path: shape} of a model's parameters without computing them."""
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    tree = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    return {path: leaf.shape for path, leaf in paths.flatten(tree).items()}


def _read_parameters(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    entries: list[TensorEntry],
    spec: PretrainedSpec,
    expected: Mapping[str, Any],
    place: Placement,
) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for entry in entries:
        name = names[entry.name]
        tensor = checkpoint.tensor(name)
        location = checkpoint.location(name)
        for path, part in _checked_parts(tensor, entry, spec, expected, location):
            flat[path] = _put_on_devices(part, spec.param_dtype, path, place)
        del tensor
    return paths.unflatten(flat)


def _checked_parts(
    tensor: Any,
    entry: TensorEntry,
    spec: PretrainedSpec,
    expected: Mapping[str, Any],
    location: str,
) -> Iterator[tuple[str, Any]]:
    """Returns (path, parameter) for each parameter in a tensor; raises if a shape is wrong."""
    try:
        parts = tensor_layouts.to_parameters(tensor, entry, spec)
        fits = [tuple(x.shape) for x in parts] == [tuple(expected[p]) for p in entry.parameters]
    except ValueError:
        parts, fits = [], False
    if not fits:
        shapes_of_parts = [expected[path] for path in entry.parameters]
        shape = tensor_layouts.tensor_shape(entry, shapes_of_parts, spec)
        raise UserError(
            f"{location} has the shape {tuple(tensor.shape)}; config.json requires {shape}."
        )
    return zip(entry.parameters, parts)


def _put_on_devices(part: Any, dtype: Any, path: str, place: Placement) -> jax.Array:
    """Returns a parameter on its devices; a slice is read from disk for each shard."""
    place = place(path, part.shape) if callable(place) else place
    if not isinstance(place, jax.sharding.Sharding):  # a device, or None for the default device
        return jax.device_put(_copied_slice(part, ..., dtype), place)
    indices = place.addressable_devices_indices_map(part.shape)
    shards = [
        jax.device_put(_copied_slice(part, index, dtype), device)
        for device, index in indices.items()
    ]
    return jax.make_array_from_single_device_arrays(part.shape, place, shards)


def _copied_slice(part: Any, index: Any, dtype: Any) -> np.ndarray:
    """Copies a slice, so that no parameter is a view of the file."""
    return np.array(part[index], dtype, order="C", copy=True)


def _stored_names(
    checkpoint: Checkpoint, entries: list[TensorEntry], spec: PretrainedSpec
) -> dict[str, str]:
    """Returns the stored name of each tensor; raises with a list of missing or extra tensors."""
    published_names = [entry.name for entry in entries]
    names = checkpoint.stored_names(published_names, FAMILIES[spec.family].prefix)
    present = checkpoint.names
    missing = [name for name in names.values() if name not in present]
    if missing:
        raise UserError(f"{checkpoint.path} lacks {listed(missing)}.")
    copies = tensor_names.EMBEDDING_COPIES if spec.tied else ()
    ignored = tensor_names.IGNORED + copies
    extra = sorted(present - set(names.values()))
    extra = [x for x in extra if not any(re.fullmatch(p, x) for p in ignored)]
    if extra:
        raise UserError(
            f"{checkpoint.path} has tensors that a {spec.family} model of this config.json does "
            f"not have: {listed(extra)}."
        )
    return names


def listed(names: list[str]) -> str:
    """The first five names, and the number of further ones."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
