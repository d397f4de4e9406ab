"""Low-rank adapters (LoRA): a kernel W stays frozen, and only a small update of it is trained.

    y = x W + s (x A) B          W: (n, m), A: (n, r), B: (r, m)

The rule (".*/(query|value)/kernel", "lora(8)") of a partition puts three leaves beside each kernel
that it matches, so that an adapter is a part of the tree of parameters like any other:

    block_3/attn/query/kernel        W, with the label "frozen"
    block_3/attn/query/lora_a        A, uniform in +-1/sqrt(n) at the start
    block_3/attn/query/lora_b        B, zero at the start: the model begins as it was
    block_3/attn/query/lora_scale    s, never trained

The scale is alpha/r, or alpha/sqrt(r) with "stabilised" (rank-stabilised LoRA, better above rank 32
or so). alpha is 8 unless the label says otherwise, as in the package peft, so that "lora(8)" is its
LoraConfig(r=8). With 1/r the best learning rate hardly depends on the rank.

The product is taken as (x A) B and added to x W. It is cheaper than the sum W + s A B, since no
gradient of the size of W is computed, and it loses nothing when W is stored in bfloat16.
`models.layers.Dense` computes it; `merge` writes the sum into the kernel when you are done.
"""

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError, did_you_mean

__all__ = ["Lora", "adapted_kernels", "add", "effective", "merge"]

Params = Mapping[str, Any]

LORA = "lora"  # the label of trained adapters, which has an optimizer of its own if one is given
KERNEL, LORA_A, LORA_B, LORA_SCALE = "kernel", "lora_a", "lora_b", "lora_scale"
TRAINED = (LORA_A, LORA_B)
LEAVES = (*TRAINED, LORA_SCALE)
STABILISED = "stabilised"
ALPHA = 8.0  # that of peft
MAX_ALPHA = 1e6
CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*")  # a label with arguments
# Other adapters of peft, which a reader may try by name.
UNKNOWN_KINDS = "DoRA, AdaLoRA, VeRA, (IA)^3 and prompt vectors are not known here"


class Lora(NamedTuple):
    """The arguments of a label such as "lora(8, alpha=16, stabilised)"."""

    rank: int
    alpha: float = ALPHA
    is_stabilised: bool = False

    @property
    def scale(self) -> float:
        """s, the factor of A B."""
        return self.alpha / (math.sqrt(self.rank) if self.is_stabilised else self.rank)


# {address of a kernel: its adapter}
Adapters = Mapping[str, Lora]


def parse(label: str) -> Lora | None:
    """Reads a label; None if it has no arguments and so adds no adapter.

    Raises:
        UserError: the label has arguments, but is no adapter that we know.
    """
    call = CALL.fullmatch(label)
    if call is None and "(" in label:
        raise UserError(f"the label {label!r} is not complete: write lora(8).")
    if call is None:
        return None
    kind, text = call[1], call[2]
    if kind != LORA:
        raise UserError(
            f"the label {label!r} names no known adapter: use lora(RANK), such as lora(8). "
            f"{UNKNOWN_KINDS}."
        )
    rank, *options = [part.strip() for part in text.split(",")]
    if not re.fullmatch(r"[0-9]{1,6}", rank) or int(rank) < 1:
        raise UserError(
            f"the rank in the label {label!r} must be a whole number of at least 1, got "
            f"{rank or 'nothing'}: write lora(8)."
        )
    alpha, is_stabilised = ALPHA, False
    for option in options:
        name, _, value = (part.strip() for part in option.partition("="))
        if option == STABILISED:
            is_stabilised = True
        elif name == "alpha":
            alpha = _alpha(label, value)
        else:
            raise UserError(
                f"the label {label!r} has the unknown option {option!r}: lora takes a rank, "
                f"alpha=NUMBER and {STABILISED}, such as lora(8, alpha=16, {STABILISED})."
            )
    return Lora(int(rank), alpha, is_stabilised)


