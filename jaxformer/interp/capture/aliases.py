"""Names of TransformerLens' hooks as aliases of activation addresses.

"blocks.3.attn.hook_pattern"    block_3/attn/weights
"pattern", "hook_pattern"       attention weights of all blocks
"""

import re

from jaxformer.core.errors import UserError

# {hook without "hook_": (its module in TransformerLens, address in a block of jaxformer)}
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
# {hook outside of blocks: address}
MODEL_HOOKS = {"embed": "token_embeddings", "pos_embed": "position_embeddings"}
# {name of a hook after "blocks.3.": address in a block}
FULL_NAMES = {
    f"{module}hook_{hook}": address for hook, (module, address) in BLOCK_HOOKS.items()
} | {"ln1.hook_normalized": "attn_norm/output", "ln2.hook_normalized": "mlp_norm/output"}
# {hook whose values have no address: how to compute them}
WITHOUT_ADDRESS = {
    "result": "multiply block_i/attn/heads by the head's rows of block_i/attn/out/kernel",
    "scale": "take 1 / block_i/attn_norm/factor",
}


def resolve(name: str) -> str:
    """Returns the pattern of addresses that a name of a TransformerLens hook stands for.

    Args:
        name: a full name ("blocks.3.attn.hook_pattern"), a short name for all blocks ("pattern",
            "hook_pattern"), or an address or pattern of jaxformer, which is returned as it is.

    Raises:
        UserError: for a hook whose values have no address.
    """
    in_block = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if in_block is not None and in_block[2] in FULL_NAMES:
        return f"block_{in_block[1]}/{FULL_NAMES[in_block[2]]}"
    if name == "ln_final.hook_normalized":
        return "final_norm/output"
    hook = name.rpartition(".")[2].removeprefix("hook_")
    if hook in WITHOUT_ADDRESS and (in_block is not None or "." not in name):
        raise UserError(f"{name!r} has no address in jaxformer: {WITHOUT_ADDRESS[hook]}.")
    if "." in name:
        return name
    if hook in MODEL_HOOKS:
        return MODEL_HOOKS[hook]
    return rf"block_\d+/{BLOCK_HOOKS[hook][1]}" if hook in BLOCK_HOOKS else name
