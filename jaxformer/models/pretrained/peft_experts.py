"""Adapters of a mixture's experts, as peft reads them.

With transformers 5 peft joins the adapters of all experts of a block into one, and reads their rank
and scale from r and lora_alpha alone: a pattern for an expert has no effect, a missing expert does
not fit, and gate and in must both be there.
"""

from collections.abc import Mapping
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

EXPERT = "/mlp/expert_"  # in the paths of experts


def with_equal_experts(params: Mapping[str, Any]) -> dict[str, Any]:
    """Gives all experts of a block adapters of one rank and scale if one of them has an adapter.

    Missing and smaller ones are filled up with zeros, so the function of the model stays.
    """
    flat = dict(paths.flatten(params))
    adapted = [path for path in adapted_kernels(params) if EXPERT in path]
    blocks = {path.split("/")[0] for path in adapted}
    kernels = [
        path
        for path in flat
        if EXPERT in path and path.endswith(KERNEL) and path.split("/")[0] in blocks
    ]
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