def _alpha(label: str, text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha <= MAX_ALPHA:
        raise UserError(
            f"alpha in the label {label!r} must be a number above 0 and up to {MAX_ALPHA:g}, got "
            f"{text or 'nothing'}."
        )
    return alpha


def is_leaf(path: str, names: tuple[str, ...] = LEAVES) -> bool:
    """Tests whether a path is a part of an adapter."""
    return path.rsplit("/", 1)[-1] in names


def beside(path: str, leaf: str) -> str:
    """The address of another leaf of the same module."""
    return "/".join((*path.split("/")[:-1], leaf))


def check(path: str, shape: tuple[int, ...], lora: Lora, known: Mapping[str, Any]) -> None:
    """Raises UserError unless the leaf at a path can have this adapter.

    Args:
        path: a parameter that a rule with an adapter matches.
        shape: its shape.
        lora: the adapter.
        known: all parameters by path.
    """
    label = f"lora({lora.rank})"
    if not path.endswith(f"/{KERNEL}") or len(shape) != 2:
        raise UserError(
            f"{label} needs a kernel with two axes, and the rule matches {path} of shape {shape}: "
            "end the pattern with '/kernel'. Embeddings, norms and biases take no adapter; give "
            "them a trained label instead."
        )
    if lora.rank > min(shape):
        raise UserError(
            f"{label} exceeds the rank of {path}, which is at most {min(shape)} (shape {shape}): "
            "lower the rank, or train the kernel itself."
        )
    if beside(path, LORA_A) in known:
        raise UserError(
            f"{path} has an adapter already: go on with the one that is there by the rule "
            f"('.*/lora_[ab]', 'train'), or write it into the kernel by jaxformer.adapters.merge."
        )


def add(params: Params, adapters: Adapters, key: jax.Array) -> dict[str, Any]:
    """The parameters with new adapters, which change no output until they are trained.

    Args:
        params: the parameters of one member.
        adapters: {address of a kernel: its adapter}.
        key: the random key; the draw of an adapter depends on its address, not on the others.

    Raises:
        UserError: there is no such kernel, it has an adapter, or the rank is above its own.
    """
    flat = dict(paths.flatten(params))
    for path, lora in adapters.items():
        if path not in flat:
            raise UserError(f"no parameter {path!r}.{did_you_mean(path, flat)}")
        check(path, flat[path].shape, lora, flat)
        (n, m), dtype = flat[path].shape, jnp.promote_types(flat[path].dtype, jnp.float32)
        draw = jax.random.fold_in(key, zlib.crc32(path.encode()))
        bound = n**-0.5
        flat[beside(path, LORA_A)] = jax.random.uniform(draw, (n, lora.rank), dtype, -bound, bound)
        flat[beside(path, LORA_B)] = jnp.zeros((lora.rank, m), dtype)
        flat[beside(path, LORA_SCALE)] = jnp.asarray(lora.scale, dtype)
    return paths.unflatten(flat)


def add_shapes(shapes: Params, adapters: Adapters) -> dict[str, Any]:
    """The shapes of `add`; nothing is computed."""
    if not adapters:
        return dict(shapes)
    return jax.eval_shape(lambda tree, key: add(tree, adapters, key), shapes, jax.random.key(0))


def adapted_kernels(params: Params) -> list[str]:
    """The addresses of the kernels that have an adapter."""
    return [beside(path, KERNEL) for path in paths.flatten(params) if is_leaf(path, (LORA_A,))]


def merge(params: Params) -> dict[str, Any]:
    """Writes each adapter into its kernel, W + s A B, and removes its leaves.

    The result has the parameters of the model before `lora(..)`, so it can be saved for
    transformers, cut and trained as a whole. A kernel in half precision rounds the sum to its own
    precision: an update below 1/500 of a weight is lost in bfloat16, so load the model in float32
    before you merge if that matters.

    Args:
        params: parameters with adapters, also with a leading axis of members.

    Raises:
        UserError: there is no adapter, for example because they are merged already.

    Example:
        merged = jaxformer.adapters.merge(run.params)
        save_folder("merged", model, merged, config)
    """
    if not adapted_kernels(params):
        raise UserError(
            "these parameters have no adapter to merge (no leaf lora_a): merge writes an adapter "
            "into its kernel once and removes it."
        )
    return effective(params)


def effective(params: Params) -> dict[str, Any]:
    """The parameters in effect: with adapters merged, or as they are if there are none."""
    kernels = adapted_kernels(params)
    if not kernels:
        return dict(params)
    flat = paths.flatten(params)
    merged = {path: kernel_in_effect(_module(flat, path)) for path in kernels}
    return paths.unflatten(
        {path: merged.get(path, leaf) for path, leaf in flat.items() if not is_leaf(path)}
    )


def with_equal_shapes(trees: Sequence[Params]) -> list[dict[str, Any]]:
    """Gives trees of the same kernels adapters of the same ranks, so that they can be stacked.

    A smaller or missing adapter is filled up with zeros, which add nothing to any output.
    """
    flats = [paths.flatten(tree) for tree in trees]
    for kernel in sorted({path for tree in trees for path in adapted_kernels(tree)}):
        a, b, scale = (beside(kernel, leaf) for leaf in LEAVES)
        rank = max(flat[a].shape[1] for flat in flats if a in flat)
        dtype = jnp.result_type(*(flat[a].dtype for flat in flats if a in flat))
        for flat in flats:
            n, m = flat[kernel].shape
            missing = rank - (flat[a].shape[1] if a in flat else 0)
            found = (flat.get(a, jnp.zeros((n, 0), dtype)), flat.get(b, jnp.zeros((0, m), dtype)))
            flat[a] = jnp.pad(found[0], ((0, 0), (0, missing)))
            flat[b] = jnp.pad(found[1], ((0, missing), (0, 0)))
            flat[scale] = flat.get(scale, jnp.zeros((), dtype))
    return [paths.unflatten(flat) for flat in flats]


def kernel_in_effect(module: Mapping[str, Any]) -> jax.Array:
    """W + s A B of one module's parameters, or W without an adapter."""
    kernel = jnp.asarray(module[KERNEL])
    if LORA_A not in module:
        return kernel
    a, b, scale = (jnp.asarray(module[leaf]) for leaf in LEAVES)
    exact = jax.lax.Precision.HIGHEST  # accelerators would round the factors
    update = jnp.matmul(a, b, precision=exact) * scale[..., None, None]
    return (kernel.astype(update.dtype) + update).astype(kernel.dtype)


def low_rank_update(
    x: jax.Array, module: Mapping[str, Any], product: Callable[[Any, Any], jax.Array]
) -> jax.Array:
    """s (x A) B in the precision of x.

    Args:
        x: the inputs of the kernel, (.., n).
        module: the leaves of the adapter.
        product: the product of activations and a parameter, which keeps the parameter's gradient in
            its own precision.
    """
    a, b, scale = (jnp.asarray(module[leaf]) for leaf in LEAVES)
    return product(product(x, a) * scale.astype(x.dtype), b)  # r numbers a token are scaled, not m


def check_merged(params: Params, kernels: str, doing: str) -> None:
    """Raises UserError if a kernel whose path begins with `kernels` has an adapter.

    Args:
        params: the parameters.
        kernels: the beginning of the paths; "" for all.
        doing: what changes or reads the kernel, for the message.
    """
    adapted = [path for path in adapted_kernels(params) if path.startswith(kernels)]
    if adapted:
        raise UserError(
            f"{doing} would leave out the adapter of {adapted[0]}: merge it first, "
            "params = jaxformer.adapters.merge(params)."
        )


def _module(flat: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    return {leaf: flat[beside(kernel, leaf)] for leaf in (KERNEL, *LEAVES)}
