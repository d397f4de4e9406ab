"""A reader of compiled programs: XLA's text of instructions, with the repeats of loops.

XLA's own counts visit the body of a loop once, and are empty for NVIDIA GPUs. This reader
multiplies each instruction by the number of times it runs.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# {dtype: bytes of an entry}
BYTES = {"pred": 1, "s4": 1, "u4": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2}
BYTES |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}
# Instructions that move no data. The computations that they call are counted separately.
FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"),
    *("call", "after-all", "partition-id", "replica-id", "iota", "opt-barrier", "async-start"),
    *("async-update", "async-done", "bitcast-convert", "reshape"),
}
# {instruction that changes a part of an array: the number of the operand with the new part}
UPDATE_OPERAND = {"dynamic-update-slice": 1, "scatter": 2}
SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?")
OPERAND = re.compile(r"%([\w.\-]+)")
CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations|called_computations)=\{?([^}\s]*)")
TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Shape(NamedTuple):
    """An array of a program."""

    dtype: str
    sizes: tuple[int, ...]
    is_on_chip: bool  # in the scratch memory of a TPU

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * BYTES.get(self.dtype, 1)


@dataclass(frozen=True)
class Instruction:
    """A line of a compiled program."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]  # its results
    operands: tuple[str, ...]
    attributes: str

    @property
    def bytes(self) -> int:
        return sum(shape.bytes for shape in self.shapes)

    def attribute(self, name: str) -> str:
        match = re.search(rf"\b{name}=([^,\s]+)", self.attributes)
        return match.group(1) if match else ""

    @property
    def op_name(self) -> str:
        """The path of functions and scopes that the instruction was traced in."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match.group(1) if match else ""

    @property
    def source(self) -> str:
        """The function of the model that the instruction belongs to."""
        parts = self.op_name.split("/")
        return "/".join(part for part in parts if "(" not in part and part != "while")


@dataclass
class Program:
    """The computations of a compiled program."""

    entry: str = ""
    computations: dict[str, dict[str, Instruction]] = field(default_factory=dict)

    def executed(self) -> Iterator[tuple[str, Instruction, int]]:
        """Yields (computation, instruction, times it runs), without the inside of fusions."""
        pending = [(self.entry, 1)]
        while pending:
            computation, times = pending.pop()
            for instruction in self.computations.get(computation, {}).values():
                yield computation, instruction, times
                if instruction.opcode == "while":
                    count = self._trip_count(instruction)
                    pending.append((instruction.attribute("body").lstrip("%"), times * count))
                elif instruction.opcode in ("call", "async-start", "conditional"):
                    pending += [(name, times) for name in self.called(instruction)]

    def called(self, instruction: Instruction) -> list[str]:
        """Returns the computations that an instruction calls."""
        match = CALLED.search(instruction.attributes)
        return [name.strip(" %") for name in match.group(1).split(",")] if match else []

    def _trip_count(self, loop: Instruction) -> int:
        match = TRIP_COUNT.search(loop.attributes)
        if match:
            return int(match.group(1))
        # Without the annotation, the bound is the constant that the condition compares with.
        condition = self.computations.get(loop.attribute("condition").lstrip("%"), {})
        for instruction in condition.values():
            if instruction.opcode == "compare" and "direction=LT" in instruction.attributes:
                for operand in map(condition.get, instruction.operands):
                    if operand is not None and operand.opcode == "constant":
                        bound = re.match(r"(\d+)\)", operand.attributes)
                        return int(bound.group(1)) if bound else 1
        return 1


def parse(text: str) -> Program:
    """Returns the computations in the text of a compiled program (`compiled.as_text()`)."""
    program, current = Program(), {}
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            name = line.removeprefix("ENTRY ").split(" ", 1)[0].lstrip("%")
            current = program.computations.setdefault(name, {})
            if line.startswith("ENTRY "):
                program.entry = name
        elif " = " in line and line.startswith(" "):
            instruction = _parse_instruction(line.strip())
            if instruction is not None:
                current[instruction.name] = instruction
    return program


def _parse_instruction(line: str) -> Instruction | None:
    """Parses "name = type opcode(arguments), attributes"; returns None for other lines."""
    name, _, rest = line.removeprefix("ROOT ").partition(" = ")
    end = _end_of_type(rest)
    match = re.match(r"\s*([\w\-]+)\(", rest[end:])
    if match is None:
        return None
    arguments = rest[end + match.end() :]
    close = _closing_index(arguments)
    return Instruction(
        name.lstrip("%"),
        match.group(1),
        tuple(_parse_shapes(rest[:end])),
        tuple(OPERAND.findall(arguments[:close])),
        # The argument of a constant or a parameter is its value or number.
        arguments if match.group(1) in ("constant", "parameter") else arguments[close:],
    )


def _end_of_type(text: str) -> int:
    """Returns where the type at the start of a text ends."""
    if not text.startswith("("):
        return text.find(" ")
    return _closing_index(text[1:]) + 2


def _closing_index(text: str) -> int:
    """Returns the index of the ")" that closes a "(" just before the text."""
    depth = 1
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return index
    return len(text)


def _parse_shapes(text: str) -> Iterator[Shape]:
    for dtype, sizes, layout in SHAPE.findall(text):
        is_on_chip = "S(1)" in layout  # memory space 1
        yield Shape(dtype, tuple(int(n) for n in sizes.split(",") if n), is_on_chip)


# Memory traffic -----------------------------------------------------------------------------------


def traffic(program: Program) -> float:
    """Returns the bytes that a device reads from and writes to its memory."""
    return sum(
        times * moved_bytes(program, program.computations[computation], instruction)
        for computation, instruction, times in program.executed()
    )


def moved_bytes(program: Program, scope: dict[str, Instruction], instruction: Instruction) -> float:
    """Returns the bytes that one instruction reads and writes.

    Args:
        program: the program.
        scope: the instructions of its computation by name.
        instruction: one of them.
    """
    opcode = instruction.opcode
    if opcode in FREE:
        return 0
    operands = [scope[name] for name in instruction.operands if name in scope]
    written = _memory_bytes(instruction)
    # An asynchronous instruction reads at its start and writes when it is done.
    if opcode == "slice-start":  # its type has the whole array, then the slice
        return instruction.shapes[1].bytes if sum(map(_memory_bytes, operands)) else 0
    if opcode.endswith("-start"):
        return sum(map(_memory_bytes, operands))
    if opcode.endswith("-done"):
        return written
    # Slices read and write the slice only, not the whole array.
    if opcode in ("dynamic-slice", "gather", "slice"):
        return 2 * written
    if opcode in UPDATE_OPERAND:
        number = UPDATE_OPERAND[opcode]
        return 2 * sum(map(_memory_bytes, operands[number : number + 1]))
    if opcode != "fusion":
        return written + sum(map(_memory_bytes, operands))
    called = program.called(instruction)
    fused = program.computations.get(called[0], {}) if called else {}
    read = sum(
        min(_memory_bytes(operand), _parameter_bytes(fused, i))
        for i, operand in enumerate(operands)
    )
    updates = [
        fused[update.operands[1]].bytes
        for update in fused.values()
        if update.opcode == "dynamic-update-slice" and update.operands[1] in fused
    ]
    # A fusion that updates slices of a large array writes the slices only.
    return read + (min(written, sum(updates)) if updates else written)


def _parameter_bytes(fused: dict[str, Instruction], number: int) -> float:
    """Returns the bytes that a fusion reads of one of its parameters.

    Args:
        fused: the instructions of the fusion by name.
        number: the number of the parameter.
    """
    parameters = [x for x in fused.values() if x.opcode == "parameter"]
    names = {x.name for x in parameters if x.attributes.startswith(f"{number})")}
    # A conversion of the parameter is computed only where it is read.
    for x in fused.values():
        if x.opcode in ("convert", "bitcast") and names.intersection(x.operands):
            names.add(x.name)
    uses = [x for x in fused.values() if names.intersection(x.operands) and x.name not in names]
    slices = [x for x in uses if x.opcode in ("dynamic-slice", "gather", "slice")]
    updates = [x for x in uses if x.opcode == "dynamic-update-slice" and x.operands[0] in names]
    # A slice reads a part of the parameter. An update writes to it without reading it.
    if uses and len(slices) + len(updates) == len(uses):
        return sum(x.bytes for x in slices)
    return math.inf  # the whole parameter


def _memory_bytes(instruction: Instruction) -> int:
    """Returns the bytes of an instruction's results in device memory, without on-chip memory."""
    shapes = instruction.shapes
    if instruction.opcode == "custom-call":  # leaves out s8, the workspace of a library
        shapes = shapes[:1] + tuple(shape for shape in shapes[1:] if shape.dtype != "s8")
    return sum(shape.bytes for shape in shapes if not shape.is_on_chip)
