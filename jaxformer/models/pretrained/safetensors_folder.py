"""A folder with config.json and safetensors, as Hugging Face's transformers writes it.

Pickles are never opened, and files outside the folder are never read.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained import mxfp4
from jaxformer.models.pretrained.mapped import mapped_tensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = ("float16", "bfloat16", "float32", "float64")


class TensorFile:
    """One file of safetensors."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def names(self) -> set[str]:
        """The names of the tensors in the file."""
        with _open_file(self.path) as tensors:
            return set(tensors.keys())

    def location(self, name: str) -> str:
        """The file and the name of a tensor, for messages."""
        return f"{self.path}: {name}"

    def tensor(self, name: str, dtypes: Sequence[str] = DTYPES) -> np.ndarray:
        """A tensor of the file; raises UserError if it has none of these dtypes."""
        from safetensors import SafetensorError

        # A new mapping for each tensor frees the memory of the previous one.
        with _open_file(self.path) as tensors:
            try:
                tensor = mapped_tensor(self.path, name)
                tensor = tensors.get_tensor(name) if tensor is None else tensor
            except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
                reason = one_line(error, 120)
                raise UserError(f"{self.location(name)} cannot be read: {reason}.") from None
        if tensor.dtype.name not in dtypes:
            expected = ", ".join(dtypes)
            raise UserError(
                f"{self.location(name)} is {tensor.dtype.name}; expected one of {expected}."
            )
        return tensor


class SafetensorsFolder:
    """A folder of safetensors with the methods of a checkpoint (see `folder`)."""

    def __init__(self, folder: Path):
        self.path = folder

    @property
    def config_name(self) -> str:
        """The source of the config in messages."""
        return str(self.path / "config.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @cached_property
    def names(self) -> set[str]:
        """The names of all stored tensors; two parts of MXFP4 are one tensor."""
        return mxfp4.joined_names(self._files)

    def stored_names(self, names: Sequence[str], prefix: str) -> dict[str, str]:
        """Returns {tensor name of Hugging Face: name of the stored tensor}.

        Args:
          names: the tensors of a model.
          prefix: the beginning of these names that stored names may lack.
        """
        stored, present = {}, self.names
        for name in names:
            short = name.removeprefix(prefix)
            choices = (name, short, _old_norm_name(name), _old_norm_name(short))
            stored[name] = next((choice for choice in choices if choice in present), name)
        return stored

    def location(self, name: str) -> str:
        """Returns the file and the name of a stored tensor, for messages."""
        name = name if name in self._files else mxfp4.parts(name)[0]
        return TensorFile(self._files[name]).location(name)

    def tensor(self, name: str) -> np.ndarray:
        """Returns a stored tensor, in float32 if it was in MXFP4.

        Raises UserError if its dtype is not in DTYPES.
        """
        if name in self._files:
            return TensorFile(self._files[name]).tensor(name)
        blocks, scales = (
            TensorFile(self._files[part]).tensor(part, ("uint8",)) for part in mxfp4.parts(name)
        )
        try:
            return mxfp4.dequantised(blocks, scales)
        except ValueError as error:
            raise UserError(f"{self.location(name)} cannot be read: {error}.") from None

    @cached_property
    def _files(self) -> dict[str, Path]:
        """{tensor name: file}."""
        folder = self.path
        if (folder / INDEX).is_file():
            return self._files_of_index()
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
        return dict.fromkeys(TensorFile(single).names, single)

    def _files_of_index(self) -> dict[str, Path]:
        folder = self.path
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
        contents = {name: TensorFile(folder / name).names for name in set(weight_map.values())}
        for tensor, name in weight_map.items():
            if tensor not in contents[name]:
                raise UserError(f"{folder / name} lacks {tensor}, which {INDEX} lists.")
        # A file may have tensors that the index does not list; the loader reports or ignores them.
        stored = {tensor: name for name, tensors in contents.items() for tensor in tensors}
        return {tensor: folder / name for tensor, name in (stored | weight_map).items()}


def read_json(file: Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or raises UserError."""
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{file.parent} is not a model: it has no {file.name}.") from None
    except OSError as error:  # a folder of this name, or no permission
        raise UserError(f"cannot read {file}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON: {one_line(error, 100)}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{file} must contain an object, got {type(content).__name__}.")
    return content


def _old_norm_name(name: str) -> str:
    """Returns a norm's parameter as older BERT checkpoints name it."""
    name = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", name)
    return re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)


def _open_file(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="numpy")
    except (SafetensorError, OSError) as error:
        reason = one_line(error, 200)
        raise UserError(f"{file} is not a complete safetensors file: {reason}.") from None
