"""A folder of safetensors -> parameters, and back.

A tensor is mapped into memory, turned into ours, cast and put on its device before the next one is
touched: besides the parameters there is one tensor. Pickles are refused; nothing is executed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import paths
from jaxformer.errors import UserError, one_line
from jaxformer.files import naming, write_atomically
from jaxformer.models.pretrained import keys
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.spec import PretrainedSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = 2 * 2**30  # bytes of a file that we write
Place = Callable[[str, Any], Any] | Any | None


def is_pretrained(folder: Path) -> bool:
    """Is this a published model, and not a run?"""
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
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
    config = read_json(folder / "config.json")
    spec = describe(config, str(folder / "config.json"))
    files = _files(folder)
    if dtype == "stored":
        dtype = _stored(files)
    kind = jnp.dtype(float if dtype is None else dtype)
    kind = jax.dtypes.canonicalize_dtype(kind)
    model = Pretrained(replace(spec, dtype=kind, param_dtype=kind))
    return model, _read(files, model.spec, shapes(model), place), config


def shapes(model: Pretrained) -> dict[str, tuple[int, ...]]:
    """{path: shape} of the parameters of a model; nothing is computed."""
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    tree = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    return {path: leaf.shape for path, leaf in paths.flatten(tree).items()}


def save_folder(
    folder: str | Path,
    model: Pretrained,
    params: Mapping[str, Any],
    config: Mapping[str, Any],
    source: str | Path | None = None,
) -> Path:
    """Writes what `load_folder` and transformers read; tokenizer files are copied from `source`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    flat = paths.flatten(params)
    shards: list[list[keys.Line]] = [[]]
    total = size = 0
    for line in keys.lines(model.spec, list(flat)):
        new = sum(flat[path].nbytes for path in line.ours)
        if size and size + new > SHARD:
            shards.append([])
            size = 0
        shards[-1].append(line)
        size, total = size + new, total + new
    names = [SINGLE]
    if len(shards) > 1:
        names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards):
        _write(folder / name, shard, flat, model.spec)
    if len(shards) > 1:
        weight_map = {line.theirs: name for name, shard in zip(names, shards) for line in shard}
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_atomically(folder / INDEX, json.dumps(index, indent=1).encode())
    dtype = str(np.asarray(next(iter(flat.values()))).dtype)
    written = {k: v for k, v in config.items() if k not in ("torch_dtype", "dtype")}
    text = json.dumps(written | {"torch_dtype": dtype}, indent=2)
    write_atomically(folder / "config.json", text.encode())
    for file in _text_files(source):
        write_atomically(folder / file.name, file.read_bytes())
    return folder


def _write(file: Path, lines: list[keys.Line], flat: Mapping[str, Any], spec: PretrainedSpec):
    """One file, whole or absent; its tensors alone are held a second time."""
    from safetensors.numpy import save_file

    tensors = {}
    for line in lines:
        parts = [np.asarray(flat[path]) for path in line.ours]
        tensors[line.theirs] = np.ascontiguousarray(keys.theirs(parts, line, spec))
    with naming(file):
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            save_file(tensors, temporary, {"format": "pt"})
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


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
        return {tensor: folder / name for tensor, name in named.items()}
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


def _stored(files: Mapping[str, Path]) -> Any:
    name, file = next(iter(files.items()))
    with _opened(file) as held:
        return held.get_slice(name)[..., :1].dtype


def _read(
    files: Mapping[str, Path], spec: PretrainedSpec, expected: Mapping[str, Any], place: Place
) -> dict[str, Any]:
    wanted = keys.lines(spec, list(expected))
    names = _found(files, wanted, spec)
    flat: dict[str, Any] = {}
    for line in wanted:
        name = names[line.theirs]
        file = files[name]
        # Opened for one tensor: what was mapped for the last one is given back.
        with _opened(file) as held:
            for path, part in _parts(held.get_tensor(name), line, spec, expected, file, name):
                flat[path] = _put(part, spec.param_dtype, path, place)
    return paths.unflatten(flat)


def _parts(
    tensor: Any, line: keys.Line, spec: PretrainedSpec, expected: Mapping[str, Any], file, name
) -> Iterator[tuple[str, Any]]:
    try:
        parts = keys.ours(tensor, line, spec)
        good = [tuple(x.shape) for x in parts] == [tuple(expected[p]) for p in line.ours]
    except ValueError:
        parts, good = [], False
    if not good:
        empty = [np.broadcast_to(np.int8(0), expected[path]) for path in line.ours]
        shape = keys.theirs(empty, line, spec).shape
        raise UserError(
            f"{file}: {name} has the shape {tuple(tensor.shape)}; config.json asks for {shape}."
        )
    return zip(line.ours, parts)


def _put(part: Any, dtype: Any, path: str, place: Place) -> jax.Array:
    part = np.ascontiguousarray(part, dtype)
    if callable(place):
        return jax.device_put(part, place(path, part.shape))
    return jnp.asarray(part) if place is None else jax.device_put(part, place)


def _found(files, wanted: list[keys.Line], spec: PretrainedSpec) -> dict[str, str]:
    """{their full name: the name it has in the files}; what is missing or extra is listed."""
    prefix = keys.PREFIXES[spec.family]
    names = {}
    for line in wanted:
        short = line.theirs.removeprefix(prefix)
        names[line.theirs] = line.theirs if line.theirs in files else short
    missing = [theirs for theirs, name in names.items() if name not in files]
    if missing:
        raise UserError(f"{_where(files)} lacks {_listed(missing)}.")
    ignored = keys.IGNORED + ((r"lm_head\.weight", r"embed_out\.weight") if spec.tied else ())
    extra = set(files) - set(names.values())
    extra = [x for x in sorted(extra) if not any(re.fullmatch(p, x) for p in ignored)]
    if extra:
        raise UserError(
            f"{_where(files)} has tensors that a {spec.family} model of this config.json has not: "
            f"{_listed(extra)}."
        )
    return names


def _where(files: Mapping[str, Path]) -> Path:
    return next(iter(files.values())).parent


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _text_files(source: str | Path | None) -> list[Path]:
    if source is None:
        return []
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
    return [file for name in names if (file := Path(source) / name).is_file()]
