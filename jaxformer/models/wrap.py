"""`jaxformer.wrap`: a user's Flax module as a model that can be trained, cut and captured."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flax.errors
import flax.linen as nn
import jax

from jaxformer.core.adapters import effective
from jaxformer.core.errors import UserError
from jaxformer.models import activation_points, submodules
from jaxformer.models.activation_points import INTERMEDIATES
from jaxformer.models.model import check_not_equinox, check_sizes, take_positions
from jaxformer.models.source import Source

# The name of a method, or a function of the module and the tokens; None: __call__.
Method = str | Callable[..., Any] | None


@dataclass(frozen=True)
class WrapSpec:
    """The hyperparameters of a wrapped module."""

    vocab_size: int
    length: int
    causal: bool
    module: str  # identifies the module in config.json

    def __post_init__(self):
        check_sizes(self, "vocab_size", "length")


class FromLinen:
    """A Linen module with the form of `jaxformer.models.nnx.FromNNX`."""

    def __init__(self, module: nn.Module, method: Method = None):
        self.module, self.method = module, method
        # Addresses of functions in memory differ between processes.
        self.name = re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(module).split()))

    def init(self, key: Any, tokens_BxT: jax.Array) -> dict[str, Any]:
        """Returns {"params": tree}; raises if the module has other collections."""
        variables = self.module.init(key, tokens_BxT, method=self.method)
        if others := sorted(set(variables) - {"params", INTERMEDIATES}):
            raise UserError(
                f"{self.name} has the collections {', '.join(others)} besides params; "
                "build it without batch norm and other state."
            )
        # Modules with logical partitioning keep each parameter in a box with its axes.
        return {"params": nn.meta.unbox(variables.get("params", {}))}

    def apply(self, variables: Mapping[str, Any], tokens_BxT: jax.Array, *, mutable: Any) -> Any:
        return self.module.apply(variables, tokens_BxT, mutable=mutable, method=self.method)

    def observed(
        self, variables: Mapping[str, Any], tokens_BxT: jax.Array, outputs: submodules.Outputs
    ) -> tuple[Any, dict[str, Any]]:
        """Returns the module's output and a tree of the values that its submodules keep."""
        root = self.method if isinstance(self.method, str) else "__call__"
        with submodules.intercept_linen(outputs, root):
            logits, written = self.apply(variables, tokens_BxT, mutable=[INTERMEDIATES])
        return logits, written.get(INTERMEDIATES, {})


class Wrapped:
    """A module that maps tokens (B, T) to logits (B, T, V), with the protocol of `model.Model`."""

    def __init__(self, network: Any, spec: WrapSpec):
        self.network, self.spec = network, spec
        self.source: Source | None = None
        # A module may add a position embedding of its whole length, which fits no shorter input.
        self.example_length = spec.length

    def __repr__(self) -> str:
        spec = self.spec
        return f"wrap({spec.module}, vocab_size={spec.vocab_size}, length={spec.length})"

    def init(self, rngs: Any, /, *inputs: Any) -> dict[str, Any]:
        """Returns {"params": tree}; raises if the module has other collections."""
        with self._without_rngs():
            return self.network.init(rngs, inputs[0])

    def apply(self, variables: Mapping[str, Any], /, *inputs: Any, mutable: Any = False) -> Any:
        """Returns logits (B, T, V), or (B, K, V) at the scored positions.

        Adapters are merged into their kernels first, because any module can read a kernel.

        Args:
            variables: {"params": ..} and further collections of the module.
            inputs: tokens (B, T), and the positions (B, K) at which logits are returned; without
                them, or with None, all.
            mutable: as in `flax.linen.Module.apply`, which then also returns written collections.
        """
        tokens_BxT, positions_BxK = inputs[0], inputs[1] if len(inputs) > 1 else None
        request = activation_points.active_request()
        variables = {**variables, "params": effective(variables["params"])}
        with self._without_rngs():
            if request is None:
                outputs = self.network.apply(variables, tokens_BxT, mutable=mutable)
                logits_BxTxV, *written = outputs if mutable else (outputs,)
            else:
                outputs = submodules.Outputs(request)
                logits_BxTxV, kept = self.network.observed(variables, tokens_BxT, outputs)
                values = submodules.flat_values(kept)
                logits_BxTxV = outputs.record_logits(logits_BxTxV, values)
                outputs.check(values)
                written = [{INTERMEDIATES: values}]
        expected = (*tokens_BxT.shape, self.spec.vocab_size)
        got = getattr(logits_BxTxV, "shape", type(logits_BxTxV).__name__)
        if got != expected:
            raise UserError(
                f"{self.spec.module:.60} must return logits (batch, tokens, vocabulary): expected "
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


def wrap(
    module: Any, *, vocab_size: int, length: int, causal: bool = True, method: Method = None
) -> Wrapped:
    """Adapts a Flax module to `jaxformer.train`, `capture` and `surgery`.

    The module is called with tokens (B, T) and returns logits (B, T, V). Parameters keep their own
    addresses, which the rules of a partition match. What each submodule returns has an address
    too: its path and "output", such as `blocks_0/att/query/output`. `capture.names(model)` lists
    them, and `capture`, `intervene`, `patch` and `gradients` read and change them.

    Args:
      module: a Linen module; or a function of `nnx.Rngs` that returns an NNX module, so that each
        seed draws its own parameters; or an NNX module, whose parameters start every seed.
      vocab_size: V, the number of token ids.
      length: T, the longest sequence.
      causal: whether the logits at a token depend on it and earlier tokens only.
      method: the method that computes logits, by name, or a function of module and tokens such as
        `lambda net, tokens: net(inputs=tokens, train=False)`. Default `__call__`.

    Returns:
      The model.

    Example:
      model = jaxformer.wrap(Net(), vocab_size=16, length=32)
      run = jaxformer.train(task, model, [(".*/kernel", "train"), (".*", "frozen")], steps=100)
      capture.patch(model, run.params, clean, corrupted, ".*/output", metric)
    """
    check_not_equinox(module)
    if isinstance(module, nn.Module):
        network: Any = FromLinen(module, method)
        submodules.check_method(type(module), type(module).__name__, method)
    else:
        from jaxformer.models.nnx import FromNNX

        if not callable(module):
            raise UserError(
                f"wrap takes a Flax Linen or NNX module, or a function of nnx.Rngs that returns "
                f"one; got {type(module).__name__}."
            )
        network = FromNNX(module, method)
    name = network.name
    if method is not None:
        name += f", method={method if isinstance(method, str) else method.__qualname__}"
    return Wrapped(network, WrapSpec(vocab_size, length, causal, name))
