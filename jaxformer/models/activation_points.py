"""Activation points: `tap` gives an activation an address, by which `Request` keeps and edits it.

    q_BxTxHxD = tap(self, "queries", q_BxTxHxD)

In the module block_3/attn, this address is block_3/attn/queries. Without a request a tap returns
its input, at no cost. All models use the same addresses. An address exists only in models that
compute its activation.

    token_embeddings position_embeddings embedded           the input of block_0 and its two parts
    block_i/before block_i/between block_i/states           the residual stream: before attention,
                                                            after it, after the block
    block_i/attn_norm/factor /output                        y = (x - mean) factor gain + bias
    block_i/attn/queries keys values                        (B, T, H, D), before the rotation
    block_i/attn/turned_queries turned_keys                 after the rotation
    block_i/attn/scores masked_scores weights               (B, H, T, S)
    block_i/attn/heads                                      sum_s A_ts v_s of a head, (B, T, H, D)
    block_i/attn/mixed                                      sum_s A_ts x_s, in models that multiply
                                                            by the value matrix afterwards
    block_i/attn/output                                     the branch's term in the residual stream
    block_i/attn_output_norm/factor /output                 that term after a norm, in some families
    block_i/mlp/preactivation hidden output                 W_in x, phi(W_in x), W_out hidden
    block_i/mlp/preactivation gates linear hidden output    gated: W_gate x, phi(W_gate x), W_in x,
                                                            their product, W_out hidden
    final_norm/factor /output final logits
"""

import contextlib
import contextvars
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import layouts, paths
from jaxformer.core.errors import UserError

# The mesh axes of an activation's dimensions after the batch.
STREAM = (None, None)
HEADS = (None, "tensor", None)
HIDDEN = (None, "tensor")
# {point: its mesh axes}; other points have no fixed layout.
SHARDINGS: dict[str, tuple[str | None, ...]] = {
    **dict.fromkeys(("embedded", "before", "between", "states", "final", "output"), STREAM),
    **dict.fromkeys(("queries", "keys", "values", "heads"), HEADS),
    **dict.fromkeys(("preactivation", "linear", "hidden", "logits"), HIDDEN),
}
INTERMEDIATES = "intermediates"  # flax's collection of activations
# Names outside of blocks and inside of a block, in the order of computation.
BEFORE_BLOCKS = ("token_embeddings", "position_embeddings", "embedded")
AFTER_BLOCKS = ("final_norm/factor", "final_norm/output", "final", "logits")
IN_BLOCK = (
    *("before", "attn_norm/factor", "attn_norm/output"),
    *("attn/queries", "attn/keys", "attn/values", "attn/turned_queries", "attn/turned_keys"),
    *("attn/scores", "attn/masked_scores", "attn/weights", "attn/mixed", "attn/heads"),
    *("attn/output", "attn_output_norm/factor", "attn_output_norm/output"),
    *("between", "mlp_norm/factor", "mlp_norm/output"),
    *("mlp/preactivation", "mlp/gates", "mlp/linear", "mlp/hidden", "mlp/output"),
    *("mlp_output_norm/factor", "mlp_output_norm/output", "states"),
)
_ACTIVE: contextvars.ContextVar["Request | None"] = contextvars.ContextVar("active", default=None)


