"""Runs a model once, keeps some activations and changes others."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.capture.aliases import resolve
from jaxformer.interp.capture.edits import as_argument
from jaxformer.models.activation_points import INTERMEDIATES, Request
from jaxformer.models.model import Model
from jaxformer.models.pretrained import programs
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.texts import as_tokens, check_model_first
from jaxformer.models.vocabulary import check_tokens

EVERYTHING = (".*",)


def capture(
    model: Model, params: Any, *inputs: Any, names: Sequence[str] = EVERYTHING
) -> dict[str, Any]:
    """Returns {address: activation} of one run, in the order of computation.

    Inside jit only what these activations need is computed, and nothing else is kept. A single run
    of a published model outside jit uses compiled programs, which its next run uses again.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the model's inputs: for most models tokens (B, T), or a text or a list of texts if
            `jaxformer.load` loaded the model.
        names: patterns of addresses or modules, or names of TransformerLens' hooks; by default
            every activation is kept, which needs memory for all of them.

    Example:
        everything = capture(model, params, tokens)
        weights = capture(model, params, tokens, names=["block_1/attn/weights"])
    """
    return run(model, params, *inputs, names=names)[1]


def intervene(model: Model, params: Any, *inputs_and_edits: Any) -> Any:
    """Returns the logits of a run in which some activations are replaced.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs_and_edits: the model's inputs, then {pattern: new value}. A new value is an array of
            the activation's shape, a number, a function of the old value, or one of `zero`, `mean`,
            `resample(key)`, `at(new, heads=.., positions=..)`. A single run of a published model
            compiles nothing for another vector, head, position or block of the same kind. Functions
            of your own cost more, since their block runs operation by operation.

    Example:
        logits = intervene(model, params, tokens, {"block_1/mlp/output": 0})
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
    """Returns (logits, {address: activation}) of one run, with the activations after the edits.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the model's inputs.
        names: what to keep, as in `capture`.
        edits: what to replace, as in `intervene`.
    """
    check_model_first(model, params)
    if isinstance(names, str):
        raise UserError(f"names must be a sequence of patterns, got the string {names!r}.")
    if inputs:
        inputs = (as_tokens(model, inputs[0]), *inputs[1:])
        check_tokens(model, inputs[0])
    edits = {resolve(name, model): new for name, new in (edits or {}).items()}
    patterns = [resolve(name, model) for name in names]
    variables = {"params": params}
    # A subclass of yours may read what changes between two runs.
    if type(model) is Pretrained and programs.can_run(model, variables, inputs, edits):
        with contextlib.suppress(*programs.FAILURES):
            return _run_programs(model, params, inputs, patterns, edits)
    with Request(patterns, edits).active() as request:
        logits, updates = model.apply(variables, *inputs, mutable=[INTERMEDIATES])
    # A user's module may sow values without `tap`; the request does not record these.
    intermediates = updates.get(INTERMEDIATES, {})
    if not request.shapes and not intermediates:
        raise UserError(
            f"{type(model).__name__} has no activation addresses: its modules call neither "
            "`activation_points.tap` nor `sow`. jaxformer.wrap gives addresses to a Flax module."
        )
    request.check_edits()
    captured: dict[str, Any] = {}
    for name in request.names:
        captured |= _select(intermediates, name, [*request.shapes])
    ordered = [address for address in request.addresses() if address in captured]
    return logits, {address: captured[address] for address in ordered} | captured


def _run_programs(
    model: Pretrained,
    params: Mapping[str, Any],
    inputs: tuple[Any, ...],
    patterns: Sequence[str],
    edits: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Returns what `run` returns, by programs that later runs use again."""
    known = programs.points(model, params, inputs)

    def matched(pattern: str, modules: bool) -> list[str]:
        paths.check_pattern(pattern)
        found = [address for address in known if paths.matches(pattern, address, modules=modules)]
        if not found:
            raise paths.no_match_error(pattern, list(known))
        return found

    kept = {address for pattern in patterns for address in matched(pattern, True)}
    new: dict[str, Any] = {}
    for pattern, edit in edits.items():
        for address in matched(pattern, False):
            if address in new:
                raise UserError(f"{address} has two edits.")
            new[address] = as_argument(edit, address, known[address].shape)
    ordered = tuple(address for address in known if address in kept)
    logits, captured = programs.run(model, params, inputs, ordered, new)
    return logits, {address: captured[address] for address in ordered}


def names(model: Model, params: Any = None, *inputs: Any) -> list[str]:
    """Returns every address of a model, in the order of computation."""
    return list(shapes(model, params, *inputs))


def shapes(model: Model, params: Any = None, *inputs: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns {address: shape and dtype} of every activation, without computing any.

    Args:
        model: a model with activation addresses.
        params: its parameters; their shapes are derived if None.
        inputs: the model's inputs; one example with two tokens if there are none.
    """
    recorded, written = _traced_shapes(model, params, *inputs)
    return recorded | written


def replaceable_shapes(model: Model, *inputs: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """The entries of `shapes` that edits reach: what a module sows is a copy, which none does."""
    return _traced_shapes(model, None, *inputs)[0]


def _traced_shapes(model: Model, params: Any, *inputs: Any) -> tuple[dict[str, Any], dict]:
    check_model_first(model, params)
    inputs = inputs or (_example_input(model, params),)
    inputs = (as_tokens(model, inputs[0]), *inputs[1:])
    if params is None:
        params = jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]
    with Request().active() as request:
        updates = jax.eval_shape(
            lambda p, x: model.apply({"params": p}, *x, mutable=[INTERMEDIATES])[1], params, inputs
        )
    ordered = {address: request.shapes[address] for address in request.addresses()}
    return ordered, paths.flatten(updates.get(INTERMEDIATES, {}))


def stop_after(model: Model, params: Any, *inputs: Any, block: int) -> jax.Array:
    """Returns the residual stream after a block, (B, T, N). Inside jit later blocks do not run.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        *inputs: the inputs of the model, such as tokens (B, T).
        block: the number of the block.
    """
    (states,) = capture(model, params, *inputs, names=[f"block_{block}/states"]).values()
    return states


def start_at(model: Model, params: Any, *inputs: Any, block: int, states: jax.Array) -> Any:
    """Returns the logits if `states` (B, T, N) enter a block. Inside jit earlier blocks do not run.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        *inputs: the inputs of the model; `states` replace the residual stream that they give.
        block: the number of the block that `states` enter.
        states: the residual stream, (B, T, N).
    """
    return intervene(model, params, *inputs, {f"block_{block}/before": states})


def _select(intermediates: Mapping[str, Any], pattern: str, known: list[str]) -> dict[str, Any]:
    """Returns {address: activation} of a pattern; raises UserError if it matches none."""
    flat = paths.flatten(intermediates)
    selected = {path: x for path, x in flat.items() if paths.matches(pattern, path, modules=True)}
    if not selected:
        raise paths.no_match_error(pattern, known or list(flat))
    return selected


def _example_input(model: Model, params: Any) -> Any:
    """Returns the shape of tokens (1, T), or of vectors (1, 2, n) if there is no vocabulary."""
    if model.spec.vocab_size:
        return jax.ShapeDtypeStruct((1, getattr(model, "example_length", 2)), jnp.int32)
    input_width = getattr(model, "input_width", None)
    width = input_width(params) if input_width else getattr(model.spec, "width", 2)
    return jax.ShapeDtypeStruct((1, 2, width), jnp.result_type(float))
