"""Adapters of a mixture's experts and routers, as peft reads them.

With transformers 5 the experts of a block are one parameter and its router is another one, so that
peft (0.21) joins the adapters of all experts of a block. It reads the rank and the scale of both
kinds from r and lora_alpha alone: a pattern for one of them has no effect, a missing expert does
not fit, and gate and in must both be there. It does this for some families only. In others it has
no adapter of an expert or a router: it drops them in silence, or raises.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from jaxformer.core import paths
from jaxformer.core.adapters import (
    KERNEL,
    LEAVES,
    LORA_A,
    LORA_B,
    LORA_SCALE,
    adapted_kernels,
    beside,
    with_equal_shapes,
)
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.spec import PretrainedSpec

EXPERT, ROUTER = "/mlp/expert_", "/mlp/router/"  # in the paths of kernels
JOINING_FAMILIES = ("mixtral", "olmoe", "qwen3_moe")  # whose experts and routers peft reads
DENSE = tuple(f"/mlp/{name}/{KERNEL}" for name in ("gate", "in", "out"))


def is_joined(kernel: str) -> bool:
    """Whether peft reads the rank and scale of a kernel's adapter from r and lora_alpha alone."""
    return EXPERT in kernel or ROUTER in kernel


def check_peft_reads(spec: PretrainedSpec, adapted: Iterable[str]) -> None:
    """Raises UserError if a model has experts, and peft would not read one of its adapters."""
    if not spec.experts:
        return
    for kernel in adapted:
        if spec.family in JOINING_FAMILIES:
            # In a block without experts peft takes these maps for those of experts.
            is_read = not kernel.endswith(DENSE)
        else:
            is_read = not is_joined(kernel)
        if not is_read:
            raise UserError(
                f"peft reads no adapter of {kernel} of a {spec.family} model: merge it "
                "(jaxformer.adapters.merge) and write the model by save_folder."
            )


def with_joined_adapters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the adapters of experts and routers one rank and scale.

    All experts of a block get an adapter if one of them has one. Missing and smaller ones are
    filled up with zeros, so the function of the model stays.
    """
    flat = dict(paths.flatten(params))
    adapted = [path for path in adapted_kernels(params) if is_joined(path)]
    blocks = {path.split("/")[0] for path in adapted if EXPERT in path}
    experts = [
        path
        for path in flat
        if EXPERT in path and path.endswith(KERNEL) and path.split("/")[0] in blocks
    ]
    kernels = [*experts, *(path for path in adapted if ROUTER in path)]
    addresses = [{leaf: beside(kernel, leaf) for leaf in (KERNEL, *LEAVES)} for kernel in kernels]
    modules = with_equal_shapes(
        [{leaf: flat[x] for leaf, x in module.items() if x in flat} for module in addresses]
    )
    for kernel, module in zip(kernels, modules, strict=True):
        scale = flat[beside(adapted[0], LORA_SCALE)]
        flat[beside(kernel, LORA_A)] = module[LORA_A]
        flat[beside(kernel, LORA_B)] = module[LORA_B] * (module[LORA_SCALE] / scale)
        flat[beside(kernel, LORA_SCALE)] = scale
    return paths.unflatten(flat)
