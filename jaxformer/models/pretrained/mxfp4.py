"""MXFP4, the 4-bit format of gpt-oss' experts: blocks of 32 numbers with one scale.

A number is v 2^(s - 127). v is one of sixteen values in four bits (a sign, two bits of exponent
and one of mantissa), and s is a byte that a block shares. bfloat16 holds every such number exactly.
On disk a tensor (experts, inputs, outputs) is two: NAME_blocks, (experts, outputs, blocks, 16)
bytes of two values each, the low four bits first, and NAME_scales, (experts, outputs, blocks).
"""

from collections.abc import Iterable

import numpy as np

POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = np.array([*POSITIVE, *(-x for x in POSITIVE)], np.float32)
BIAS = 127  # of the exponents


def parts(name: str) -> tuple[str, str]:
    """The names on disk of the two parts of a tensor."""
    return f"{name}_blocks", f"{name}_scales"


def joined_names(names: Iterable[str]) -> set[str]:
    """The names of tensors, where both parts of a tensor are replaced by its name."""
    names = set(names)
    whole = {name.removesuffix("_blocks") for name in names if name.endswith("_blocks")}
    whole = {name for name in whole if names.issuperset(parts(name))}
    return names - {part for name in whole for part in parts(name)} | whole


def dequantised(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The tensor (experts, inputs, outputs) in float32; one expert is converted at a time.

    Raises:
        ValueError: the parts do not fit each other.
    """
    if blocks.ndim != 4 or blocks.shape[:-1] != scales.shape:
        raise ValueError(f"MXFP4 blocks {blocks.shape} and scales {scales.shape} do not fit")
    experts, outputs = blocks.shape[:2]
    tensor = np.empty((experts, outputs, 2 * blocks[0, 0].size), np.float32)
    for expert, block, scale in zip(tensor, blocks, scales):
        values = VALUES[np.stack([block & 15, block >> 4], axis=-1)].reshape(*scale.shape, -1)
        exponents = scale[..., None].astype(np.int32) - BIAS
        expert[:] = np.ldexp(values, exponents).reshape(expert.shape)
    return tensor.swapaxes(1, 2)
