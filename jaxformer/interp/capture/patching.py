"""Activation patching: how much of a clean prompt's answer an activation restores.

    ablate      the metric without an activation, or without several together
    patch       the metric of the corrupted run with one activation of the clean run
    attribute   a first-order estimate of what `patch` adds to the metric, from a single gradient
    gradients   the gradient of a metric with respect to each activation
    path_patch  patches the output of one head into one later reader only

Sources: Wang et al. 2211.00593; Goldowsky-Dill et al. 2304.05969; Nanda 2023 (`attribute`).
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice, check_range, did_you_mean
from jaxformer.interp.blocks import first_difference
from jaxformer.interp.capture import edits
from jaxformer.interp.capture.aliases import resolve
from jaxformer.interp.capture.metric import Metric, per_example, scalar
from jaxformer.interp.capture.replaced import Case, Progress, Where, activations, metric_of_cases
from jaxformer.interp.capture.running import (
    capture,
    check_tokens,
    intervene,
    replaceable_shapes,
    run,
)
from jaxformer.interp.programs import computed
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens, check_model_first

KINDS = ("position", "head")
ABLATIONS = ("mean", "zero", "resample")
_NO_EFFECT = (
    "no patch changes the metric: at {} the clean run gives what the corrupted one does. Are both "
    "prompts the same, or does the metric read a position before the one where they differ?"
)
BRANCHES = r"(.*/)?block_\d+/(attn|mlp)/output"
HeadAddress = tuple[str, Any]  # (address, number of a head); None: all heads


def patch(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    patterns: str | Sequence[str],
    metric: Metric,
    by: Sequence[str] = (),
    at_once: int = 16,
    progress: Progress | None = None,
) -> dict[str, np.ndarray]:
    """Returns {address: metric of the corrupted run with that activation of the clean run}.

    A case patches one activation, or one position or head of it (`by`). Networks whose blocks run
    one at a time compute the blocks and tokens only that a patch can change. Compiled programs
    serve other prompts of the same shape and other metrics too.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        clean: tokens (B, T), a text or a list of texts, or a tuple of the model's inputs, such as
            (tokens, positions (B, K)), of which the metric reads the logits: fewer are computed.
        corrupted: as `clean`, with the same shapes.
        patterns: patterns of addresses, or names of TransformerLens' hooks.
        metric: a function of the logits (B, T, V) that returns one number, or one for each example.
            It is traced anew in each call, once or twice, so that it may read variables that change
            between calls.
        by: "position", "head" or both, in the order of the result's axes: patch each separately.
        at_once: the most cases that run in parallel.
        progress: a function of the number of finished cases and of all.

    Returns:
        An array for each address, with an axis for each entry of `by` that the address has. A
        metric for each example adds a last axis (B,).

    Example:
        patch(model, params, clean, corrupted, "block_1/attn/heads", metric, by=["head"])
    """
    check_range("at_once", at_once, 1)
    check_model_first(model, params)
    clean, corrupted = _prompts(model, clean, corrupted)
    chosen = _addresses(model, corrupted, patterns, by)
    new = activations(model, params, clean, [*chosen])
    values = metric_of_cases(
        *(model, params, corrupted, new, separate_cases(chosen, by), metric, at_once),
        first=_first_changed(model, clean[0], corrupted[0]),
        progress=progress,
    )
    if (values == values[0]).all():  # rarely, so the run without a patch costs nothing otherwise
        unpatched = np.asarray(per_example(metric, run(model, params, *corrupted)[0]))
        if np.allclose(values[0], unpatched, rtol=1e-6, atol=1e-6):
            warnings.warn(
                _NO_EFFECT.format(f"{len(chosen)} address" + "es" * (len(chosen) > 1)), stacklevel=2
            )
    return by_address(chosen, by, values)


def ablate(
    model: Model,
    params: Any,
    prompts: Any,
    parts: str | Sequence[str] | Mapping[str, str | Sequence[str]],
    metric: Metric,
    by: Sequence[str] = (),
    *,
    how: str = "mean",
    others: Any = None,
    at_once: int = 16,
    progress: Progress | None = None,
) -> dict[str, np.ndarray]:
    """Returns {address: metric of the prompts without that activation}.

    A case removes one activation, or one position or head of it (`by`). Several parts are removed
    together if `parts` names them as a group.

    Zero ablation needs one prompt only, but its activations are none that the network has seen; a
    mean over many prompts keeps what all have in common, and is the better default for claims.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        prompts: tokens (B, T), a text or a list of texts, or a tuple of the model's inputs.
        parts: patterns of addresses, or names of TransformerLens' hooks, each match of which is
            removed alone; or {name of a group: patterns}, whose parts are removed together. A part
            of a group may be a head, such as "block_1/attn/head_3".
        metric: as in `patch`.
        by: "position", "head" or both, in the order of the result's axes: remove each separately.
        how: what a part writes instead: its "mean" over prompts and others at each position,
            "zero", or "resample": what it writes in the same row of `others`.
        others: prompts of the same shape; by default, "resample" takes the next prompt.
        at_once: the most cases that run in parallel.
        progress: a function of the number of finished cases and of all.

    Returns:
        As `patch`; for groups {name: metric}.

    Example:
        ablate(model, params, prompts, r"block_\\d+/attn/heads", metric, by=["head"])
        ablate(model, params, prompts, {"two heads": ["block_1/attn/head_[03]"]}, metric)
    """
    check_range("at_once", at_once, 1)
    check_choice("how", how, ABLATIONS)
    check_model_first(model, params)
    if others is None:
        prompts = _as_inputs(model, prompts)
    else:
        prompts, others = _prompts(model, prompts, others)
    if how != "zero" and others is None and len(prompts[0]) < 2:
        raise UserError(
            f"how={how!r} needs two prompts or more, got one: give others=.. or how='zero'."
        )
    if isinstance(parts, Mapping):
        if by:
            raise UserError("`by` splits activations, and a group is removed whole: leave by out.")
        known = _known_shapes(model, _as_shapes(prompts))
        cases = [group_case(model, name, group, known) for name, group in parts.items()]
        chosen = {a: known[a].shape for a in known if any(a in case for case in cases)}
    else:
        chosen = _addresses(model, prompts, parts, by)
        cases = separate_cases(chosen, by)
    own = activations(model, params, prompts, [*chosen])
    theirs = None if others is None else activations(model, params, others, [*chosen])
    new = _ablated(own, theirs, how)
    values = metric_of_cases(
        *(model, params, prompts, new, cases, metric, at_once), progress=progress
    )
    if isinstance(parts, Mapping):
        return dict(zip(parts, values, strict=True))
    return by_address(chosen, by, values)


@partial(jax.jit, static_argnames=("how",))
def _ablated(own: dict[str, Any], theirs: dict[str, Any] | None, how: str) -> dict[str, Any]:
    """Returns what activations write if their part is removed.

    Args:
        own: {address: activation} of the prompts.
        theirs: the same of other prompts, if there are any.
        how: "mean", "zero" or "resample".
    """

    def replacement(address):
        x = own[address]
        if how == "zero":
            return jnp.zeros_like(x)
        if how == "resample":
            return jnp.roll(x, -1, 0) if theirs is None else theirs[address]
        together = x if theirs is None else jnp.concatenate([x, theirs[address]])
        return jnp.broadcast_to(together.mean(0, keepdims=True), x.shape).astype(x.dtype)

    return {address: replacement(address) for address in own}


def separate_cases(chosen: Mapping[str, tuple[int, ...]], by: Sequence[str]) -> list[Case]:
    """Returns a case for each address, or each of its parts, in the order of the result."""
    cases: list[Case] = []
    for address, shape in chosen.items():
        axis_of = edits.axes(address, len(shape))
        sizes = {kind: shape[axis] for kind in by if (axis := axis_of[kind]) is not None}
        for index in np.ndindex(*sizes.values()):
            numbers = dict(zip(sizes, index, strict=True))
            cases.append({address: [Where(numbers.get("position"), numbers.get("head"))]})
    return cases


def by_address(
    chosen: Mapping[str, tuple[int, ...]], by: Sequence[str], values: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the values of `separate_cases` as an array for each address."""
    results, start = {}, 0
    for address, shape in chosen.items():
        sizes = edits.sizes(address, shape, by)
        stop = start + int(np.prod(sizes))
        results[address] = values[start:stop].reshape((*sizes, *values.shape[1:]))
        start = stop
    return results


