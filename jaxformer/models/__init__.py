"""Networks with functions `init` and `apply`, whose parameters are a nested dict.

Shape letters, the suffixes of array names such as `x_BxTxN`:

    B batch      T tokens      N width      H heads        D head width
    S keys       M hidden      V vocabulary L layers       K scored positions
    G key and value heads, fewer than H where queries share them

An axis of size 1 is written 1. Modules of a single paper explain further letters at their top.
"""

from jaxformer.runtime.command_line import require_package

# `python -m jaxformer.models.pretrained.tiny` prints a hint instead of a traceback.
require_package("jax")
