"""The decoder of a variant for a task."""

from typing import Any

import numpy as np

from jaxformer.core.variants import VARIANTS
from jaxformer.models.decoder import decoder
from jaxformer.tasks.task import Task

FLOAT32 = {"dtype": np.dtype("float32"), "param_dtype": np.dtype("float32")}  # also under x64


def variant_of_decoder(
    variant: str, task: Task, *, width: int, layers: int, heads: int, causal: bool = True
) -> Any:
    """The decoder of a variant for a task; `VARIANTS[variant]` has the rules that train it."""
    mixer = VARIANTS[variant].mixer
    sizes = {"width": width, "layers": layers, "heads": heads, "mlp_width": 4 * width}
    learned = mixer == "mixit"  # which has no rotary positions
    return decoder(
        **task.sizes,
        **sizes,
        **FLOAT32,
        mixer=mixer,
        causal=causal,
        learned_positions=learned,
    )
