"""Export of parameters to a safetensors folder that `load_folder` and transformers can read."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import errors_name, write_atomically
from jaxformer.models.pretrained import hub, keys
from jaxformer.models.pretrained.folder import INDEX, SINGLE, listed, shapes
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.spec import PretrainedSpec

SHARD_BYTES = 2 * 2**30  # largest size of a file with several tensors
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "generation_config.json",
)


def save_folder(
    folder: str | Path,
    model: Pretrained,
    params: Mapping[str, Any],
    config: Mapping[str, Any],
    source: str | Path | None = None,
) -> Path:
    """Writes a model to a folder that `load_folder` and transformers can read.

    Args:
        folder: the folder to write. It is missing, empty or contains a model, which is replaced.
        model: the network.
        params: all parameters of the network.
        config: the content of config.json. `torch_dtype` is set to the type of the parameters.
        source: a folder or a name on the hub from which tokenizer files are copied.

    Returns:
        The folder.
    """
    flat = paths.flatten(params)
    lines = keys.lines(model.spec, list(flat))
    _check_complete(model, flat, lines)
    texts = _text_files(source)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = {file.name for file in folder.iterdir() if file.name[0] != "."}
    if before and "config.json" not in before:
        raise UserError(f"{folder} holds other files; choose an empty folder, or one with a model.")
    shards: list[list[keys.Line]] = [[]]
    total = size = 0
    for line in lines:
        new = sum(flat[path].nbytes for path in line.ours)
        if size and size + new > SHARD_BYTES:
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
    fields = {k: v for k, v in config.items() if k not in ("torch_dtype", "dtype")}
    text = json.dumps(fields | {"torch_dtype": dtype}, indent=2)
    write_atomically(folder / "config.json", text.encode())
    for file in texts:
        write_atomically(folder / file.name, file.read_bytes())
    written = {*names, *([INDEX] if len(shards) > 1 else [])}
    for name in before - written:
        if name in (SINGLE, INDEX) or re.fullmatch(r"model-\d+-of-\d+\.safetensors", name):
            (folder / name).unlink()  # a file of the replaced model, which would be loaded
    return folder


def _check_complete(model: Pretrained, flat: Mapping[str, Any], lines: list[keys.Line]) -> None:
    """Raises UserError unless `flat` has exactly the model's parameters and `lines` name all."""
    expected = shapes(model)
    if missing := [path for path in expected if path not in flat]:
        raise UserError(f"the parameters lack {listed(missing)}.")
    named = {path for line in lines for path in line.ours}
    if extra := [path for path in flat if path not in expected or path not in named]:
        raise UserError(f"a {model.spec.family} model has no place for {listed(extra)}.")
    for path, shape in expected.items():
        if flat[path].shape != shape:
            raise UserError(f"{path} has the shape {flat[path].shape}; the model's is {shape}.")


def _write(file: Path, lines: list[keys.Line], flat: Mapping[str, Any], spec: PretrainedSpec):
    """Writes one file atomically. Copies only the tensors of this file in memory."""
    from safetensors.numpy import save_file

    tensors = {}
    for line in lines:
        parts = [np.asarray(flat[path]) for path in line.ours]
        tensors[line.theirs] = np.ascontiguousarray(keys.theirs(parts, line, spec))
    with errors_name(file):
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            temporary.touch()
            mode = temporary.stat().st_mode  # as the umask sets it; save_file makes a private file
            save_file(tensors, temporary, {"format": "pt"})
            temporary.chmod(mode)
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def _text_files(source: str | Path | None) -> list[Path]:
    if source is None:
        return []
    return [file for name in TOKENIZER_FILES if (file := hub.folder_of(source) / name).is_file()]