def in_order(by_address: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {address: value} in the order of computation: block_2 before block_10.

    JAX sorts the keys of dictionaries that leave a function under jit, so that block_10 comes
    before block_2. Apply this function to such a result. Unknown names come last in their block.

    Example:
      maps = in_order(jax.jit(lambda p: capture(model, p, tokens, names=["pattern"]))(params))
    """
    return {address: by_address[address] for address in sorted(by_address, key=_sort_key)}


def _sort_key(address: str) -> tuple[Any, ...]:
    """Returns (part of the model, block, point, name) of an address.

    The parts are 0 before the blocks, 1 in a block, 2 after the blocks.
    """
    natural_key = paths.by_number(address)
    for part, names in ((0, BEFORE_BLOCKS), (2, AFTER_BLOCKS)):
        if address in names:
            return part, 0, names.index(address), natural_key
    in_block = re.fullmatch(r"(?:.*/)?block_(\d+)(?:/(.*))?", address)
    if in_block is None:
        return 1, -1, 0, natural_key
    name = in_block[2]
    point = IN_BLOCK.index(name) if name in IN_BLOCK else len(IN_BLOCK)
    return 1, int(in_block[1]), point, natural_key


class Request:
    """The activations that one run of a model keeps and changes.

    Args:
      names: patterns of the addresses to keep.
      edits: {pattern: new value}. A new value is an array of the activation's shape, a number, or
        a function of the old value. A function with `takes_address` gets the address as well.
      first_token: the position in the text at which a pass over a part of it begins; it may be
        traced. None for a pass over a whole text.
      exact: whether names and edits are addresses instead of patterns. Modules without any of them
        then count as not observed, so that they may keep attention weights out of memory.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        edits: Mapping[str, Any] | None = None,
        first_token: Any = None,
        exact: bool = False,
    ):
        self.names, self.edits, self.first_token = tuple(names), dict(edits or {}), first_token
        self.exact = exact
        for pattern in () if exact else (*self.names, *self.edits):
            paths.check_pattern(pattern)
        self.shapes: dict[str, jax.ShapeDtypeStruct] = {}  # of every address, in recorded order
        self.used: set[str] = set()  # patterns of edits that matched
        self.blocks: tuple[str, ...] = ()  # the blocks that one scanned body computes

    @contextlib.contextmanager
    def active(self) -> Iterator["Request"]:
        """Applies this request to all taps inside the context."""
        token = _ACTIVE.set(self)
        try:
            yield self
        finally:
            _ACTIVE.reset(token)

    @contextlib.contextmanager
    def for_blocks(self, blocks: Sequence[str]) -> Iterator[None]:
        """Treats an address inside the context as the address in each of these blocks."""
        outer, self.blocks = self.blocks, tuple(blocks)
        try:
            yield
        finally:
            self.blocks = outer

    def addresses(self) -> list[str]:
        """Returns every address in the order of computation.

        A scan records each point for all of its blocks together, so the addresses are sorted by
        block here.
        """
        addresses = list(self.shapes)
        matches = [re.match(r"(?:.*/)?block_(\d+)/", address) for address in addresses]
        first_in_block = next((i for i, match in enumerate(matches) if match), len(matches))

        def block_number(i: int) -> float:
            if match := matches[i]:
                return int(match[1])
            return -1 if i < first_in_block else math.inf

        return [addresses[i] for i in sorted(range(len(addresses)), key=block_number)]

    def record(self, address: str, value: jax.Array) -> jax.Array:
        """Records the shape at an address and returns its value after the edits."""
        self.shapes[address] = jax.ShapeDtypeStruct(value.shape, value.dtype)
        for pattern, new in self.edits.items():
            if pattern == address if self.exact else paths.matches(pattern, address):
                self.used.add(pattern)
                value = _checked_new_value(address, value, new)
        return value

    def keeps(self, address: str) -> bool:
        """Returns whether the request keeps this address."""
        if self.exact:
            return address in self.names
        return any(paths.matches(pattern, address, modules=True) for pattern in self.names)

    def observes(self, path: Sequence[str]) -> bool:
        """Returns whether activations of the module at this path may be kept or edited."""
        prefix = "/".join((*path, ""))
        return not self.exact or any(x.startswith(prefix) for x in (*self.names, *self.edits))

    def check_edits(self) -> None:
        """Raises, after a run, if an edit matched no address."""
        for pattern in self.edits:
            if pattern not in self.used:
                raise paths.no_match_error(pattern, list(self.shapes))


def tap(module: Any, name: str, value: jax.Array, plotted: bool = False) -> jax.Array:
    """Gives an activation the address `name` in this module.

    Args:
      module: the Linen module that computes the activation.
      name: the last part of the address, such as "weights".
      value: the activation.
      plotted: whether flax's mutable=["intermediates"] keeps it without a request.

    Returns:
      The value, after the edits of the active request.
    """
    if name in SHARDINGS:
        value = layouts.shard_activation(value, *SHARDINGS[name])
    request = _ACTIVE.get()
    if request is None:
        if plotted:
            module.sow(INTERMEDIATES, name, value, reduce_fn=_last)
        return value
    address = "/".join((*module.path, name))
    addresses = [f"{block}/{address}" for block in request.blocks] or [address]
    for block_address in addresses:  # several only in a scan, which runs only without edits
        value = request.record(block_address, value)
    if any(request.keeps(block_address) for block_address in addresses):
        module.sow(INTERMEDIATES, name, value, reduce_fn=_last)
    return value


def active_request() -> Request | None:
    """The request to which the taps of this pass belong, if there is one."""
    return _ACTIVE.get()


def is_observed(module: Any) -> bool:
    """Returns whether the activations of this module may be kept or edited."""
    request = _ACTIVE.get()
    if request is not None:
        return request.observes(module.path)
    return module.is_mutable_collection(INTERMEDIATES)


def first_token() -> Any:
    """Returns the position of the first token of this pass; None if it reads a whole text."""
    request = _ACTIVE.get()
    return None if request is None else request.first_token


def has_edits() -> bool:
    """Returns whether the active request has edits, so that each block must be traced alone."""
    request = _ACTIVE.get()
    return request is not None and bool(request.edits)


def in_scan(blocks: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Applies the active request to the body of a scan over these blocks."""
    request = _ACTIVE.get()
    return contextlib.nullcontext() if request is None else request.for_blocks(blocks)


def new_value(address: str, value: jax.Array, new: Any) -> jax.Array:
    """Returns the value of an activation under an edit: an array, a number or a function."""
    if isinstance(new, Callable):
        new = new(value, address) if getattr(new, "takes_address", False) else new(value)
    try:
        return jnp.asarray(new)
    except (TypeError, ValueError):
        raise UserError(
            f"the new value of {address} must be an array, got {type(new).__name__}."
        ) from None


def _checked_new_value(address: str, value: jax.Array, new: Any) -> jax.Array:
    new = new_value(address, value, new)
    if new.shape != value.shape and new.shape != ():
        raise UserError(
            f"the new value of {address} must have the shape {value.shape}, got {new.shape}. Give "
            "an array of that shape, a number, or a function of the old value."
        )
    return jnp.broadcast_to(new, value.shape).astype(value.dtype)


def _last(_: Any, new: Any) -> Any:
    """Makes `sow` store the array itself instead of a tuple."""
    return new