def group_case(
    model: Model, name: str, parts: str | Sequence[str], known: Mapping[str, Any]
) -> Case:
    """Returns the case in which the parts of a group are removed together."""
    heads = {
        f"{address.removesuffix('s')}_{head}": (address, head)
        for address, x in known.items()
        if address.endswith("/attn/heads")
        for head in range(x.shape[edits.axes(address, len(x.shape))["head"]])
    }
    case: dict[str, list[Where]] = {}
    for part in [parts] if isinstance(parts, str) else parts:
        pattern = resolve(part, model)
        paths.check_pattern(pattern)
        found = [(a, None) for a in known if paths.matches(pattern, a, modules=True)]
        found = found or [heads[h] for h in heads if paths.matches(pattern, h)]
        if not found:
            hint = did_you_mean(part, [*known, *heads])
            raise UserError(f"no activation or head is {part!r}, of the group {name!r}.{hint}")
        for address, head in found:
            case.setdefault(address, []).append(Where(head=head))
    if not case:
        raise UserError(f"the group {name!r} has no parts.")
    return case


def _first_changed(model: Model, clean: jax.Array, corrupted: jax.Array) -> int:
    """Returns the first position from which on a clean activation may differ."""
    if not getattr(model.spec, "causal", False) or clean.ndim != 2:
        return 0
    return first_difference(np.asarray(clean), np.asarray(corrupted))


