"""The plan of a step on a target: its memory, operations, communication and shortest time."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from jaxformer.core.text_format import byte_size
from jaxformer.planning.collectives import Collective
from jaxformer.planning.operations import CLASSES
from jaxformer.planning.roofline import ClassTime
from jaxformer.planning.settings_to_try import Option, Saving
from jaxformer.planning.targets import parse_target


@dataclass(frozen=True)
class Plan:
    """The memory, operations, communication and shortest time of a step on a target.

    Bytes and seconds count one device, FLOPs all devices.
    """

    target: str
    mesh: dict[str, int]
    fits: bool
    capacity: int  # bytes that programs can use; 0 if unknown
    arguments: int = 0  # parameters, moments and batch
    temporary: int = 0
    peak: int = 0
    flops: float = 0.0
    traffic: float = 0.0  # bytes that a device reads and writes
    exchanges: tuple[Collective, ...] = ()
    seconds: dict[str, float] | None = None  # {"compute", "memory", "links"}: see roofline
    largest: tuple[tuple[int, str], ...] = ()  # (bytes, array)
    to_try: tuple[Option, ...] = ()  # settings that lower the peak
    classes: tuple[ClassTime, ...] = ()  # of an accelerator's operations
    savings: tuple[Saving, ...] = ()  # settings that avoid a part of the time, the largest first
    compile_seconds: float = 0.0

    @property
    def step_seconds(self) -> float:
        """The time of a step: a lower bound for an accelerator, an estimate for a CPU.

        A GPU takes at least the sum over its operations, beside which it may communicate. A TPU may
        compute, move memory and communicate at the same time. A CPU does one after the other.
        """
        if self.is_cpu or not self.seconds:
            return sum((self.seconds or {"compute": math.nan}).values())
        longest = max(self.seconds.values())
        if parse_target(self.target).platform == "tpu":
            return longest
        return max(longest, sum(part.bound for part in self.classes if part.kind != CLASSES[-1]))

    @property
    def forecast_seconds(self) -> float:
        """The time of a step at the rates that operations reach; NaN if nothing is known of them.

        The operations follow one another, and communication overlaps with the others or not: the
        forecast adds it.
        """
        return sum(part.forecast for part in self.classes) if self.classes else math.nan

    @property
    def is_cpu(self) -> bool:
        """Whether the target is this machine's CPU."""
        return self.target.startswith("cpu")

    @property
    def bound(self) -> str:
        """The resource that limits the step: compute, memory or links."""
        seconds = self.seconds or {"unknown": 0.0}
        return max(seconds, key=lambda name: seconds[name])

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self) | {
            "exchanges": [exchange._asdict() for exchange in self.exchanges],
            "to_try": [option._asdict() for option in self.to_try],
            "classes": [part._asdict() for part in self.classes],
            "savings": [saving._asdict() for saving in self.savings],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Plan":
        """Returns the plan that `as_json` wrote."""
        exchanges = (
            Collective(**(exchange | {"axes": tuple(exchange["axes"])}))
            for exchange in fields["exchanges"]
        )
        nested = {
            "exchanges": tuple(exchanges),
            "largest": tuple((size, name) for size, name in fields["largest"]),
            "to_try": tuple(Option(**option) for option in fields["to_try"]),
            "classes": tuple(ClassTime(**part) for part in fields.get("classes", ())),
            "savings": tuple(Saving(**saving) for saving in fields.get("savings", ())),
        }
        return cls(**(fields | nested))

    def __str__(self) -> str:
        mesh = " x ".join(f"{axis}={size}" for axis, size in self.mesh.items() if size > 1)
        lines = [f"{self.target}, mesh {mesh or 'of one device'}"]
        devices, used = parse_target(self.target).devices, math.prod(self.mesh.values())
        if used < devices:
            lines.append(
                f"{devices - used} of {devices} devices are idle: they do not divide the batch, or "
                "a size in config.devices is fixed"
            )
        of_capacity = f" of {byte_size(self.capacity)}" if self.capacity else ""
        if not self.fits:
            lines.append(f"does not fit: a device needs {byte_size(self.peak)}{of_capacity}")
        else:
            lines.append(
                f"memory of a device: {byte_size(self.peak)}{of_capacity} at its peak "
                f"({byte_size(self.arguments)} arguments, {byte_size(self.temporary)} temporary)"
            )
        if not self.fits or self.peak > self.capacity / 2:
            lines += [f"  {byte_size(size):>9}  {name}" for size, name in self.largest]
            lines += [f"  try {option}" for option in self.to_try]
        if self.seconds:
            lines.append(f"FLOPs a step: {self.flops:.3g}; a device moves {self.traffic:.3g} bytes")
            lines += [_exchange_line(exchange) for exchange in self.exchanges]
            if not self.exchanges:
                lines.append("communication: none")
            times = ", ".join(f"{name} {value:.3g} s" for name, value in self.seconds.items())
            how = "about" if self.is_cpu else "at least"
            lines.append(f"a step takes {how} {self.step_seconds:.3g} s ({self.bound}): {times}")
        if self.classes:
            lines.append(f"forecast: a step takes about {self.forecast_seconds:.3g} s")
            lines += [f"  {_class_line(part)}" for part in self.classes]
        if self.savings:
            lines.append(f"largest avoidable part: {self.savings[0]}")
        lines.append(f"compiled in {self.compile_seconds:.0f} s")
        return "\n".join(lines)


def _class_line(part: ClassTime) -> str:
    products = f", {part.flops:.3g} FLOPs" if part.flops else ""
    return (
        f"{part.kind:18} {1000 * part.forecast:8.2f} ms, at least {1000 * part.bound:.2f} ms: "
        f"{part.count} operations, {part.moved / 1e9:.1f} GB{products}"
    )


def _exchange_line(exchange: Collective) -> str:
    hosts = ", between hosts" if exchange.crosses_hosts else ""
    return (
        f"communication: {exchange.count} {exchange.kind} along {' and '.join(exchange.axes)}"
        f"{hosts}: arrays of {byte_size(exchange.array_bytes)}, a device sends "
        f"{byte_size(exchange.sent_bytes)}"
    )
