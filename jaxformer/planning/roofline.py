"""The time of a step, from the rates of an accelerator or a CPU.

    compute   FLOPs / peak rate        matrix products
    memory    bytes / bandwidth        reads and writes of device memory
    links     bytes / bandwidth        exchanges between devices

An accelerator takes at least the longest of the three, even if all of them overlap. A GPU computes
one operation after the other, so the sum over its operations is a closer bound (`class_times`):
each takes at least the longer of its products and its traffic. A CPU takes about the sum of the
three. `measured_cpu` divides the rates of a CPU evenly among its JAX devices, so each of them needs
a core.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.planning.cards import Card
from jaxformer.planning.collectives import Collective
from jaxformer.planning.operations import CLASSES, COMMUNICATION, Operation
from jaxformer.training.cost.flops import best_seconds, matmul_rate
from jaxformer.training.cost.memory import free_host_memory

STREAM_ELEMENTS = 2**24  # arrays of 64 MiB in float32, larger than most caches


def seconds(
    card: Card, flops: Mapping[str, float], traffic: float, exchanges: Iterable[Collective]
) -> dict[str, float]:
    """Returns {"compute", "memory", "links"}: the seconds that a step of one device takes.

    Args:
      card: the accelerator.
      flops: {dtype: FLOPs of the matrix products of one device}.
      traffic: bytes that the device reads and writes.
      exchanges: the communication of the step.
    """
    compute = sum(count / card.rate(dtype) for dtype, count in flops.items())
    links = sum(
        c.sent_bytes / (card.network_bandwidth if c.crosses_hosts else card.link_bandwidth)
        for c in exchanges
    )
    return {"compute": compute, "memory": traffic / card.memory_bandwidth, "links": links}


class ClassTime(NamedTuple):
    """The operations of one class in a step of one device, and the seconds that they take."""

    kind: str  # of operations.CLASSES
    bound: float  # seconds at the rates of the data sheet
    forecast: float  # seconds at the rates that such operations reach
    flops: float
    moved: float  # bytes
    count: int


def class_times(
    card: Card, steps: Iterable[Operation], links: float = 0.0
) -> tuple[ClassTime, ...]:
    """The time of each class of operations, without the classes that a step lacks.

    Args:
        card: the accelerator.
        steps: the operations of a step.
        links: the seconds of communication, which is a class of its own.
    """
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for step in steps:
        if step.kind == COMMUNICATION:
            continue
        numbers = (
            _operation_seconds(card, step, 1.0, 1.0, 0.0),
            _operation_seconds(card, step, *card.reached(step.is_half)),
            step.flops,
            step.moved,
            1,
        )
        total = totals[step.kind]
        totals[step.kind] = [a + step.times * b for a, b in zip(total, numbers, strict=True)]
    if links:
        totals[COMMUNICATION] = [links, links, 0.0, 0.0, 0]
    return tuple(
        ClassTime(kind, *totals[kind][:4], count=int(totals[kind][4]))
        for kind in CLASSES
        if kind in totals
    )


def _operation_seconds(
    card: Card, step: Operation, product_share: float, memory_share: float, launch: float
) -> float:
    rate = card.bfloat16_rate if step.is_half else card.float32_rate
    products = step.flops / (product_share * rate)
    return max(products, step.moved / (memory_share * card.memory_bandwidth)) + launch


def measured_cpu(n_devices: int) -> Card:
    """Returns the card of this machine's CPU, measured for a second and divided among devices."""
    bandwidth = stream_bandwidth() / n_devices
    return Card(
        name="cpu",
        platform="cpu",
        memory=(free_host_memory() or 0) // n_devices,
        bfloat16_rate=matmul_rate(jnp.bfloat16) / n_devices,
        float32_rate=matmul_rate(jnp.float32) / n_devices,
        memory_bandwidth=bandwidth,
        link_bandwidth=bandwidth / 2,  # a copy reads and writes
        source="measured",
    )


def stream_bandwidth() -> float:
    """Returns the bytes per second that this machine reads and writes in a + 2 b."""
    a, b = jnp.ones(STREAM_ELEMENTS), jnp.ones(STREAM_ELEMENTS)
    add = jax.jit(lambda a, b: a + 2 * b)
    return 3 * a.nbytes / best_seconds(add, a, b)