def attribute(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    patterns: str | Sequence[str],
    metric: Metric,
    by: Sequence[str] = (),
) -> dict[str, jax.Array]:
    """Returns {address: (clean - corrupted) . d metric / d activation} from one backward pass.

    It approximates to first order what `patch` adds to the metric.

    Args:
        model, params, clean, corrupted, patterns, by: as in `patch`.
        metric: a function of the logits (B, T, V) that returns a number.
    """
    clean, corrupted = _prompts(model, clean, corrupted)
    chosen = _addresses(model, corrupted, patterns, by)
    names = [re.escape(address) for address in chosen]
    clean_values = capture(model, params, *clean, names=names)
    values, slopes = _values_and_slopes(model, params, corrupted, chosen, metric)
    return {a: _sum_except((clean_values[a] - values[a]) * slopes[a], a, by) for a in chosen}


def gradients(
    model: Model, params: Any, *inputs: Any, names: str | Sequence[str], metric: Metric
) -> dict[str, jax.Array]:
    """Returns {address: d metric / d activation}, in the order of computation.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the model's inputs.
        names: patterns of addresses, or names of TransformerLens' hooks.
        metric: a function of the logits (B, T, V) that returns a number.

    Example:
        slopes = gradients(model, params, tokens, names="mlp_out", metric=margin)
    """
    inputs = _as_inputs(model, inputs)
    chosen = _addresses(model, inputs, names, ())
    slopes = _values_and_slopes(model, params, inputs, chosen, metric)[1]
    return {address: slopes[address] for address in chosen}


