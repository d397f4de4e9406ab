"""Reads parameters from a folder of safetensors.

Tensors are memory-mapped, converted and placed on devices one by one, so that memory holds the
parameters and one tensor, or on a mesh one shard of it. Pickles are refused; nothing is executed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained import keys, tensor_names
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.mapped import mapped_tensor
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.spec import PretrainedSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = ("float16", "bfloat16", "float32", "float64")
Place = Callable[[str, Any], Any] | Any | None
Files = Mapping[str, tuple[str, Path]]  # {full name on disk: (name in the file, file)}


def is_pretrained(folder: Path) -> bool:
    """Returns whether a folder has a published model, not a run."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return True
    try:
        return "model_type" in read_json(folder / "config.json")
    except UserError:
        return False


def load_folder(
    folder: str | Path, dtype: Any = None, place: Place = None
) -> tuple[Pretrained, dict[str, Any], dict[str, Any]]:
    """Loads a published model.

    Args:
      folder: a folder with config.json and safetensors.
      dtype: the dtype of parameters and computation, by default float32; "stored" is that of the
        files.
      place: a jax.sharding.Sharding for all parameters, or a function (path, shape) -> Sharding.

    Returns:
      (model, params, the content of config.json).
    """
    folder = Path(folder)
    given = None if isinstance(dtype, str) and dtype == "stored" else _dtype(dtype)
    config = read_json(folder / "config.json")
    spec = describe(config, str(folder / "config.json"))
    expected = shapes(Pretrained(spec))
    lines = keys.lines(spec, list(expected))
    files = _locate(folder, _files(folder), lines, spec)
    kind = given or _dtype(_stored_dtype(*files[lines[0].theirs]))
    model = Pretrained(replace(spec, dtype=kind, param_dtype=kind))
    return model, _read(files, lines, model.spec, expected, place), config


def _dtype(dtype: Any) -> Any:
    """Returns the dtype of the computation."""
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


