"""The time of a step, from the rates of an accelerator or a CPU.

    compute   FLOPs / peak rate        matrix products
    memory    bytes / bandwidth        reads and writes of device memory
    links     bytes / bandwidth        exchanges between devices

An accelerator takes at least the longest of the three, even if all of them overlap. A CPU takes
about their sum. `measured_cpu` divides the rates of a CPU evenly among its JAX devices, so each
device needs a core.
"""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from jaxformer.planning.cards import Card
from jaxformer.planning.collectives import Collective
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
