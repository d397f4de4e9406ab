"""One run of a model that keeps some activations and changes others."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import KEPT, Request
from jaxformer.models.model import Model


def capture(model: Model, params: Any, *inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """The activations that any of the patterns in `names` matches (addresses or modules).

    Nothing else is held. Inside jit, what only the logits need is not computed either.
    """
    return run(model, params, *inputs, names=names)[1]


def intervene(model: Model, params: Any, *inputs_and_edits: Any) -> Any:
    """Logits of `intervene(model, params, tokens, {pattern: new})`.

    `new` takes the activation's place: an array of its shape, one number, a function of the old
    value, or one of `zero`, `mean`, `resample(key)`, `at(new, heads=.., positions=..)`.
    """
    *inputs, edits = inputs_and_edits
    if not isinstance(edits, Mapping):
        raise UserError(
            f"intervene needs {{address: new value}} as its last argument, got {edits!r}."
        )
    return run(model, params, *inputs, edits=edits)[0]


def run(
    model: Model,
    params: Any,
    *inputs: Any,
    names: Sequence[str] = (),
    edits: Mapping[str, Any] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """(logits, {address: activation}); what is kept is what went on, after the edits."""
    if isinstance(names, str):
        raise UserError(f"names must be a sequence of patterns, got the string {names!r}.")
    if inputs:
        _check_tokens(model, inputs[0])
    with Request(names, edits).active() as request:
        logits, updates = model.apply({"params": params}, *inputs, mutable=[KEPT])
    everything = updates.get(KEPT, {})  # a model of one's own may sow what is no point
    if not request.shapes and not everything:
        raise UserError(f"{type(model).__name__} records no intermediates.")
    request.check_edits()
    found: dict[str, Any] = {}
    for name in request.names:
        found |= _select(everything, name, [*request.shapes])
    return logits, found


def names(model: Model, params: Any = None, *inputs: Any) -> list[str]:
    """Every address of a model, in the order of computation."""
    return list(shapes(model, params, *inputs))


def shapes(model: Model, params: Any = None, *inputs: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """{address: shape and dtype}; nothing is computed."""
    inputs = inputs or (_blank(model, params),)
    if params is None:
        params = jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]
    with Request().active() as request:
        updates = jax.eval_shape(
            lambda p, x: model.apply({"params": p}, *x, mutable=[KEPT])[1], params, inputs
        )
    return request.shapes | paths.flatten(updates.get(KEPT, {}))


def stop_after(model: Model, params: Any, *inputs: Any, block: int) -> jax.Array:
    """The residual stream after a block, (B, T, N); inside jit the later blocks do not run."""
    (states,) = capture(model, params, *inputs, names=[f"block_{block}/states"]).values()
    return states


def start_at(model: Model, params: Any, *inputs: Any, block: int, states: jax.Array) -> Any:
    """Logits if `states` entered this block; inside jit the blocks before it do not run."""
    return intervene(model, params, *inputs, {f"block_{block}/before": states})


def _check_tokens(model: Model, tokens: Any) -> None:
    """An embedding gives nan for a token that it has not; inside jit nobody can say so."""
    size = getattr(getattr(model, "spec", None), "vocab_size", 0)
    if not size or isinstance(tokens, Tracer) or not getattr(tokens, "is_fully_addressable", True):
        return
    tokens = np.asarray(tokens)
    if tokens.dtype.kind == "i" and tokens.size and not 0 <= tokens.min() <= tokens.max() < size:
        raise UserError(
            f"the tokens must be from 0 to {size - 1}, the vocabulary of the model; "
            f"got {tokens.min()} to {tokens.max()}. Are they of another tokenizer?"
        )


def _select(everything: Mapping[str, Any], pattern: str, known: list[str]) -> dict[str, Any]:
    flat = paths.flatten(everything)
    found = {path: x for path, x in flat.items() if paths.matches(pattern, path, modules=True)}
    if not found:
        raise paths.no_match_error(pattern, known or list(flat))
    return found


def _blank(model: Model, params: Any) -> Any:
    """Inputs of the right kind: tokens (1, 2), or vectors (1, 2, n) if there is no vocabulary."""
    if model.spec.vocab_size:
        return jax.ShapeDtypeStruct((1, 2), jnp.int32)
    asked = getattr(model, "input_width", None)
    width = asked(params) if asked else getattr(model.spec, "width", 2)
    return jax.ShapeDtypeStruct((1, 2, width), jnp.result_type(float))