def read_json(file: Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or raises UserError."""
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file.parent} is not a model: it has no {file.name}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON: {one_line(error, 100)}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{file} must contain an object, got {type(content).__name__}.")
    return content


def _files(folder: Path) -> dict[str, Path]:
    """Returns {tensor name: file}."""
    if (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(name, str) for name in weight_map.values()
        ):
            raise UserError(f"{folder / INDEX} has no weight_map of tensor names to files.")
        for name in sorted(set(weight_map.values())):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise UserError(f"{folder / INDEX} lists {name!r}, not a file of this folder.")
            if not (folder / name).is_file():
                raise UserError(f"{folder} lacks {name}, which {INDEX} lists.")
        contents = {name: set(_names(folder / name)) for name in set(weight_map.values())}
        for tensor, name in weight_map.items():
            if tensor not in contents[name]:
                raise UserError(f"{folder / name} lacks {tensor}, which {INDEX} lists.")
        every = {tensor: name for name, tensors in contents.items() for tensor in tensors}
        return {tensor: folder / name for tensor, name in (every | weight_map).items()}
    single = folder / SINGLE
    if not single.is_file():
        pickles = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))
        if pickles:
            raise UserError(
                f"{pickles[0]} is a pickle, which can run any code when it is read, and is "
                f"refused; use {SINGLE}, which transformers writes with "
                "model.save_pretrained(FOLDER)."
            )
        raise UserError(f"{folder} has neither {SINGLE} nor {INDEX}.")
    return {name: single for name in _names(single)}


def _names(file: Path) -> list[str]:
    with _opened(file) as tensors:
        return list(tensors.keys())


def _opened(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="numpy")
    except (SafetensorError, OSError) as error:
        reason = one_line(error, 200)
        raise UserError(f"{file} is not a complete safetensors file: {reason}.") from None


def _stored_dtype(name: str, file: Path) -> Any:
    with _opened(file) as tensors:
        return _tensor(tensors, name, file).dtype


def _read(
    files: Files,
    lines: list[keys.Line],
    spec: PretrainedSpec,
    expected: Mapping[str, Any],
    place: Place,
) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for line in lines:
        name, file = files[line.theirs]
        # A new mapping for each tensor frees the memory of the previous one.
        with _opened(file) as tensors:
            tensor = _tensor(tensors, name, file)
            for path, part in _parts(tensor, line, spec, expected, file, name):
                flat[path] = _put(part, spec.param_dtype, path, place)
            del tensor
    return paths.unflatten(flat)


def _tensor(tensors: Any, name: str, file: Path) -> Any:
    """Returns a tensor with a dtype of weights."""
    from safetensors import SafetensorError

    try:
        tensor = mapped_tensor(file, name)
        tensor = tensors.get_tensor(name) if tensor is None else tensor
    except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
        raise UserError(f"{file}: {name} cannot be read: {one_line(error, 120)}.") from None
    if tensor.dtype.name not in DTYPES:
        raise UserError(
            f"{file}: {name} is {tensor.dtype.name}; expected one of {', '.join(DTYPES)}."
        )
    return tensor


def _parts(
    tensor: Any, line: keys.Line, spec: PretrainedSpec, expected: Mapping[str, Any], file, name
) -> Iterator[tuple[str, Any]]:
    try:
        parts = keys.ours(tensor, line, spec)
        fits = [tuple(x.shape) for x in parts] == [tuple(expected[p]) for p in line.ours]
    except ValueError:
        parts, fits = [], False
    if not fits:
        shape = keys.their_shape(line, [expected[path] for path in line.ours])
        raise UserError(
            f"{file}: {name} has the shape {tuple(tensor.shape)}; config.json requires {shape}."
        )
    return zip(line.ours, parts)


def _put(part: Any, dtype: Any, path: str, place: Place) -> jax.Array:
    """Returns a parameter on its devices; a slice is read from disk for each shard."""
    place = place(path, part.shape) if callable(place) else place
    if not isinstance(place, jax.sharding.Sharding):  # a device, or None for the default device
        return jax.device_put(_shard(part, ..., dtype), place)
    indices = place.addressable_devices_indices_map(part.shape)
    shards = [jax.device_put(_shard(part, index, dtype), on) for on, index in indices.items()]
    return jax.make_array_from_single_device_arrays(part.shape, place, shards)


def _shard(part: Any, index: Any, dtype: Any) -> np.ndarray:
    """Copies a slice, so that no parameter is a view of the file."""
    return np.array(part[index], dtype, order="C", copy=True)


def _locate(
    folder: Path, files: Mapping[str, Path], lines: list[keys.Line], spec: PretrainedSpec
) -> dict[str, tuple[str, Path]]:
    """Returns the file of each tensor; raises with a list of missing or extra tensors."""
    prefix = tensor_names.PREFIXES[spec.family]
    names = {}
    for line in lines:
        short = line.theirs.removeprefix(prefix)
        choices = [line.theirs, short, *map(_old_norm, (line.theirs, short))]
        names[line.theirs] = next((name for name in choices if name in files), short)
    missing = [theirs for theirs, name in names.items() if name not in files]
    if missing:
        raise UserError(f"{folder} lacks {listed(missing)}.")
    ignored = tensor_names.IGNORED + (tensor_names.TIED if spec.tied else ())
    extra = set(files) - set(names.values())
    extra = [x for x in sorted(extra) if not any(re.fullmatch(p, x) for p in ignored)]
    if extra:
        raise UserError(
            f"{folder} has tensors that a {spec.family} model of this config.json does not have: "
            f"{listed(extra)}."
        )
    return {theirs: (name, files[name]) for theirs, name in names.items()}


def _old_norm(name: str) -> str:
    """Returns a norm's parameter as older BERT checkpoints name it."""
    return re.sub(
        r"LayerNorm\.bias$",
        "LayerNorm.beta",
        re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", name),
    )


def listed(names: list[str], most: int = 5) -> str:
    """Returns the first names, and the number of further ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
