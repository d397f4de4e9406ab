"""Every activation has an address: `point` marks one, `Request` says what to keep and to change.

    q_BxTxHxK = point(self, "queries", q_BxTxHxK)          in block_3/attn: block_3/attn/queries

Without a request a point gives back the value it was given, and a model costs what it costs. The
names are the same in all models; those that a model does not form are missing.

    token_embeddings position_embeddings embedded           what enters block_0
    block_i/before block_i/between block_i/states           the residual stream: before, after
                                                            attention, after the block
    block_i/attn_norm/factor /output                        y = (x - mean) factor gain + bias
    block_i/attn/queries keys values                        (B, T, H, K), before the rotation
    block_i/attn/turned_queries turned_keys                 after it
    block_i/attn/scores masked_scores weights               (B, H, T, S)
    block_i/attn/heads                                      each head's sum A_ts v_s, (B, T, H, K)
    block_i/attn/mixed                                      sum A_ts x_s, where values come after
    block_i/attn/output                                     what attention gives to the stream
    block_i/mlp/preactivation gates linear hidden output    phi's argument, phi(it), what it gates
    final_norm/factor /output final logits
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError

KEPT = "intermediates"  # flax's collection
_ASKED: contextvars.ContextVar["Request | None"] = contextvars.ContextVar("asked", default=None)


class Request:
    """What one run of a model keeps (`names`, patterns) and changes (`edits`, {pattern: new}).

    A new value is an array of the address's shape, or a function of the old one. A function with
    two arguments is given the address too.
    """

    def __init__(self, names: Sequence[str] = (), edits: Mapping[str, Any] | None = None):
        self.names, self.edits = tuple(names), dict(edits or {})
        for pattern in (*self.names, *self.edits):
            paths.check_pattern(pattern)
        self.shapes: dict[str, jax.ShapeDtypeStruct] = {}  # of every address passed, in order
        self.used: set[str] = set()  # patterns of edits
        self.blocks: tuple[str, ...] = ()  # those that one scanned body stands for

    @contextlib.contextmanager
    def active(self) -> Iterator["Request"]:
        """While it is, points listen to this request."""
        token = _ASKED.set(self)
        try:
            yield self
        finally:
            _ASKED.reset(token)

    @contextlib.contextmanager
    def standing_for(self, blocks: Sequence[str]) -> Iterator[None]:
        """While it is, an address within a block is that of all these blocks at once."""
        before, self.blocks = self.blocks, tuple(blocks)
        try:
            yield
        finally:
            self.blocks = before

    def passes(self, address: str, value: jax.Array) -> jax.Array:
        """The value that goes on from this address."""
        self.shapes[address] = jax.ShapeDtypeStruct(value.shape, value.dtype)
        for pattern, new in self.edits.items():
            if paths.matches(pattern, address):
                self.used.add(pattern)
                value = _changed(address, value, new)
        return value

    def keeps(self, address: str) -> bool:
        return any(paths.matches(pattern, address, modules=True) for pattern in self.names)

    def check_edits(self) -> None:
        """Raises, after a run, if an edit changed nothing."""
        for pattern in self.edits:
            if pattern not in self.used:
                raise paths.no_match_error(pattern, list(self.shapes))


def point(module: Any, name: str, value: jax.Array, plotted: bool = False) -> jax.Array:
    """The value at this module's address `name`: kept, or changed, if somebody asked.

    `plotted` ones are also kept by flax's own mutable=["intermediates"], without a request.
    """
    asked = _ASKED.get()
    if asked is None:
        if plotted:
            module.sow(KEPT, name, value, reduce_fn=_last)
        return value
    address = "/".join((*module.path, name))
    addresses = [f"{block}/{address}" for block in asked.blocks] or [address]
    for one in addresses:  # several only where nothing is changed
        value = asked.passes(one, value)
    if any(asked.keeps(one) for one in addresses):
        module.sow(KEPT, name, value, reduce_fn=_last)
    return value


def looked_at(module: Any) -> bool:
    """May anybody see or change what the points of this module are given?"""
    return _ASKED.get() is not None or module.is_mutable_collection(KEPT)


def edited() -> bool:
    """Is something to be changed? Then every block must be traced on its own."""
    asked = _ASKED.get()
    return asked is not None and bool(asked.edits)


def scanned(blocks: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Around the body of a scan over blocks: what is asked of any of them is kept of all."""
    asked = _ASKED.get()
    return contextlib.nullcontext() if asked is None else asked.standing_for(blocks)


def given(address: str, value: jax.Array, new: Any) -> jax.Array:
    """The array that `new`, an array or a function, gives in place of this value."""
    if isinstance(new, Callable):
        new = new(value, address) if getattr(new, "takes_address", False) else new(value)
    try:
        return jnp.asarray(new)
    except (TypeError, ValueError):
        raise UserError(
            f"what should take the place of {address} is no array but {type(new).__name__}."
        ) from None


def _changed(address: str, value: jax.Array, new: Any) -> jax.Array:
    new = given(address, value, new)
    if new.shape != value.shape and new.shape != ():
        raise UserError(
            f"{address} has the shape {value.shape}; what should take its place has {new.shape}. "
            "Give an array of that shape, one number, or a function of the old value."
        )
    return jnp.broadcast_to(new, value.shape).astype(value.dtype)


def _last(_: Any, new: Any) -> Any:
    """For `sow`: the array itself, not a tuple of all that was sown."""
    return new
