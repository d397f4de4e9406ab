"""Reads and changes activations by address, such as "block_1/attn/weights".

    names(model)                                                  every address
    capture(model, params, tokens, names=["block_1/attn/heads"])  {address: activation}
    intervene(model, params, tokens, {"block_1/mlp/output": 0})   logits with other activations
    patch(model, params, clean, corrupted, patterns, metric)      the effect of each activation
    ablate(model, params, prompts, parts, metric)                 the metric without each part

`jaxformer.models.activation_points` lists the addresses. Patterns are regular expressions
(`jaxformer.core.paths`). Names of TransformerLens' hooks are accepted as aliases. All functions are
pure and work inside jit, grad and vmap. Results are in the order of computation. A jitted function
returns dicts with sorted keys (block_10 before block_2); `in_order` restores the order.

Shape letters: see `jaxformer.interp`.
"""

from jaxformer.interp.capture.edits import at, mean, plus, resample, zero
from jaxformer.interp.capture.patching import ablate, attribute, gradients, patch, path_patch
from jaxformer.interp.capture.running import (
    capture,
    intervene,
    names,
    run,
    shapes,
    start_at,
    stop_after,
)
from jaxformer.interp.capture.show import show
from jaxformer.interp.capture.store import iterate_stored, load_stored, store
from jaxformer.models.activation_points import in_order

__all__ = [
    "ablate",
    "at",
    "attribute",
    "capture",
    "gradients",
    "in_order",
    "intervene",
    "iterate_stored",
    "load_stored",
    "mean",
    "names",
    "patch",
    "path_patch",
    "plus",
    "resample",
    "run",
    "shapes",
    "show",
    "start_at",
    "stop_after",
    "store",
    "zero",
]
