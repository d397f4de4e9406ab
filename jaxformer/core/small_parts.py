"""Rules of a partition by name, for training a small part of a large model.

    jaxformer.train(task, model, small_parts.NORMS, params=params, steps=100)
    jaxformer.train(task, model, small_parts.lora(8), params=params, steps=100)

Try `lora(8)` first: it comes close to full fine-tuning in most cases, and its size is yours to
choose. NORMS and BITFIT are smaller still, and tell you whether new directions are needed at all.
`last_blocks` needs the least memory and time, because nothing below them is differentiated.

Scales as in (IA)^3 and prompt vectors need parameters that are neither there nor low-rank, so they
are no rules and are not offered.
"""

from collections.abc import Mapping
from typing import Any

from jaxformer.core.errors import UserError, check_range

Rules = tuple[tuple[str, str], ...]

REST: Rules = ((".*", "frozen"),)
BITFIT: Rules = ((".*/bias", "train"), *REST)  # BitFit: all biases, those of norms too
NORMS: Rules = ((r"(.*/)?\w*norm\w*/.*", "train"), *REST)  # gains and biases of all norms


def lora(rank: int, modules: str = "query|value", options: str = "") -> Rules:
    """Adapters of a rank on the kernels of some modules, and nothing else.

    Args:
        rank: the rank r.
        modules: names of modules in blocks, joined by "|". "query|value" is the choice of the LoRA
            paper; "query|key|value|out|gate|in|out" learns more from much data.
        options: further arguments of the label, such as "alpha=16, stabilised".
    """
    label = f"lora({rank}, {options})" if options else f"lora({rank})"
    return ((f"block_[0-9]+/.*/({modules})/kernel", label), *REST)


def last_blocks(params: Mapping[str, Any], k: int) -> Rules:
    """The last k blocks as a whole; a norm after them stays frozen.

    Args:
        params: the parameters of the model, or their shapes.
        k: the number of blocks.
    """
    numbers = sorted(int(name[6:]) for name in params if name.startswith("block_"))
    if not numbers:
        raise UserError("last_blocks needs a model with the modules block_0, block_1, ..")
    check_range("the number of last blocks", k, 1, len(numbers))
    chosen = "|".join(map(str, numbers[-k:]))
    return ((f"block_({chosen})/.*", "train"), *REST)
