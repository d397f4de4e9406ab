"""The variants of a decoder: how it mixes tokens, and which of its parts stay random.

Each is a token mixer with the rules of a partition, of which the first that matches a parameter's
path decides. The papers' configs have the same table (`VARIANTS` in configs/common.py), because a
config must be readable without this library; a test compares the two.
"""

from typing import Any

import numpy as np

from jaxformer.models.decoder import decoder
from jaxformer.tasks.task import Task

VARIANTS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "standard": ("softmax", ((".*", "train"),)),
    "frozen_qk": ("softmax", ((".*/(query|key)/.*", "frozen"), (".*", "train"))),
    "frozen_mlp": ("softmax", ((".*/mlp/.*", "frozen"), (".*", "train"))),
    "mixit": ("mixit", ((".*/mix", "frozen"), (".*", "train"))),
    "random": ("softmax", (("(embed|unembed)/.*", "train"), (".*", "frozen"))),
    "random_mixit": ("mixit", (("(embed|unembed|positions)/.*", "train"), (".*", "frozen"))),
}
# Standard deviations at which frozen attention still tells tokens apart: the papers' .02 makes it
# uniform at width 64.
INITIAL = {"init_std": "fan_in", "qk_init_std": "fan_in", "embed_init_std": 1.0}

FLOAT32 = {"dtype": np.dtype("float32"), "param_dtype": np.dtype("float32")}  # also under x64


def variant_of_decoder(
    variant: str, task: Task, *, width: int, layers: int, heads: int, causal: bool = True
) -> Any:
    """The decoder of a variant for a task; `VARIANTS[variant]` has the rules that train it."""
    mixer, _ = VARIANTS[variant]
    sizes = {"width": width, "layers": layers, "heads": heads, "mlp_width": 4 * width}
    learned = mixer == "mixit"  # which has no rotary positions
    return decoder(
        **task.sizes,
        **sizes,
        **INITIAL,
        **FLOAT32,
        mixer=mixer,
        causal=causal,
        learned_positions=learned,
    )


def label(variant: str) -> str:
    """Returns the name of a variant for tables, such as "Frozen-QK" for "frozen_qk"."""
    spellings = {"qk": "QK", "mlp": "MLP", "mixit": "MixiT"}
    return "-".join(spellings.get(part, part.capitalize()) for part in variant.split("_"))
