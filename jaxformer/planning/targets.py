"""Targets: machines that a program is compiled for, whether they are present or not.

    "v5e:4x4"   16 TPU v5e chips       "h100:8"     8 GPUs of one host
    "v5p:2x2x1" 4 TPU v5p chips        "h100:2x8"   2 hosts with 8 GPUs each
    "cpu:8"     8 devices of this machine's CPU

The compilers come with packages (libtpu, the CUDA plugin of JAX), so no accelerator is needed.
"""

import contextlib
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from jaxformer.core.errors import UserError, check_choice
from jaxformer.planning.cards import CARDS, Card

EXAMPLES = ("v5e:4x4", "v5p:2x2x1", "v6e:2x2", "h100:8", "h100:2x8", "h200:8", "a100:8", "cpu:8")
MAX_DEVICES = 512
CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
# libtpu otherwise searches for a metadata server, and refuses to be loaded by a second process.
TPU_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Target(NamedTuple):
    """A machine: the name of an accelerator, and the topology of its devices."""

    card: str  # a key of CARDS, or "cpu"
    sizes: tuple[int, ...]  # of the topology: (4, 4), (8,), or (hosts, devices of a host)

    @property
    def name(self) -> str:
        return f"{self.card}:{'x'.join(map(str, self.sizes))}"

    @property
    def devices(self) -> int:
        return math.prod(self.sizes)

    @property
    def platform(self) -> str:
        return CARDS[self.card].platform if self.card in CARDS else "cpu"

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that a process of this target needs at its start."""
        variables = {"JAX_PLATFORMS": "cpu"}
        if self.platform == "cpu":
            return variables | {"JAX_NUM_CPU_DEVICES": str(self.devices)}
        if self.platform == "tpu":
            accelerator = CARDS[self.card].compiler["accelerator"]
            return variables | TPU_VARIABLES | {"TPU_ACCELERATOR_TYPE": accelerator}
        return variables


def parse_targets(text: str) -> list[Target]:
    """Returns the targets of a list such as "v5e:4x4,h100:8"."""
    return [parse_target(name) for name in text.split(",")]


def parse_target(text: str) -> Target:
    """Returns the target with a name such as "v5e:4x4"."""
    card, _, topology = text.strip().lower().partition(":")
    check_choice("target", card, (*CARDS, "cpu"))
    match = re.fullmatch(r"\d{1,4}(x\d{1,4}){0,2}", topology)
    sizes = tuple(int(size) for size in topology.split("x")) if match else ()
    if not sizes or not 1 <= math.prod(sizes) <= MAX_DEVICES:
        raise UserError(
            f"a target is CARD:TOPOLOGY with at most {MAX_DEVICES} devices, got {text!r}; "
            f"examples: {', '.join(EXAMPLES)}."
        )
    target = Target(card, sizes)
    dimensions = {"tpu": (2, 3), "cuda": (1, 2), "cpu": (1,)}[target.platform]
    if card in ("v5e", "v6e"):
        dimensions = (2,)
    if card == "v5p":
        dimensions = (3,)
    if len(sizes) not in dimensions:
        examples = [name for name in EXAMPLES if name.startswith(f"{card}:")]
        raise UserError(
            f"the topology of {card} has {' or '.join(map(str, dimensions))} sizes, got {text!r}; "
            f"for example {', '.join(examples)}."
        )
    return target


def devices_of(target: Target) -> Sequence[Any]:
    """Returns the devices of a target, which may be absent from this machine.

    Raises:
        UserError: the compiler of the target is not installed, or refuses the topology.
    """
    if target.platform == "cpu":
        return _cpu_devices(target)
    check_compiler(target)
    for name, value in target.environment().items():
        os.environ.setdefault(name, value)
    card = CARDS[target.card]
    try:
        return _topology(target, card).devices
    except Exception as error:  # the compilers raise JaxRuntimeError, ValueError, KeyError
        reason = str(error).splitlines()[0][:200]
        hint = ""
        # JAX looks for a driver, and may find none.
        if getattr(jax.config, "jax_platforms", None) != "cpu":
            hint = "; without that accelerator here, set JAX_PLATFORMS=cpu before Python starts"
        raise UserError(f"the compiler refuses the target {target.name}: {reason}{hint}") from None


def _topology(target: Target, card: Card) -> Any:
    if target.platform == "cuda":
        hosts, per_host = target.sizes if len(target.sizes) == 2 else (1, *target.sizes)
        return topologies.get_topology_desc(
            platform="cuda",
            target_config=card.compiler["config"],
            topology=f"1x{hosts}x{per_host}",
        )
    shape = "x".join(map(str, target.sizes))
    options: dict[str, Any] = {}
    if target.devices == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    return topologies.get_topology_desc(
        platform="tpu", topology_name=f"{card.compiler['generation']}:{shape}", **options
    )


def check_compiler(target: Target) -> None:
    """Raises UserError unless the package with the compiler of the target is installed."""
    if target.platform == "tpu" and importlib.util.find_spec("libtpu") is None:
        raise UserError(
            f"{target.name} needs the compiler for TPUs: pip install 'jaxformer[tpu]'. No TPU is "
            "needed."
        )
    if target.platform == "cuda" and not any(map(importlib.util.find_spec, CUDA_PLUGINS)):
        raise UserError(
            f"{target.name} needs the compiler for NVIDIA GPUs: pip install "
            "'jaxformer[compile-cuda]'. No GPU is needed."
        )


def _cpu_devices(target: Target) -> Sequence[Any]:
    with contextlib.suppress(RuntimeError):  # raised after the first use of a device
        jax.config.update("jax_num_cpu_devices", target.devices)
    devices = jax.devices("cpu")
    if len(devices) < target.devices:
        raise UserError(
            f"{target.name} needs {target.devices} CPU devices, and this process has "
            f"{len(devices)}: set JAX_NUM_CPU_DEVICES={target.devices} before Python starts."
        )
    return devices[: target.devices]
