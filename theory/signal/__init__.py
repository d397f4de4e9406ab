"""The signal of a transformer at initialisation.

`predict` and `measure` are the pair for the post-norm encoder of arXiv 2505.24333; both give a
`Signal`, the second from the encoder blocks of `jaxformer.models.encoder`. `propagate` and
`critical_alpha` are the cosines alone and the boundary of rank collapse; the equations are in
`propagation`.

For transformers as they are (pre-norm, causal, gated, ...) the pair is `recursion.forward` and
`backward.backward` beside `measurement.measure`, of an `architecture.Architecture`, which
`huggingface.read` makes of a config.json. These predictions need numpy
alone: names are imported when they are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from theory.signal.architecture import Architecture as Architecture
    from theory.signal.encoder import Signal as Signal, measure as measure, predict as predict
    from theory.signal.propagation import (
        LARGEST_ALPHA as LARGEST_ALPHA,
        OVERLAPS as OVERLAPS,
        Block as Block,
        FixedPoints as FixedPoints,
        block_map as block_map,
        critical_alpha as critical_alpha,
        effective_beta as effective_beta,
        effective_beta_paper as effective_beta_paper,
        fixed_points as fixed_points,
        overlap_pair as overlap_pair,
        propagate as propagate,
    )
    from theory.signal.recursion import Layers as Layers, forward as forward

_PLACES = {
    "architecture": ("Architecture",),
    "encoder": ("Signal", "measure", "predict"),
    "propagation": (
        "LARGEST_ALPHA",
        "OVERLAPS",
        "Block",
        "FixedPoints",
        "block_map",
        "critical_alpha",
        "effective_beta",
        "effective_beta_paper",
        "fixed_points",
        "overlap_pair",
        "propagate",
    ),
    "recursion": ("Layers", "forward"),
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"theory.signal.{place}"), name)
    if name in _PLACES:
        return importlib.import_module(f"theory.signal.{name}")
    raise AttributeError(f"module 'theory.signal' has no attribute {name!r}")
