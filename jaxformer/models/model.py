"""What a model is: anything that meets this protocol can be trained, captured, patched and cut.

    model.init(key, inputs) -> {"params": tree}
    model.apply({"params": tree}, inputs) -> logits (B, T, V)
    model.apply({"params": tree}, inputs, positions (B, K)) -> the same numbers there, (B, K, V)

Inputs are tokens (B, T); of a task whose `vocab_size` is 0 they are vectors (B, T, n), and then the
answer is one number an example, (B,). `model.spec` is a frozen dataclass of the model's numbers:
the only place where they are named. Among its fields are

    vocab_size    V
    length        the longest sequence
    causal        may a token see only those before it and itself?
"""

import inspect
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range

FIELDS = ("vocab_size", "length", "causal")
# Sizes beyond these are slips of the hand; they are refused before anything is traced or allocated.
MOST = {
    "vocab_size": 10**7,
    "length": 10**6,
    "width": 10**6,
    "layers": 10_000,
    "heads": 10**5,
    "mlp_width": 10**7,
    "mlp_multiplier": 10**4,
}
LARGEST_SCALE = 1e18  # its square is a float32


class Model(Protocol):
    """See the module's docstring."""

    spec: Any

    def init(self, rngs: Any, /, *inputs: Any) -> Any: ...

    def apply(self, variables: Any, /, *inputs: Any, mutable: Any = False) -> Any: ...


def check_sizes(spec: Any, *names: str, least: int = 1) -> None:
    """Raises unless these sizes of a spec are at least `least` and can be meant."""
    for name in names:
        check_range(name, getattr(spec, name), least, MOST[name])


def check_model(model: Any) -> None:
    """Raises, before anything is traced, unless the model can be called as the protocol says."""
    name, spec = type(model).__name__, getattr(model, "spec", None)
    if lacking := [field for field in FIELDS if not hasattr(spec, field)]:
        raise UserError(
            f"{name}.spec must have the fields {', '.join(FIELDS)}; got {type(spec).__name__} "
            f"without {', '.join(lacking)}."
        )
    try:
        inspect.signature(model.__call__).bind("tokens", "positions")
    except TypeError:
        raise UserError(
            f"{name} must be called as (tokens, positions=None), to compute logits only where they "
            f"are scored; got {inspect.signature(model.__call__)}."
        ) from None


def check_answer(logits: jax.Array, targets: tuple[int, ...], vocab_size: int) -> None:
    """Raises while tracing unless there is one row of logits for each target, (B, K).

    Without it (B, T, V) logits broadcast against (B, 1) targets, and the loss is another one.
    """
    expected = (*targets, vocab_size) if vocab_size else targets[:1]
    if logits.shape == expected:
        return
    reason = "see the protocol in jaxformer/models/model.py."
    if len(logits.shape) == len(expected) == 3:
        reason = "does it ignore its argument `positions`?"
        if logits.shape[:2] == targets:
            reason = f"was it built for a vocabulary of {logits.shape[2]}?"
    what = "examples, scored positions, vocabulary" if vocab_size else "examples"
    raise UserError(f"the model must give {expected} ({what}), got {logits.shape}: {reason}")


def take_positions(x_BxTx: jax.Array, positions_BxK: jax.Array | None) -> jax.Array:
    """x at the positions, whatever axes follow: (B, T, ...) -> (B, K, ...); None takes all."""
    if positions_BxK is None:
        return x_BxTx
    index = jnp.expand_dims(positions_BxK, tuple(range(2, x_BxTx.ndim)))
    return jnp.take_along_axis(x_BxTx, index, axis=1)
