"""A scan over equal blocks: one compiled body for all, so that deep networks compile quickly.

Addresses, initial values, captures and results stay the same, because parameters are stacked only
inside the compiled function. docs/laboratory.md has the costs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.core.errors import UserError
from jaxformer.models import activation_points


def scan_blocks(
    module: nn.Module,
    block: nn.Module,
    n_blocks: int,
    x_BxTxN: jax.Array,
    *more: Any,
    remat: dict[str, Any] | None = None,
) -> jax.Array:
    """Applies block_0 to block_{n-1} of `module`, each as block(x, *more).

    Args:
      module: the network, whose parameters have the blocks.
      block: a block without a parent module.
      n_blocks: the number n of blocks.
      x_BxTxN: the states before block_0.
      more: further arguments of every block.
      remat: further arguments of jax.checkpoint if blocks are recomputed, else None.

    Returns:
      The output of the last block, (B, T, N).
    """
    names = [f"block_{i}" for i in range(n_blocks)]
    capturing = module.is_mutable_collection("intermediates")

    def body(x_BxTxN, params) -> Any:
        if not capturing:
            return block.apply({"params": params}, x_BxTxN, *more), None
        x_BxTxN, sown = block.apply({"params": params}, x_BxTxN, *more, mutable=["intermediates"])
        return x_BxTxN, sown.get("intermediates")

    # prevent_cse=False: in a scan, XLA cannot merge the recomputation with the first pass.
    body = body if remat is None else jax.checkpoint(body, prevent_cse=False, **remat)
    blocks = [module.variables["params"][name] for name in names]
    if len({str(jax.tree.map(jnp.shape, block)) for block in blocks}) > 1:
        raise UserError(
            "scan=True needs blocks with the same parameters, and some blocks have adapters that "
            "others lack, or of another rank: give each block the same adapters, or build the "
            "model with scan=False."
        )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)
    with activation_points.in_scan(names):
        x_BxTxN, captured = jax.lax.scan(body, x_BxTxN, stacked)
    if captured:
        for i, name in enumerate(names):
            of_block = jax.tree.map(lambda activation, i=i: activation[i], captured)
            module.put_variable("intermediates", name, of_block)
    return x_BxTxN
