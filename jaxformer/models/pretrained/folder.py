"""A folder of safetensors -> parameters.

A tensor is mapped into memory, turned into ours, cast and put on its device before the next one is
touched: besides the parameters there is one tensor. Pickles are refused; nothing is executed.
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
from jaxformer.models.pretrained import keys
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.spec import PretrainedSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
KINDS = ("float16", "bfloat16", "float32", "float64")
Place = Callable[[str, Any], Any] | Any | None
Files = Mapping[str, tuple[str, Path]]  # {their full name: (the name it has there, file)}


def is_pretrained(folder: Path) -> bool:
    """Is this a published model, and not a run?"""
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return True
    try:
        return "model_type" in read_json(folder / "config.json")
    except UserError:
        return False


def load_folder(
    folder: str | Path, dtype: Any = None, place: Place = None
) -> tuple[Pretrained, dict[str, Any], dict[str, Any]]:
    """(model, params, config) of a folder with config.json and safetensors.

    `dtype` is that of parameters and of the computation: float32 unless it is said, "stored" for
    that of the files. `place` is a jax.sharding.Sharding for all, or a function (path, shape) ->
    Sharding.
    """
    folder = Path(folder)
    asked = None if isinstance(dtype, str) and dtype == "stored" else _kind(dtype)
    config = read_json(folder / "config.json")
    spec = describe(config, str(folder / "config.json"))
    expected = shapes(Pretrained(spec))
    wanted = keys.lines(spec, list(expected))
    files = _found(folder, _files(folder), wanted, spec)
    kind = asked or _kind(_stored(*files[wanted[0].theirs]))
    model = Pretrained(replace(spec, dtype=kind, param_dtype=kind))
    return model, _read(files, wanted, model.spec, expected, place), config


def _kind(dtype: Any) -> Any:
    """A dtype that one computes in."""
    try:  # of a text numpy would take structures too
        is_named = not isinstance(dtype, str) or dtype in KINDS
        kind = jnp.dtype(float if dtype is None else dtype) if is_named else None
    except TypeError:
        kind = None
    if kind is None or kind.name not in KINDS:
        raise UserError(f"dtype must be one of {', '.join(KINDS)} and stored, got {str(dtype)!r}.")
    held = jax.dtypes.canonicalize_dtype(kind)
    if isinstance(dtype, str) and held != kind:
        raise UserError(f"{dtype} needs JAX_ENABLE_X64=1.")
    return held


def shapes(model: Pretrained) -> dict[str, tuple[int, ...]]:
    """{path: shape} of the parameters of a model; nothing is computed."""
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    tree = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    return {path: leaf.shape for path, leaf in paths.flatten(tree).items()}


def read_json(file: Path) -> dict[str, Any]:
    """An object of a JSON file; anything else is one line."""
    try:
        held = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file.parent} is no model: it has no {file.name}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON: {one_line(error, 100)}.") from None
    if not isinstance(held, dict):
        raise UserError(f"{file} must hold an object, got {type(held).__name__}.")
    return held


def _files(folder: Path) -> dict[str, Path]:
    """{their tensor name: file}."""
    if (folder / INDEX).is_file():
        named = read_json(folder / INDEX).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
            raise UserError(f"{folder / INDEX} has no weight_map of tensor names to files.")
        for name in sorted(set(named.values())):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise UserError(f"{folder / INDEX} names {name!r}, which is no file beside it.")
            if not (folder / name).is_file():
                raise UserError(f"{folder} lacks {name}, which {INDEX} names.")
        held = {name: set(_names(folder / name)) for name in set(named.values())}
        for tensor, name in named.items():
            if tensor not in held[name]:
                raise UserError(f"{folder / name} lacks {tensor}, which {INDEX} says it has.")
        every = {tensor: name for name, tensors in held.items() for tensor in tensors}
        return {tensor: folder / name for tensor, name in (every | named).items()}
    single = folder / SINGLE
    if not single.is_file():
        pickles = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))
        if pickles:
            raise UserError(
                f"{pickles[0]} is a pickle, which can run any code when it is read, and is "
                f"refused; ask for {SINGLE}: transformers writes it with "
                "model.save_pretrained(FOLDER)."
            )
        raise UserError(f"{folder} has neither {SINGLE} nor {INDEX}.")
    return {name: single for name in _names(single)}


def _names(file: Path) -> list[str]:
    with _opened(file) as held:
        return list(held.keys())


def _opened(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="numpy")
    except (SafetensorError, OSError) as error:
        words = one_line(error, 200)
        raise UserError(f"{file} is no whole safetensors file: {words}.") from None


def _stored(name: str, file: Path) -> Any:
    with _opened(file) as held:
        return _tensor(held, name, file).dtype


def _read(
    files: Files,
    wanted: list[keys.Line],
    spec: PretrainedSpec,
    expected: Mapping[str, Any],
    place: Place,
) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for line in wanted:
        name, file = files[line.theirs]
        # Opened for one tensor: what was mapped for the last one is given back.
        with _opened(file) as held:
            tensor = _tensor(held, name, file)
            for path, part in _parts(tensor, line, spec, expected, file, name):
                flat[path] = _put(part, spec.param_dtype, path, place)
            del tensor
    return paths.unflatten(flat)


def _tensor(held: Any, name: str, file: Path) -> Any:
    """A tensor of numbers that weights have."""
    from safetensors import SafetensorError

    try:
        tensor = held.get_tensor(name)
    except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
        raise UserError(f"{file}: {name} cannot be read: {one_line(error, 120)}.") from None
    if tensor.dtype.name not in KINDS:
        raise UserError(
            f"{file}: {name} holds {tensor.dtype.name}; weights are one of {', '.join(KINDS)}."
        )
    return tensor


def _parts(
    tensor: Any, line: keys.Line, spec: PretrainedSpec, expected: Mapping[str, Any], file, name
) -> Iterator[tuple[str, Any]]:
    try:
        parts = keys.ours(tensor, line, spec)
        good = [tuple(x.shape) for x in parts] == [tuple(expected[p]) for p in line.ours]
    except ValueError:
        parts, good = [], False
    if not good:
        shape = keys.their_shape(line, [expected[path] for path in line.ours])
        raise UserError(
            f"{file}: {name} has the shape {tuple(tensor.shape)}; config.json asks for {shape}."
        )
    return zip(line.ours, parts)


def _put(part: Any, dtype: Any, path: str, place: Place) -> jax.Array:
    part = np.ascontiguousarray(part, dtype)
    if callable(place):
        return jax.device_put(part, place(path, part.shape))
    return jnp.asarray(part) if place is None else jax.device_put(part, place)


def _found(
    folder: Path, files: Mapping[str, Path], wanted: list[keys.Line], spec: PretrainedSpec
) -> dict[str, tuple[str, Path]]:
    """Where every tensor that is wanted lies; what is missing or extra is listed."""
    prefix = keys.PREFIXES[spec.family]
    names = {}
    for line in wanted:
        short = line.theirs.removeprefix(prefix)
        names[line.theirs] = line.theirs if line.theirs in files else short
    missing = [theirs for theirs, name in names.items() if name not in files]
    if missing:
        raise UserError(f"{folder} lacks {listed(missing)}.")
    ignored = keys.IGNORED + ((r"lm_head\.weight", r"embed_out\.weight") if spec.tied else ())
    extra = set(files) - set(names.values())
    extra = [x for x in sorted(extra) if not any(re.fullmatch(p, x) for p in ignored)]
    if extra:
        raise UserError(
            f"{folder} has tensors that a {spec.family} model of this config.json has not: "
            f"{listed(extra)}."
        )
    return {theirs: (name, files[name]) for theirs, name in names.items()}


def listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
