"""Looking inside and changing what is inside, by address: {"block_1/attn/weights": array}.

    names(model)                                                 every address (models/points.py)
    capture(model, params, tokens, names=["block_1/attn/heads"]) what is there
    intervene(model, params, tokens, {"block_1/mlp/output": 0})  logits with something else there
    patch(model, params, clean, corrupted, patterns, metric)     what each activation carries

Patterns are those of `paths`. All functions are pure; they work inside jit, grad and vmap.
"""

from jaxformer.interp.capture.edits import at, mean, resample, zero
from jaxformer.interp.capture.patching import attribute, patch, path_patch
from jaxformer.interp.capture.running import (
    capture,
    intervene,
    names,
    run,
    shapes,
    start_at,
    stop_after,
)

__all__ = [
    "at",
    "attribute",
    "capture",
    "intervene",
    "mean",
    "names",
    "patch",
    "path_patch",
    "resample",
    "run",
    "shapes",
    "start_at",
    "stop_after",
    "zero",
]
