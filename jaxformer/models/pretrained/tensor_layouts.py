"""The tensors of a published model on disk, and the layouts of kernels in them.

same        (inputs, outputs), the layout of jaxformer's parameters
transposed  (outputs, inputs), as in PyTorch
columns     several kernels joined along the outputs of (inputs, outputs)
rows        several kernels joined along the outputs of (outputs, inputs)
groups      (G, H/G + 2, D, inputs): for each key head its queries, key and value
stacked     (experts, inputs, outputs): a kernel of each expert; if two are joined, their outputs
            alternate. Biases are (experts, outputs).
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import check_choice
from jaxformer.models.pretrained.families import FAMILIES
from jaxformer.models.pretrained.family import Family
from jaxformer.models.pretrained.spec import PretrainedSpec

# {last part of a parameter's path: last part of the name on disk}
LEAVES = {
    **{"kernel": ".weight", "scale": ".weight", "embedding": ".weight", "bias": ".bias"},
    "sinks": ".sinks",
}
STACKED_LEAVES = {"kernel": "", "bias": "_bias"}  # of tensors with a kernel of each expert


class TensorEntry(NamedTuple):
    """A tensor on disk and the parameters that it contains."""

    name: str  # of the tensor on disk
    parameters: tuple[str, ...]  # paths
    layout: str


def tensor_entries(spec: PretrainedSpec, paths: Sequence[str]) -> list[TensorEntry]:
    """Returns the tensors of a model on disk, in the order of its family's names, then of blocks.

    Args:
      spec: the hyperparameters of the model.
      paths: the paths of the model's parameters.
    """
    check_choice("family", spec.family, FAMILIES)
    family, parameters = FAMILIES[spec.family], set(paths)
    has_two_norms = spec.parallel and not spec.shared_norm
    names = {**family.names, **(family.two_norms if has_two_norms else {})}
    present = []
    for module_paths, disk_name in names.items():
        blocks = range(spec.layers) if "#" in disk_name else [0]
        heads = range(spec.heads) if "%" in disk_name else [0]
        experts = range(spec.experts) if "@" in disk_name else [0]
        for index in itertools.product(blocks, heads, experts):
            entries = _entries_of_module(family, disk_name, module_paths, index, spec.experts)
            present += [
                entry
                for entry in entries
                if entry.parameters and parameters.issuperset(entry.parameters)
            ]
    return present


def _entries_of_module(
    family: Family, disk_name: str, module_paths: str, index: tuple[int, ...], experts: int
) -> Iterator[TensorEntry]:
    """Yields an entry for each tensor that a module may have.

    Args:
      family: the family of the model.
      disk_name: the name of the module on disk, a value of `family.names`.
      module_paths: the paths of jaxformer's modules joined by "+", the key of that value.
      index: the numbers of the block, of the head and of the expert.
      experts: the number of experts, which are in one tensor if only our paths number them.
    """
    modules, leaves = module_paths.split("+"), LEAVES
    is_stacked = "@" in module_paths and "@" not in disk_name
    if is_stacked:
        modules = [path.replace("@", str(e)) for e in range(experts) for path in modules]
        leaves = STACKED_LEAVES

    def numbered(name: str) -> str:
        for sign, number in zip("#%@", index, strict=True):
            name = name.replace(sign, str(number))
        return name

    disk_name, modules = numbered(disk_name), [numbered(path) for path in modules]
    for leaf, disk_leaf in leaves.items():
        layout = "same"
        if is_stacked:
            layout = "stacked"
        elif len(modules) > 1:
            layout = family.joined
        elif leaf == "kernel":
            in_block = module_paths != "unembed"
            layout = family.kernels if in_block else "transposed"
        yield TensorEntry(f"{disk_name}{disk_leaf}", tuple(f"{x}/{leaf}" for x in modules), layout)


def to_parameters(array: Any, entry: TensorEntry, spec: PretrainedSpec) -> list[Any]:
    """Returns the parameters in a tensor from disk, as views of it.

    A tensor of a wrong shape raises ValueError or gives parameters of wrong shapes.

    Args:
        array: the tensor.
        entry: the name of the tensor, its layout and the paths of its parameters.
        spec: the sizes of the model.

    Returns:
        An array for each path of `entry.parameters`.
    """
    if entry.layout == "same":
        return [array]
    if entry.layout == "transposed":
        return [array.T]
    if entry.layout == "groups":
        rest = array.shape[1:]  # (inputs,), or () for biases
        parts = array.reshape(spec.kv_heads, -1, spec.head_width, *rest)
        queries_keys_values = parts[:, :-2], parts[:, -2], parts[:, -1]
        return [part.reshape(-1, *rest).T for part in queries_keys_values]
    if entry.layout == "stacked":
        joined = len(entry.parameters) // spec.experts
        return [expert[..., i::joined] for expert in array for i in range(joined)]
    ends = np.cumsum(_output_sizes(entry, spec))[:-1]
    if entry.layout == "columns":
        return np.split(array, ends, axis=-1)
    return [part.T for part in np.split(array, ends, axis=0)]


def to_tensor(arrays: Sequence[Any], entry: TensorEntry, spec: PretrainedSpec) -> Any:
    """Returns the tensor on disk for these parameters, the inverse of `to_parameters`.

    Args:
        arrays: an array for each path of `entry.parameters`.
        entry: the name of the tensor, its layout and the paths of its parameters.
        spec: the sizes of the model.
    """
    if entry.layout == "same":
        return arrays[0]
    if entry.layout == "transposed":
        return arrays[0].T
    if entry.layout == "columns":
        return np.concatenate(arrays, axis=-1)
    if entry.layout == "rows":
        return np.concatenate([array.T for array in arrays], axis=0)
    if entry.layout == "stacked":
        by_expert = np.stack(arrays).reshape(spec.experts, -1, *arrays[0].shape)
        return np.moveaxis(by_expert, 1, -1).reshape(spec.experts, *arrays[0].shape[:-1], -1)
    rest = arrays[0].T.shape[1:]
    parts = [array.T.reshape(spec.kv_heads, -1, spec.head_width, *rest) for array in arrays]
    return np.concatenate(parts, 1).reshape(-1, *rest)


def tensor_shape(
    entry: TensorEntry, shapes: Sequence[tuple[int, ...]], spec: PretrainedSpec
) -> tuple[int, ...]:
    """Returns the shape on disk for parameters of these shapes."""
    inputs, outputs = shapes[0][:-1], sum(shape[-1] for shape in shapes)
    if entry.layout == "same":
        return tuple(shapes[0])
    if entry.layout == "stacked":
        return (spec.experts, *inputs, outputs // spec.experts)
    return (*inputs, outputs) if entry.layout == "columns" else (outputs, *inputs)


def _output_sizes(entry: TensorEntry, spec: PretrainedSpec) -> list[int]:
    """Returns the number of outputs of each parameter in a joined tensor."""
    if len(entry.parameters) == 2:  # gate and in of an MLP; otherwise query, key and value
        return [spec.mlp_width] * 2
    return [heads * spec.head_width for heads in (spec.heads, spec.kv_heads, spec.kv_heads)]
