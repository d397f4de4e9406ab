"""The communication of a compiled program, by kind and by mesh axis.

A program names groups of devices that exchange data. The axes of a group are the mesh axes along
which the coordinates of its devices differ.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from jaxformer.planning.hlo import Instruction, Program

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """All exchanges of one kind along the same axes in one run of a program."""

    kind: str
    axes: tuple[str, ...]
    count: int
    array_bytes: int  # of the whole arrays: after a gather, before a scatter
    sent_bytes: int  # bytes that each device sends if the devices form a ring
    crosses_hosts: bool = False


def collectives(program: Program, mesh: Mesh, devices_per_host: int = 0) -> list[Collective]:
    """Returns the exchanges of one run of a program, the largest first.

    Args:
        program: a compiled program.
        mesh: the mesh that it was compiled for.
        devices_per_host: devices with direct links; 0 if all devices of the mesh have them.
    """
    # {(kind, axes, crosses_hosts): [count, array_bytes, sent_bytes]}
    totals: dict[tuple[str, tuple[str, ...], bool], list[int]] = {}
    for computation, instruction, times in _with_fusions(program):
        kind = _kind(instruction, computation)
        if kind is None:
            continue
        group = _first_group(instruction, mesh.size)
        if len(group) < 2:
            continue
        defined = program.computations[computation]
        size = sum(defined[name].bytes for name in instruction.operands if name in defined)
        array_bytes = size * len(group) if kind == "all-gather" else size
        hosts = {device // devices_per_host for device in group} if devices_per_host else {0}
        key = (kind, _axes(group, mesh), len(hosts) > 1)
        total = totals.setdefault(key, [0, 0, 0])
        total[0] += times
        total[1] += times * array_bytes
        total[2] += times * _sent_bytes(kind, array_bytes, len(group))
    exchanges = [
        Collective(kind, axes, *total, crosses_hosts=crosses_hosts)
        for (kind, axes, crosses_hosts), total in totals.items()
    ]
    return sorted(exchanges, key=lambda collective: -collective.sent_bytes)


def _with_fusions(program: Program) -> Iterator[tuple[str, Instruction, int]]:
    """Yields executed instructions and the insides of fusions, where a TPU has some collectives."""
    for computation, instruction, times in program.executed():
        yield computation, instruction, times
        if instruction.opcode == "fusion":
            for name in program.called(instruction):
                for inner in program.computations.get(name, {}).values():
                    yield name, inner, times


def _kind(instruction: Instruction, computation: str) -> str | None:
    """Returns the kind of exchange of an instruction, None if it is no exchange."""
    kind = instruction.opcode.removesuffix("-start")
    if kind not in KINDS:
        return None
    # A fused reduce-scatter contains an all-reduce.
    is_scatter = kind == "all-reduce" and computation.startswith("all-reduce-scatter")
    return "reduce-scatter" if is_scatter else kind


def _sent_bytes(kind: str, array_bytes: int, n: int) -> int:
    """Returns the bytes that each of n devices in a ring sends."""
    if kind == "collective-permute":
        return array_bytes
    passes = 2 if kind == "all-reduce" else 1
    return passes * array_bytes * (n - 1) // n


def _axes(group: Sequence[int], mesh: Mesh) -> tuple[str, ...]:
    """Returns the mesh axes along which the devices of a group differ."""
    coordinates = np.stack(np.unravel_index(np.asarray(group), mesh.devices.shape))
    is_varying = (coordinates != coordinates[:, :1]).any(1)
    return tuple(name for name, varies in zip(mesh.axis_names, is_varying, strict=True) if varies)


def _first_group(instruction: Instruction, n_devices: int) -> list[int]:
    """Returns the device numbers of the first group of an instruction."""
    text = instruction.attributes
    pairs = re.search(r"source_target_pairs=\{\{(\d+),(\d+)\}", text)
    if pairs:
        return [int(pairs.group(1)), int(pairs.group(2))]
    start = text.find("replica_groups=")
    text = text[start + len("replica_groups=") :]
    if start < 0 or text.startswith("{}"):
        return list(range(n_devices))
    listed = re.match(r"\{\{([\d,]*)\}", text)
    if listed:
        return [int(number) for number in listed.group(1).split(",") if number]
    if text.startswith("mesh["):
        return _mesh_group(text)
    # "[groups, size]<=[reshaped]T(order)": a reshaped and transposed range.
    ((shape, device_range),) = re.findall(r"^\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", text)
    return _device_range(device_range).reshape(_integers(shape))[0].tolist()


def _mesh_group(text: str) -> list[int]:
    """Returns the first group of "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}"."""
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", text[: text.index("]")]))
    shape = [int(size) for size in sizes.values()]
    rest = text[text.index("]") + 1 :]
    ids = re.match(r",\s*device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?)\)", rest)
    numbers = _device_range(f"<={ids.group(1)}") if ids else np.arange(math.prod(shape))
    devices = numbers.reshape(shape)
    axes = re.findall(r"\{([^}]*)\}", rest)[0]
    index: list[Any] = [0] * len(shape)
    for name, before, size in re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", axes):
        axis = list(sizes).index(name)
        if not size:
            index[axis] = slice(None)
            continue
        # A part of an axis: after `before` outer entries, `size` entries.
        inner = shape[axis] // (int(before) * int(size))
        index[axis] = slice(0, int(size) * inner, inner)
    return devices[tuple(index)].ravel().tolist()


def _device_range(text: str) -> np.ndarray:
    """Returns the device numbers of "<=[2,4]T(1,0)": a range, reshaped and transposed."""
    ((shape, order),) = re.findall(r"^<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    numbers = np.arange(math.prod(_integers(shape))).reshape(_integers(shape))
    return numbers.transpose(_integers(order)).ravel() if order else numbers.ravel()


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
