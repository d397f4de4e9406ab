"""Adapters in the format of the package peft: adapter_config.json and adapter_model.safetensors.

    params = load_adapter("folder-of-peft", model, params)     the model with their adapters
    save_adapter("folder-for-peft", model, run.params, base="gpt2")

A tensor is named by the module of transformers that it changes, with "base_model.model." before
and ".lora_A.weight" or ".lora_B.weight" behind. Where a family joins kernels, as GPT-2 does with
queries, keys and values, peft has one adapter for all of them. Ours has one for each kernel: read
from peft they share A and have a part of B each, and written they are one adapter whose rank is the
sum of theirs, unless they still share A.

All experts of a block are written if one has an adapter, and routers with the experts' rank and
scale, because peft reads them so. What peft does not read is refused (`peft_experts`).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.adapters import KERNEL, LORA_A, LORA_B, LORA_SCALE, adapted_kernels, beside
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically
from jaxformer.models.pretrained import peft_config, tensor_layouts
from jaxformer.models.pretrained.folder import listed, shapes
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.pretrained.peft_experts import (
    check_peft_reads,
    is_joined,
    with_joined_adapters,
)
from jaxformer.models.pretrained.safetensors_folder import TensorFile
from jaxformer.models.pretrained.saving import write_tensors
from jaxformer.models.pretrained.tensor_layouts import TensorEntry
from jaxformer.runtime.processes import is_writer, on_host

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")


def load_adapter(
    folder: str | Path, model: Pretrained, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Adds the adapters of a folder of peft to the parameters of their base model.

    They act like adapters that were trained here: `jaxformer.adapters.merge` writes them into the
    kernels, and the rule (".*/lora_[ab]", "train") goes on with their training.

    Args:
        folder: the folder, with adapter_config.json and adapter_model.safetensors.
        model: the base model, as `jaxformer.load` returns it.
        params: its parameters.

    Raises:
        UserError: the folder belongs to another model, or has a variant of LoRA that is not known.
    """
    folder = Path(folder)
    _check_files(folder)
    config = peft_config.checked_config(folder / CONFIG)
    file = TensorFile(folder / TENSORS)
    base = peft_config.base_name(config)
    expected, flat = shapes(model), dict(paths.flatten(params))
    if adapted := adapted_kernels(params):
        raise UserError(f"{adapted[0]} has an adapter already: merge it before you load another.")
    entries = {
        entry.name.removesuffix(".weight"): entry
        for entry in tensor_layouts.tensor_entries(model.spec, list(expected))
        if entry.parameters[0].endswith(f"/{KERNEL}") and entry.layout != "stacked"
    }
    pairs = _pairs(file)
    for module, (a, b) in pairs.items():
        if module.removesuffix(".base_layer").endswith(".experts"):
            raise UserError(
                f"{file.path} adapts {module}, where peft joins all experts into one adapter, "
                "which is not supported: merge it in peft (merge_and_unload), then load the model."
            )
        if module not in entries:
            raise UserError(
                f"{file.path} adapts {module}, which is no linear map of a {model.spec.family} "
                f"model: is it the adapter of another model, such as {base}?"
            )
        entry, rank = entries[module], a.shape[0]
        written = peft_config.rank(config, module)
        if written != rank:
            raise UserError(
                f"{folder / CONFIG} gives {module} the rank {written}, but its lora_A has the rank "
                f"{rank}: the two files belong to different adapters."
            )
        parts = _parts_of_b(b, entry, model)
        for path, part in zip(entry.parameters, parts, strict=True):
            n, m = expected[path]
            if a.shape != (rank, n) or part.shape != (rank, m):
                raise UserError(
                    f"{file.path}: the adapter of {module} has the shapes {a.shape} and {b.shape}, "
                    f"which do not fit {path} of shape {(n, m)}: is it the adapter of another "
                    f"model, such as {base}?"
                )
            dtype = jnp.promote_types(flat[path].dtype, jnp.float32)
            flat[beside(path, LORA_A)] = jnp.asarray(a.T, dtype)
            flat[beside(path, LORA_B)] = jnp.asarray(part, dtype)
            flat[beside(path, LORA_SCALE)] = jnp.asarray(peft_config.scale(config, module), dtype)
    _check_complete(folder, file, config, entries, pairs)
    return paths.unflatten(flat)


