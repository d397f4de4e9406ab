"""Writes parameters as a folder of safetensors for `load_folder` and transformers."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core import paths
from jaxformer.core.adapters import check_merged
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import errors_name, write_atomically
from jaxformer.models.pretrained import gguf_tokenizer, hub, tensor_layouts
from jaxformer.models.pretrained.folder import listed, shapes
from jaxformer.models.pretrained.gguf_file import GGUFFile, is_gguf
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.safetensors_folder import INDEX, SINGLE
from jaxformer.models.pretrained.spec import PretrainedSpec
from jaxformer.models.pretrained.tensor_layouts import TensorEntry
from jaxformer.runtime.processes import barrier, is_writer, on_host

SHARD_BYTES = 2 * 2**30  # largest size of a file with several tensors
SHARD_NAME = re.compile(r"model-\d+-of-\d+\.safetensors")
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("generation_config.json", "chat_template.jinja"),
)


def save_folder(
    folder: str | Path,
    model: Pretrained,
    params: Mapping[str, Any],
    config: Mapping[str, Any],
    source: str | Path | None = None,
) -> Path:
    """Writes a model as a folder for `load_folder` and transformers.

    Args:
      folder: a new or empty folder, or the folder of a model, which is replaced.
      model: a published network, as `load_folder` returns it.
      params: all parameters of the model. Sharded parameters are gathered one after another. All
        processes of a job call this function, and process 0 writes.
      config: the content of config.json.
      source: the model whose tokenizer is written too: a folder, a GGUF file, "package:NAME" or a
        name on the hub.

    Returns:
      The path of the folder.
    """
    try:
        import safetensors  # noqa: F401 (before anything is written)
    except ImportError:
        hint = "pip install 'jaxformer[data]'"
        raise UserError(f"saving a model needs the package safetensors: {hint}.") from None
    check_merged(params, "", "a saved model (save_adapter writes adapters alone)")
    flat = paths.flatten(params)
    entries = tensor_layouts.tensor_entries(model.spec, list(flat))
    _check_parameters(model, flat, entries)
    tokenizer_files = _tokenizer_files(source)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    existing = {file.name for file in folder.iterdir() if file.name[0] != "."}
    if existing and "config.json" not in existing:
        raise UserError(f"{folder} has other files; give a new folder.")
    shards = _tensors_of_files(entries, flat)
    for name, shard in shards.items():
        _write_shard(folder / name, shard, flat, model.spec)
    if is_writer():
        files = {INDEX: _index_json(shards, flat)} if len(shards) > 1 else {}
        files |= {"config.json": _config_json(config, flat)} | tokenizer_files
        for name, content in files.items():
            write_atomically(folder / name, content)
        for name in existing - shards.keys() - files.keys():
            if name in (SINGLE, INDEX) or SHARD_NAME.fullmatch(name):
                (folder / name).unlink()  # weights of the replaced model
    barrier()  # no process reads the folder before it is complete
    return folder


def _tensors_of_files(
    entries: list[TensorEntry], flat: Mapping[str, Any]
) -> dict[str, list[TensorEntry]]:
    """Returns {file name: its tensors}; each file has at most SHARD_BYTES, or a single tensor."""
    shards: list[list[TensorEntry]] = [[]]
    size = 0
    for entry in entries:
        n_bytes = _tensor_bytes(entry, flat)
        if size and size + n_bytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += n_bytes
    if len(shards) == 1:
        return {SINGLE: shards[0]}
    n = len(shards)
    return {f"model-{i:05}-of-{n:05}.safetensors": shard for i, shard in enumerate(shards, 1)}


def _tensor_bytes(entry: TensorEntry, flat: Mapping[str, Any]) -> int:
    return sum(flat[path].nbytes for path in entry.parameters)


def _index_json(shards: Mapping[str, list[TensorEntry]], flat: Mapping[str, Any]) -> bytes:
    """Returns the index of a folder with several files: the file of each tensor."""
    weight_map = {entry.name: name for name, shard in shards.items() for entry in shard}
    total = sum(_tensor_bytes(entry, flat) for shard in shards.values() for entry in shard)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return json.dumps(index, indent=1).encode()


def _config_json(config: Mapping[str, Any], flat: Mapping[str, Any]) -> bytes:
    """Returns config.json with the dtype of the first parameter.

    Nothing is quantised here, also if the model was read from MXFP4.
    """
    first_parameter = next(iter(flat.values()))
    stale = ("torch_dtype", "dtype", "quantization_config")
    without_dtype = {k: v for k, v in config.items() if k not in stale}
    with_dtype = without_dtype | {"torch_dtype": str(first_parameter.dtype)}
    return json.dumps(with_dtype, indent=2).encode()


def _check_parameters(
    model: Pretrained, flat: Mapping[str, Any], entries: list[TensorEntry]
) -> None:
    """Raises unless these are all parameters of the model, and its family can store them."""
    expected = shapes(model)
    if missing := [path for path in expected if path not in flat]:
        raise UserError(f"the parameters lack {listed(missing)}.")
    storable = {path for entry in entries for path in entry.parameters}
    if extra := [path for path in flat if path not in expected or path not in storable]:
        raise UserError(f"a {model.spec.family} model does not have {listed(extra)}.")
    for path, shape in expected.items():
        if flat[path].shape != shape:
            raise UserError(f"{path} must have the shape {shape}, got {flat[path].shape}.")


def _write_shard(
    file: Path, entries: list[TensorEntry], flat: Mapping[str, Any], spec: PretrainedSpec
):
    """Writes one file atomically. The writing process holds a second copy of its tensors."""
    tensors = {}
    for entry in entries:
        parts = [on_host(flat[path]) for path in entry.parameters]  # every process takes part
        if is_writer():
            tensors[entry.name] = np.ascontiguousarray(tensor_layouts.to_tensor(parts, entry, spec))
    if is_writer():
        write_tensors(file, tensors)


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a file of safetensors atomically."""
    from safetensors.numpy import save_file

    with errors_name(file):
        # A name that `atomic_files` knows as a temporary file, if this process is killed.
        temporary = file.with_name(f".{file.name}.{os.getpid():08x}")
        try:
            temporary.touch()
            # The library writes a file that only its owner may read; restore the umask's mode.
            mode = temporary.stat().st_mode
            save_file(dict(tensors), temporary, {"format": "pt"})
            temporary.chmod(mode)
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def _tokenizer_files(source: str | Path | None) -> dict[str, bytes]:
    """Returns {file name: content} of the files that describe a model's tokenizer."""
    if source is None:
        return {}
    path = hub.path_of(source)
    if is_gguf(path):
        metadata = GGUFFile(path).metadata
        tokenizer = gguf_tokenizer.build(metadata, str(path)).to_str()
        settings = json.dumps(gguf_tokenizer.settings(metadata), indent=2)
        return {
            "tokenizer.json": tokenizer.encode(),
            "tokenizer_config.json": settings.encode(),
        }
    files = [path / name for name in TOKENIZER_FILES]
    return {file.name: file.read_bytes() for file in files if file.is_file()}
