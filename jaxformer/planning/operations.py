"""The operations of a compiled program by class: their FLOPs, bytes and number.

A step is a sequence of operations, and each of them is limited by its products or by memory. So the
times of operations add up, while the FLOPs and the bytes of a whole step only give two bounds, of
which a step takes at least the longer one.

The scopes `head` and `optimizer` are names that the training step gives to these parts
(`jax.named_scope`), so that their operations are found in the program.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxformer.planning.collectives import KINDS as COLLECTIVES
from jaxformer.planning.hlo import FREE, Instruction, Program, moved_bytes

PRODUCTS, KERNEL, HEAD, WEIGHTS = "products", "attention kernel", "output head", "attention weights"
ELEMENTWISE, STACKING, COPIES = "elementwise", "stacking of a scan", "copies"
OPTIMIZER, COMMUNICATION = "optimizer", "communication"
CLASSES = (PRODUCTS, KERNEL, WEIGHTS, HEAD, ELEMENTWISE, STACKING, COPIES, OPTIMIZER, COMMUNICATION)
# Attention kernels: cuDNN's (fmha is fused multi-head attention) and the splash kernel of a TPU.
IS_KERNEL = re.compile(r"fmha|splash_")
BACKWARD_PRODUCTS = 2.5  # of an attention kernel, relative to the two of its forward pass
SLICES = ("dynamic-slice", "dynamic-update-slice")
MOVES = {"copy", "transpose", "convert", "slice", "concatenate", "copy-start", "copy-done"}
MOVES |= {"slice-start", "slice-done"}  # a TPU moves slices to and from its on-chip memory


class Operation(NamedTuple):
    """One instruction of a program, with what it costs each time it runs."""

    kind: str  # of CLASSES
    dtype: str  # of the factors of its products
    flops: float
    moved: float  # bytes read and written
    times: int
    name: str = ""  # the path of functions and scopes that it was traced in

    @property
    def is_recomputed(self) -> bool:
        """Whether remat computes it a second time."""
        return "rematted_computation" in self.name

    @property
    def is_half(self) -> bool:
        return self.dtype in ("bf16", "f16")


def operations(program: Program) -> list[Operation]:
    """The operations of a program that take time, without the inside of fusions."""
    return [
        operation
        for computation, instruction, times in program.executed()
        if instruction.opcode not in FREE
        for operation in [_operation(program, computation, instruction, times)]
        if operation.moved or operation.flops
    ]


def _operation(program: Program, computation: str, instruction: Instruction, times: int):
    scope = program.computations[computation]
    inner = list(_inner(program, scope, instruction))
    products = [(found, _factor(names, found)) for names, found in inner if _is_product(found)]
    flops = sum(product_flops(names, found) for names, found in inner)
    dtype = (
        products[0][1] if products else instruction.shapes[0].dtype if instruction.shapes else ""
    )
    return Operation(
        _kind(instruction, [found for _, found in inner], flops, times),
        dtype,
        flops,
        moved_bytes(program, scope, instruction),
        times,
        products[0][0].op_name if products else instruction.op_name,
    )


def _inner(
    program: Program, scope: dict[str, Instruction], instruction: Instruction
) -> Iterator[tuple[dict[str, Instruction], Instruction]]:
    """Yields an instruction, or those inside of a fusion, each with the names that it may use."""
    if instruction.opcode != "fusion":
        yield scope, instruction
        return
    for name in program.called(instruction):
        fused = program.computations.get(name, {})
        for found in fused.values():
            yield from _inner(program, fused, found)


def _kind(instruction: Instruction, inner: Sequence[Instruction], flops: float, times: int) -> str:
    opcode, name = instruction.opcode, instruction.op_name
    if opcode.removesuffix("-start").removesuffix("-done") in COLLECTIVES:
        return COMMUNICATION
    if _is_kernel(instruction):
        return KERNEL
    for scope, kind in (("head", HEAD), ("unembed", HEAD), ("optimizer", OPTIMIZER)):
        if re.search(rf"\b{scope}\b", name):
            return kind
    if re.search(r"\battention_weights\b", name):
        return WEIGHTS
    if flops:
        return PRODUCTS
    opcodes = {found.opcode for found in inner} - FREE
    # What a loop saves for its backward pass begins as zeros outside of the loop.
    is_fill = opcodes == {"broadcast"} and not instruction.operands
    if is_fill or (times > 1 and opcodes.intersection(SLICES)):
        return STACKING
    return COPIES if opcodes <= MOVES else ELEMENTWISE


# FLOPs --------------------------------------------------------------------------------------------


def _is_kernel(instruction: Instruction) -> bool:
    text = instruction.attribute("custom_call_target") + instruction.name
    return instruction.opcode == "custom-call" and bool(IS_KERNEL.search(text))


def _is_product(instruction: Instruction) -> bool:
    target = instruction.attribute("custom_call_target")
    return instruction.opcode in ("dot", "convolution") or "cublas" in target


def _factor(scope: dict[str, Instruction], product: Instruction) -> str:
    """The dtype of the first factor, or of the product if its factor has no line of its own."""
    shapes = scope[product.operands[0]].shapes if product.operands[0] in scope else product.shapes
    return shapes[0].dtype


def product_flops(scope: dict[str, Instruction], instruction: Instruction) -> float:
    """The FLOPs of a matrix product or an attention kernel, 0 for other instructions.

    Args:
        scope: the instructions of the same computation by name.
        instruction: a `dot`, a `convolution` (the products of a TPU), or a call of cuBLAS, cuDNN or
            the splash kernel.
    """
    factors = [scope[name].shapes[0].sizes for name in instruction.operands if name in scope]
    if _is_kernel(instruction):
        return _kernel_flops(instruction, factors)
    if not _is_product(instruction) or len(factors) < 2:
        return 0.0
    out = instruction.shapes[0].sizes
    if instruction.opcode == "convolution":
        return _convolution_flops(instruction, factors[0], factors[1], out)
    contracted = re.search(
        r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)', instruction.attributes
    )
    axes = re.findall(r"\d+", contracted.group(1)) if contracted else []
    return 2.0 * math.prod(out) * math.prod(factors[0][int(axis)] for axis in axes)


def _kernel_flops(instruction: Instruction, factors: Sequence[tuple[int, ...]]) -> float:
    """All T x S scores count, also the half that a causal kernel skips, as in model FLOPs."""
    name = instruction.name + instruction.attribute("custom_call_target")
    if "splash" in name:
        # A TPU's kernel has lists of blocks before the queries and scratch before its results,
        # which end with T and D. A batch of one has no axis.
        n_keys = max((x.sizes for x in instruction.shapes), key=len)[-2]
        forward = 4.0 * max(map(math.prod, factors)) * n_keys
        # It has two kernels for the backward pass.
        return forward * BACKWARD_PRODUCTS / 2 if re.search("_dq|_dkv", name) else forward
    queries, keys = factors[:2]
    # The arrays are (B, T, H, D) or (B, H, T, D): their sizes but B and D have the product H T.
    heads = set(queries[1:3]) & set(keys[1:3])
    n_keys = max(math.prod(keys[1:3]) // size for size in heads) if heads else max(keys[1:3])
    layout = re.search(r'"dimensions": \[([^\]]*)\]', instruction.attributes)
    if layout:  # cuDNN names the sizes of the scores: B, H, T, S
        n_keys = int(re.findall(r"\d+", layout.group(1))[-1])
    forward = 4.0 * math.prod(queries) * n_keys
    return forward * BACKWARD_PRODUCTS if re.search("bwd|Backward", name) else forward


def _convolution_flops(
    instruction: Instruction,
    x: tuple[int, ...],
    kernel: tuple[int, ...],
    out: tuple[int, ...],
) -> float:
    """The FLOPs of products with entries: a TPU's matrix products are convolutions with padding."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)
    if labels is None:
        return 0.0
    x_axes, kernel_axes, out_axes = labels.groups()
    products = out[out_axes.index("b")] * math.prod(
        size for size, axis in zip(kernel, kernel_axes, strict=True) if axis in "io"
    )
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", _window(instruction)))
    for number, axis in enumerate(sorted(set(out_axes) - {"b", "f"})):
        field = {name: values.split("x")[number] for name, values in window.items()}
        products *= _taps(
            x[x_axes.index(axis)], kernel[kernel_axes.index(axis)], out[out_axes.index(axis)], field
        )
    return 2.0 * products


def _window(instruction: Instruction) -> str:
    match = re.search(r"window=\{([^}]*)\}", instruction.attributes)
    return match.group(1) if match else ""


def _taps(n_in: int, n_kernel: int, n_out: int, field: dict[str, str]) -> int:
    """The pairs of an output and a kernel entry along one axis that meet an entry of the input."""
    stride, low = int(field.get("stride", 1)), int(field.get("pad", "0_0").split("_")[0])
    spread, step = int(field.get("lhs_dilate", 1)), int(field.get("rhs_dilate", 1))
    return sum(
        0 <= place <= (n_in - 1) * spread and place % spread == 0
        for out in range(n_out)
        for place in range(out * stride - low, out * stride - low + n_kernel * step, step)
    )