def save_adapter(
    folder: str | Path, model: Pretrained, params: Mapping[str, Any], base: str | None = None
) -> Path:
    """Writes the adapters of one member, and nothing else, as a folder that peft reads.

    Args:
        folder: a new folder, or one whose adapter is replaced.
        model: the published model.
        params: its parameters with adapters.
        base: the name or folder of the base model, which peft and a later reader look up.
    """
    given = adapted_kernels(params)
    if not given:
        raise UserError("these parameters have no adapter to save (no leaf lora_a).")
    if paths.flatten(params)[beside(given[0], LORA_A)].ndim != 2:
        raise UserError("save_adapter takes the parameters of one member, such as run.member(0).")
    check_peft_reads(model.spec, given)
    params = with_joined_adapters(params)
    flat, adapted = paths.flatten(params), adapted_kernels(params)
    tensors: dict[str, np.ndarray] = {}
    scales: dict[str, float] = {}
    joined: list[str] = []  # the modules whose rank and scale must be r and lora_alpha
    fan_in_first = False
    written: set[str] = set()
    for entry in tensor_layouts.tensor_entries(model.spec, list(shapes(model))):
        here = set(entry.parameters) & set(adapted)
        if not here:
            continue
        module = entry.name.removesuffix(".weight")
        a, b, scales[module] = _joined(entry, flat, model)
        tensors[f"base_model.model.{module}.lora_A.weight"] = np.ascontiguousarray(a)
        tensors[f"base_model.model.{module}.lora_B.weight"] = np.ascontiguousarray(b)
        if is_joined(entry.parameters[0]):
            joined.append(module)
        fan_in_first |= entry.layout in ("same", "columns")
        written |= {*entry.parameters}
    if left := [path for path in adapted if path not in written]:
        raise UserError(f"a {model.spec.family} model does not have {listed(left)}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if is_writer():
        write_tensors(folder / TENSORS, tensors)
        config = _config(tensors, scales, joined, base, fan_in_first, model.spec.causal)
        write_atomically(folder / CONFIG, json.dumps(config, indent=2).encode())
    return folder


def _check_files(folder: Path) -> None:
    missing = [name for name in (CONFIG, TENSORS) if not (folder / name).is_file()]
    if missing == [TENSORS] and (pickle := folder / "adapter_model.bin").is_file():
        raise UserError(
            f"{folder} has no adapter of peft: {pickle.name} is a pickle, which is refused, since "
            f"it can run any code; save_pretrained of peft writes {TENSORS}."
        )
    if missing:
        raise UserError(f"{folder} has no adapter of peft: it lacks {' and '.join(missing)}.")


def _pairs(file: TensorFile) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{module: (A, B)} of all tensors; a tensor of another kind is refused."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name in sorted(file.names):
        match = NAME.fullmatch(name)
        if match is None:
            raise UserError(
                f"{file.path} has the tensor {name}, which is no lora_A or lora_B of a linear map: "
                "adapters of embeddings and trained copies of modules are not supported."
            )
        found.setdefault(match[1], {})[match[2]] = file.tensor(name)
    for module, pair in found.items():
        if pair.keys() != {"A", "B"} or any(tensor.ndim != 2 for tensor in pair.values()):
            raise UserError(f"{file.path} needs matrices lora_A and lora_B of {module}.")
        for letter, tensor in pair.items():
            if not _is_finite(tensor):
                raise UserError(
                    f"{file.path}: lora_{letter} of {module} has numbers that are nan, infinite or "
                    "beyond float32."
                )
        if pair["A"].shape[0] != pair["B"].shape[1]:
            shapes_ = f"{pair['A'].shape} and {pair['B'].shape}"
            raise UserError(f"{file.path}: lora_A and lora_B of {module} do not fit: {shapes_}.")
    if not found:
        raise UserError(f"{file.path} is empty: it adapts nothing.")
    return {module: (pair["A"], pair["B"]) for module, pair in found.items()}


def _is_finite(tensor: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(tensor.astype(np.float32)).all())


def _check_complete(
    folder: Path,
    file: TensorFile,
    config: Mapping[str, Any],
    modules: Iterable[str],
    found: Mapping[str, Any],
) -> None:
    """Raises UserError if the file lacks the tensors of a module that the config names."""
    targeted = peft_config.targeted(config, modules, folder / CONFIG)
    if missing := [module for module in targeted if module not in found]:
        raise UserError(
            f"{file.path} has tensors of {len(found)} modules, but target_modules of {CONFIG} "
            f"names {len(targeted)}, such as {missing[0]}: is it a part of an upload?"
        )


def _parts_of_b(b: np.ndarray, entry: TensorEntry, model: Pretrained) -> list[np.ndarray]:
    """B of each kernel in a tensor, (r, outputs); b is (outputs, r) for all of them."""
    is_outputs_last = entry.layout in ("same", "columns")
    try:
        return tensor_layouts.to_parameters(b.T if is_outputs_last else b, entry, model.spec)
    except ValueError:  # a joined tensor of another size
        return [np.zeros((0, 0))] * len(entry.parameters)


def _joined(
    entry: TensorEntry, flat: Mapping[str, Any], model: Pretrained
) -> tuple[np.ndarray, np.ndarray, float]:
    """(A (R, inputs), B (outputs, R), scale) of the kernels in one tensor together."""
    kernels = [path for path in entry.parameters if beside(path, LORA_A) in flat]
    wide = [np.asarray(on_host(flat[beside(path, LORA_A)]), np.float32) for path in kernels]
    scale = float(np.asarray(on_host(flat[beside(kernels[0], LORA_SCALE)])))
    shares_a = len(kernels) == len(entry.parameters) and all(
        np.array_equal(wide[0], other) for other in wide[1:]
    )
    ranks = [0] if shares_a else [a.shape[1] for a in wide]
    a = wide[0] if shares_a else np.concatenate(wide, 1)
    rows = {path: sum(ranks[:i]) * (not shares_a) for i, path in enumerate(kernels)}
    parts = []
    for path in entry.parameters:
        part = np.zeros((a.shape[1], flat[path].shape[-1]), np.float32)
        if path in rows:
            b = np.asarray(on_host(flat[beside(path, LORA_B)]), np.float32)
            own = float(np.asarray(on_host(flat[beside(path, LORA_SCALE)])))
            part[rows[path] : rows[path] + len(b)] = b * (own / scale)
        parts.append(part)
    tensor = np.asarray(tensor_layouts.to_tensor(parts, entry, model.spec))
    return a.T, tensor.T if entry.layout in ("same", "columns") else tensor, scale


def _config(
    tensors: Mapping[str, np.ndarray],
    scales: Mapping[str, float],
    joined: list[str],
    base: str | None,
    fan_in_first: bool,
    is_causal: bool,
) -> dict[str, Any]:
    ranks = {
        module: tensors[f"base_model.model.{module}.lora_A.weight"].shape[0] for module in scales
    }
    alphas = {module: scales[module] * ranks[module] for module in scales}
    usual = joined or [*scales]
    rank, alpha = (Counter(x[m] for m in usual).most_common(1)[0][0] for x in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if is_causal else None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": _others(ranks, rank),
        "alpha_pattern": _others(alphas, alpha),
        "target_modules": list(scales),
        "fan_in_fan_out": fan_in_first,
        "bias": "none",
        "lora_dropout": 0.0,
        "use_rslora": False,
        "inference_mode": True,
    }


def _others(values: Mapping[str, Any], usual: Any) -> dict[str, Any]:
    """Patterns of the modules with another value; peft reads the keys as regular expressions."""
    return {re.escape(name): value for name, value in values.items() if value != usual}
