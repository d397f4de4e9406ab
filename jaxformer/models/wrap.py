"""`jaxformer.wrap`: a user's Flax module as a model that can be trained, cut and captured."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flax.errors
import flax.linen as nn
import jax

from jaxformer.core.adapters import effective
from jaxformer.core.errors import UserError
from jaxformer.models.model import check_sizes, take_positions


@dataclass(frozen=True)
class WrapSpec:
    """The hyperparameters of a wrapped module."""

    vocab_size: int
    length: int
    causal: bool
    module: str  # identifies the module in config.json

    def __post_init__(self):
        check_sizes(self, "vocab_size", "length")


class Wrapped:
    """A module that maps tokens (B, T) to logits (B, T, V), with the protocol of `model.Model`."""

    def __init__(self, module: Any, spec: WrapSpec):
        self.module, self.spec = module, spec

    def init(self, rngs: Any, tokens_BxT: jax.Array, *inputs: Any) -> dict[str, Any]:
        """Returns {"params": tree}; raises if the module has other collections."""
        with self._without_rngs():
            variables = self.module.init(rngs, tokens_BxT)
        if others := sorted(set(variables) - {"params", "intermediates"}):
            raise UserError(
                f"{self.spec.module} has the collections {', '.join(others)} besides params; "
                "build it without batch norm and other state."
            )
        return {"params": variables["params"]}

    def apply(
        self,
        variables: Mapping[str, Any],
        tokens_BxT: jax.Array,
        positions_BxK: jax.Array | None = None,
        *,
        mutable: Any = False,
    ) -> Any:
        """Returns logits (B, T, V), or (B, K, V) at the scored positions.

        Adapters are merged into their kernels first, because any module can read a kernel.

        Args:
            variables: {"params": ..} and further collections of the module.
            tokens_BxT: the inputs.
            positions_BxK: the positions at which logits are returned; None for all.
            mutable: as in `flax.linen.Module.apply`, which then also returns written collections.
        """
        variables = {**variables, "params": effective(variables["params"])}
        with self._without_rngs():
            outputs = self.module.apply(variables, tokens_BxT, mutable=mutable)
        logits_BxTxV, *written = outputs if mutable else (outputs,)
        expected = (*tokens_BxT.shape, self.spec.vocab_size)
        got = getattr(logits_BxTxV, "shape", type(logits_BxTxV).__name__)
        if got != expected:
            raise UserError(
                f"{self.spec.module} must return logits (batch, tokens, vocabulary): expected "
                f"{expected}, got {got}."
            )
        logits = take_positions(logits_BxTxV, positions_BxK)
        return (logits, *written) if mutable else logits

    @contextmanager
    def _without_rngs(self) -> Iterator[None]:
        try:
            yield
        except flax.errors.InvalidRngError:
            raise UserError(
                f"{self.spec.module:.60} draws random numbers when it is applied, as dropout does, "
                "and training passes none: build it with deterministic=True or without dropout."
            ) from None

    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        raise UserError("a wrapped module has no parameters of its own: call apply.")


def wrap(module: Any, *, vocab_size: int, length: int, causal: bool = True) -> Wrapped:
    """Adapts a Flax module to `jaxformer.train`, `capture` and `surgery`.

    The module is called with tokens (B, T) and returns logits (B, T, V). Parameters keep their
    own addresses, which the rules of a partition match.

    Args:
      module: a Linen module; or a function of `nnx.Rngs` that returns an NNX module, so that each
        seed draws its own parameters; or an NNX module, whose parameters start every seed.
      vocab_size: V, the number of token ids.
      length: T, the longest sequence.
      causal: whether the logits at a token depend on it and earlier tokens only.

    Returns:
      The model. Activations have addresses where a Linen module calls `activation_points.tap`.

    Example:
      model = jaxformer.wrap(Net(), vocab_size=16, length=32)
      run = jaxformer.train(task, model, [(".*/kernel", "train"), (".*", "frozen")], steps=100)
    """
    if isinstance(module, nn.Module):
        # Addresses of functions in memory differ between processes.
        identity = re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(module).split()))
        return Wrapped(module, WrapSpec(vocab_size, length, causal, identity))
    from jaxformer.models.nnx import FromNNX

    if not callable(module):
        raise UserError(
            f"wrap takes a Flax Linen or NNX module, or a function of nnx.Rngs that returns one; "
            f"got {type(module).__name__}."
        )
    network = FromNNX(module)
    return Wrapped(network, WrapSpec(vocab_size, length, causal, network.name))
