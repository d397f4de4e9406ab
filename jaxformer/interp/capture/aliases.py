"""Names of TransformerLens' hooks as aliases of activation addresses.

"blocks.3.attn.hook_pattern"    block_3/attn/weights
"pattern", "hook_pattern"       attention weights of all blocks
"""

import re

from jaxformer.core.errors import UserError

# {hook without "hook_": (its module in TransformerLens, our address in a block)}
BLOCK_HOOKS = {
    "resid_pre": ("", "before"),
    "resid_mid": ("", "between"),
    "resid_post": ("", "states"),
    "attn_out": ("", "attn/output"),
    "mlp_out": ("", "mlp/output"),
    "q": ("attn.", "attn/queries"),
    "k": ("attn.", "attn/keys"),
    "v": ("attn.", "attn/values"),
    "rot_q": ("attn.", "attn/turned_queries"),
    "rot_k": ("attn.", "attn/turned_keys"),
    "attn_scores": ("attn.", "attn/masked_scores"),
    "pattern": ("attn.", "attn/weights"),
    "z": ("attn.", "attn/heads"),
    "pre": ("mlp.", "mlp/preactivation"),
    "pre_linear": ("mlp.", "mlp/linear"),
    "post": ("mlp.", "mlp/hidden"),
}
# Hooks outside of blocks.
MODEL_HOOKS = {"embed": "token_embeddings", "pos_embed": "position_embeddings"}
FULL_NAMES = {
    f"{module}hook_{hook}": address for hook, (module, address) in BLOCK_HOOKS.items()
} | {"ln1.hook_normalized": "attn_norm/output", "ln2.hook_normalized": "mlp_norm/output"}
# Hooks whose values have no address, and how to compute them.
WITHOUT_ADDRESS = {
    "result": "multiply block_i/attn/heads by the head's rows of block_i/attn/out/kernel",
    "scale": "take 1 / block_i/attn_norm/factor",
}


def resolve(name: str) -> str:
    """Returns the pattern of addresses that a hook of TransformerLens stands for.

    Args:
        name: a full name ("blocks.3.attn.hook_pattern"), a short name for all blocks ("pattern",
            "hook_pattern"), or an address or pattern of jaxformer, which is returned as it is.

    Raises:
        UserError: for a hook whose values have no address.
    """
    full = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if full is not None and full[2] in FULL_NAMES:
        return f"block_{full[1]}/{FULL_NAMES[full[2]]}"
    if name == "ln_final.hook_normalized":
        return "final_norm/output"
    hook = name.rpartition(".")[2].removeprefix("hook_")
    if hook in WITHOUT_ADDRESS and (full is not None or "." not in name):
        raise UserError(f"{name!r} has no address in jaxformer: {WITHOUT_ADDRESS[hook]}.")
    if "." in name:
        return name
    if hook in MODEL_HOOKS:
        return MODEL_HOOKS[hook]
    return rf"block_\d+/{BLOCK_HOOKS[hook][1]}" if hook in BLOCK_HOOKS else name
