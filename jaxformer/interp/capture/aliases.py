"""Names of TransformerLens' hooks as aliases of activation addresses.

"blocks.3.attn.hook_pattern"    block_3/attn/weights
"pattern", "hook_pattern"       attention weights of all blocks

"attn_out" and "mlp_out" are what a branch adds to the residual stream. In models that norm a branch
after its output (OLMo 2, Gemma 2 and 3) that is the output of the norm, as in TransformerLens.
"""

import re
from typing import Any

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
# {hook: its address in blocks that norm what a branch adds to the stream}
NORMED_BRANCHES = {"attn_out": "attn_output_norm/output", "mlp_out": "mlp_output_norm/output"}
NORMS_OF_OUTPUTS = ("output", "both")  # values of `PretrainedSpec.norm_at`
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


def resolve(name: str, model: Any) -> str:
    """Returns the pattern of addresses that a name of a TransformerLens hook stands for.

    Args:
        model: the model that the address belongs to, since "attn_out" and "mlp_out" depend on it.
        name: a full name ("blocks.3.attn.hook_pattern"), a short name for all blocks ("pattern",
            "hook_pattern"), or an address or pattern of jaxformer, which is returned as it is.

    Raises:
        UserError: for a hook whose values have no address.
    """
    in_block = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    block_hooks = {hook: address for hook, (_, address) in BLOCK_HOOKS.items()}
    full_names = dict(FULL_NAMES)
    if getattr(getattr(model, "spec", None), "norm_at", None) in NORMS_OF_OUTPUTS:
        block_hooks |= NORMED_BRANCHES
        full_names |= {f"hook_{hook}": address for hook, address in NORMED_BRANCHES.items()}
    if in_block is not None and in_block[2] in full_names:
        return f"block_{in_block[1]}/{full_names[in_block[2]]}"
    if name == "ln_final.hook_normalized":
        return "final_norm/output"
    hook = name.rpartition(".")[2].removeprefix("hook_")
    if hook in WITHOUT_ADDRESS and (in_block is not None or "." not in name):
        raise UserError(f"{name!r} has no address in jaxformer: {WITHOUT_ADDRESS[hook]}.")
    if "." in name:
        return name
    if hook in MODEL_HOOKS:
        return MODEL_HOOKS[hook]
    return rf"block_\d+/{block_hooks[hook]}" if hook in block_hooks else name