def _values_and_slopes(
    model: Model, params: Any, inputs: Any, chosen: Iterable[str], metric: Metric
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns activations and the metric's gradients with respect to them, by address."""
    names = [re.escape(address) for address in chosen]

    def shifted_metric(shifts):
        new = {re.escape(a): lambda value, a=a: value + shifts[a] for a in chosen}
        logits, values = run(model, params, *inputs, names=names, edits=new)
        return scalar(metric, logits), values

    # The gradient with respect to a zero shift equals the gradient with respect to the activation.
    known = _known_shapes(model, _as_shapes(inputs))
    no_shifts = {a: jnp.zeros(known[a].shape, known[a].dtype) for a in chosen}
    slopes, values = jax.grad(shifted_metric, has_aux=True)(no_shifts)
    return values, slopes


def path_patch(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    sender: HeadAddress,
    receiver: HeadAddress,
    metric: Metric,
) -> jax.Array:
    """Returns the metric if only `receiver` reads the clean value of `sender`, on the direct path.

    All attention layers and MLPs between the two keep their values of the corrupted prompt.

    Args:
        model, params, clean, corrupted, metric: as in `patch`.
        sender: (address, head), such as ("block_0/attn/heads", 3); head None for all heads. A head
            may be traced, so that `jax.vmap` patches all heads in one program.
        receiver: (address, head) of a later activation, such as ("block_5/attn/queries", 7).
    """
    clean, corrupted = _prompts(model, clean, corrupted)
    (source, source_head), (target, target_head) = sender, receiver
    source, target = resolve(source, model), resolve(target, model)
    known = [*_known_shapes(model, _as_shapes(corrupted))]
    if {source, target} <= {*known} and known.index(source) >= known.index(target):
        raise UserError(f"{source} does not come before {target}: there is no path.")
    names = {address: re.escape(address) for address in (source, target)}
    sent = _only_value(capture(model, params, *clean, names=[names[source]]), source)
    branches = capture(model, params, *corrupted, names=[BRANCHES])
    # Other branches keep their corrupted values, so that only the residual stream carries `sent`.
    sending_branch = source.rsplit("/", 1)[0]
    new: dict[str, Any] = {
        re.escape(address): value
        for address, value in branches.items()
        if address.rsplit("/", 1)[0] != sending_branch and address != target
    }
    new[names[source]] = edits.at(sent, heads=source_head)
    _, received = run(model, params, *corrupted, names=[names[target]], edits=new)
    replacement = edits.at(_only_value(received, target), heads=target_head)
    logits = intervene(model, params, *corrupted, {names[target]: replacement})
    return per_example(metric, logits)


def _only_value(values: dict[str, Any], address: str) -> Any:
    """Returns the value of an address; raises UserError if its pattern matched others."""
    if list(values) != [address]:
        raise UserError(f"expected the address of one activation, got {address!r}.")
    return values[address]


def _known_shapes(model: Model, inputs: tuple[jax.ShapeDtypeStruct, ...]) -> dict[str, Any]:
    """Returns {address: shape}, which is traced once for all prompts of the same shape."""
    return computed(replaceable_shapes, model, *inputs)


def _addresses(model, inputs, patterns, by) -> dict[str, tuple[int, ...]]:
    """Returns {address: shape} of the activations that the patterns match."""
    if isinstance(by, str):
        raise UserError(f"`by` must be a sequence such as ['head'], got the string {by!r}.")
    for kind in by:
        check_choice("axis of `by`", kind, KINDS)
    known = _known_shapes(model, _as_shapes(inputs))
    chosen: dict[str, tuple[int, ...]] = {}
    for name in [patterns] if isinstance(patterns, str) else patterns:
        pattern = resolve(name, model)
        paths.check_pattern(pattern)
        matched = {a: x.shape for a, x in known.items() if paths.matches(pattern, a, modules=True)}
        if not matched:
            raise paths.no_match_error(pattern, list(known))
        chosen |= matched
    return chosen


def _as_shapes(inputs: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), inputs)


def _as_inputs(model: Model, prompts: Any) -> tuple[Any, ...]:
    """Returns the model's inputs as arrays; tokens alone become a tuple of one input."""
    inputs = prompts if isinstance(prompts, tuple) else (prompts,)
    tokens = as_tokens(model, inputs[0])
    # JAX shortens the integers of NumPy, so that a large one could become a valid token.
    tokens = tokens if hasattr(tokens, "dtype") else np.asarray(tokens)
    check_tokens(model, tokens)
    inputs = (tokens, *inputs[1:])
    return tuple(part if part is None else jnp.asarray(part) for part in inputs)


def _prompts(model: Model, clean: Any, corrupted: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the inputs of both prompts; raises UserError if their shapes differ."""
    pair = _as_inputs(model, clean), _as_inputs(model, corrupted)
    first, second = ([jnp.shape(x) for x in inputs] for inputs in pair)
    if first != second:
        raise UserError(
            f"a clean and a corrupted prompt must have equal shapes, got {first} and {second}."
        )
    return pair


def _sum_except(value: jax.Array, address: str, by: Sequence[str]) -> jax.Array:
    """Sums over all axes except those of `by`. These remain in the order of `by`."""
    axis_of = edits.axes(address, value.ndim)
    kept = [axis for kind in by if (axis := axis_of[kind]) is not None]
    summed = value.sum([i for i in range(value.ndim) if i not in kept])
    return summed if kept == sorted(kept) else summed.T  # type: ignore[type-var]
