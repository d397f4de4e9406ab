"""Signal propagation: how alike tokens are, layer by layer, in a transformer at initialisation.

Two theories, each with a measurement in random networks:

    the post-norm encoder of arXiv 2505.24333
        `predict` and `measure` return a `Signal`. `propagate` gives the cosines alone and
        `critical_alpha` the boundary of rank collapse. Equations: `encoder_block`.
    any transformer (pre-norm, causal, gated, ...), described by an `Architecture`
        `recursion.forward` and `backward.backward`; `measurement.measure` builds the network.
        `huggingface.read_config` makes an Architecture from a config.json. All of these
        except `measurement` need only NumPy.

Letters: T tokens, d width, L layers, rho cosine of two tokens, beta score scale, alpha_SA and
alpha_MLP residual weights, sV2, sw2, sb2 variances times fan-in, Y_q and Y_p the overlaps of
`theory.rem`. Suffixes of array names: K and J cells (groups) of positions, B betas, A alphas; as in
jaxformer, B batch, T tokens, N width, H heads, L layers. Names are imported on first use, so that a
command that needs NumPy alone does not import jax.
"""

from typing import TYPE_CHECKING

from jaxformer.core import lazy

if TYPE_CHECKING:
    from theory.signal.architecture import Architecture as Architecture
    from theory.signal.encoder import Signal as Signal, measure as measure, predict as predict
    from theory.signal.encoder_block import OVERLAPS as OVERLAPS
    from theory.signal.propagation import (
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

_MODULE_OF = {
    "Architecture": "architecture",
    **dict.fromkeys(("Signal", "measure", "predict"), "encoder"),
    "OVERLAPS": "encoder_block",
    # Block comes from `propagation`, which registers it as a jax pytree.
    **dict.fromkeys(("Block", "FixedPoints", "block_map", "critical_alpha"), "propagation"),
    **dict.fromkeys(("effective_beta", "effective_beta_paper"), "propagation"),
    **dict.fromkeys(("fixed_points", "overlap_pair", "propagate"), "propagation"),
    **dict.fromkeys(("Layers", "forward"), "recursion"),
}
__getattr__, __dir__ = lazy.names(
    __name__,
    {name: f"theory.signal.{module}:{name}" for name, module in _MODULE_OF.items()},
)
