"""Equal blocks as one compiled body over their stacked parameters: a deep network compiles at once.

Addresses, initial bits, captures and results stay: the parameters are stacked inside the compiled
function only. docs/laboratory.md has what it costs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.models import activation_points


def scan_blocks(
    module: nn.Module,
    block: nn.Module,
    n_blocks: int,
    x_BxTxN: jax.Array,
    *more: Any,
    remat: dict[str, Any] | None = None,
) -> jax.Array:
    """block_0 to block_{n-1} of `module`, each called as block(x, *more); `block` has no parent.

    `remat`: what jax.checkpoint is told besides, if blocks are to be recomputed.
    """
    names = [f"block_{i}" for i in range(n_blocks)]
    capturing = module.is_mutable_collection("intermediates")

    def body(x_BxTxN, params) -> Any:
        if not capturing:
            return block.apply({"params": params}, x_BxTxN, *more), None
        x_BxTxN, seen = block.apply({"params": params}, x_BxTxN, *more, mutable=["intermediates"])
        return x_BxTxN, seen.get("intermediates")

    # A scan needs no barrier against merging the recomputation with the first pass.
    body = body if remat is None else jax.checkpoint(body, prevent_cse=False, **remat)
    blocks = [module.variables["params"][name] for name in names]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)
    with activation_points.scanned(names):
        x_BxTxN, seen = jax.lax.scan(body, x_BxTxN, stacked)
    for i, name in enumerate(names) if seen else ():
        mine = jax.tree.map(lambda stacked, i=i: stacked[i], seen)
        module.put_variable("intermediates", name, mine)
    return x_BxTxN
