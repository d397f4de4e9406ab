"""Activation patching: how much of a clean prompt's answer an activation restores.

    patch       the metric of the corrupted run with one activation of the clean run
    attribute   a first-order estimate of what `patch` adds to the metric, from a single gradient
    gradients   the gradient of a metric with respect to each activation
    path_patch  patches the output of one head into one later reader only

Sources: Wang et al. 2211.00593; Goldowsky-Dill et al. 2304.05969; Nanda 2023 (`attribute`).
"""

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.interp.capture import edits
from jaxformer.interp.capture.aliases import resolve
from jaxformer.interp.capture.metric import Metric, per_example, scalar
from jaxformer.interp.capture.running import (
    capture,
    check_tokens,
    intervene,
    replaceable_shapes,
    run,
)
from jaxformer.interp.one_block import count_blocks, is_divisible, one_block, read
from jaxformer.interp.programs import compiled, computed
from jaxformer.models.activation_points import AFTER_BLOCKS
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens, check_model_first

KINDS = ("position", "head")
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
) -> dict[str, np.ndarray]:
    """Returns {address: metric of the corrupted run with that activation of the clean run}.

    A case patches one activation, or one position or head of it (`by`). One compiled program runs
    all cases, also for other prompts of the same shape and for other metrics.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        clean: tokens (B, T), a text or a list of texts, or a tuple of the model's inputs.
        corrupted: as `clean`, with the same shapes.
        patterns: patterns of addresses, or names of TransformerLens' hooks.
        metric: a function of the logits (B, T, V) that returns one number, or one for each example.
            It is traced anew in each call, once or twice, so that it may read variables that change
            between calls.
        by: "position", "head" or both, in the order of the result's axes: patch each separately.
        at_once: cases that run in parallel.

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
    cases = _cases(chosen, by, at_once)
    values = _metric_of_cases(model, params, clean, corrupted, tuple(chosen), metric, cases)
    if (values == values[0]).all():  # rarely, so the run without a patch costs nothing otherwise
        unpatched = np.asarray(per_example(metric, run(model, params, *corrupted)[0]))
        if np.allclose(values[0], unpatched, rtol=1e-6, atol=1e-6):
            warnings.warn(
                _NO_EFFECT.format(f"{len(chosen)} address" + "es" * (len(chosen) > 1)), stacklevel=2
            )
    results, start = {}, 0
    for address, shape in chosen.items():
        sizes = edits.sizes(address, shape, by)
        stop = start + int(np.prod(sizes))
        results[address] = values[start:stop].reshape((*sizes, *values.shape[1:]))
        start = stop
    return results


def _metric_of_cases(
    model: Model,
    params: Any,
    clean: tuple[Any, ...],
    corrupted: tuple[Any, ...],
    chosen: tuple[str, ...],
    metric: Metric,
    cases: np.ndarray,
) -> np.ndarray:
    """Returns the metric of all cases of `_cases`, with those that fill the last chunk.

    The network is a program that is kept for the addresses and shapes. The metric is none of its
    parts: what a function of the caller reads may have changed since the last call, so it is traced
    once in each call, and applied to one chunk of cases at a time.
    """
    clean_values = compiled(_clean_values, model, chosen)(params, clean)
    # Where the read-out can be a program of its own, it is compiled together with the metric. XLA
    # then computes no logits at positions that the metric does not read.
    is_split = _is_read_alone(model, chosen, corrupted)
    last_states = f"block_{count_blocks(model) - 1}/states" if is_split else None
    patched = compiled(_patched, model, chosen, last_states)

    @jax.jit
    def metric_of_chunk(params, outputs_C):
        def one_case(output):
            logits = _read_out(model, params, output) if is_split else output
            return per_example(metric, logits)

        return jax.vmap(one_case)(outputs_C)

    values = []
    for chunk in cases:
        # Nothing keeps the output of a chunk, so the next chunk can take its memory.
        of_chunk = metric_of_chunk(params, patched(params, clean_values, corrupted, chunk))
        values.append(np.asarray(of_chunk))
    return np.concatenate(values)


def _clean_values(model, chosen, params, clean):
    return capture(model, params, *clean, names=[re.escape(address) for address in chosen])


def _patched(model, chosen, last_states, params, clean_values, corrupted, cases_Cx3):
    """Returns the logits (C, B, T, V) of the corrupted run under each of some cases.

    With the address of the last block's states it returns these, (C, B, T, N).
    """
    kept = [] if last_states is None else [re.escape(last_states)]

    def one_case(case_3):
        def replace(value, address):
            is_patched = _is_patched(address, value.shape, chosen.index(address), case_3)
            return jnp.where(is_patched, clean_values[address], value)

        replace.takes_address = True
        new = {re.escape(address): replace for address in chosen}
        logits, values = run(model, params, *corrupted, names=kept, edits=new)
        return logits if last_states is None else values[last_states]

    return jax.vmap(one_case)(cases_Cx3)


def _is_read_alone(model: Model, chosen: Iterable[str], inputs: tuple[Any, ...]) -> bool:
    """Whether all patches lie before the final norm, and logits are read at all positions."""
    if not is_divisible(model) or not getattr(model.spec, "has_logits", True):
        return False
    reads_everywhere = len(inputs) < 2 or inputs[1] is None
    return reads_everywhere and not any(address in AFTER_BLOCKS for address in chosen)


def _read_out(model: Model, params: Any, last_BxTxN: jax.Array) -> jax.Array:
    """Returns the logits (B, T, V) of the last block's states."""
    last = count_blocks(model) - 1
    last_params = {name: x for name, x in params.items() if not name.startswith("block_")}
    last_params["block_0"] = params[f"block_{last}"]
    return read(one_block(model, last), last_params, last_BxTxN)


def _is_patched(address: str, shape: tuple[int, ...], index: int, case_3: jax.Array) -> jax.Array:
    """Returns booleans that broadcast to `shape`: the entries that a case of `_cases` patches.

    `index` is the number of the address among all addresses.
    """
    axis_of = edits.axes(address, len(shape))
    is_patched = case_3[0] == index
    for kind, number in zip(KINDS, case_3[1:], strict=True):
        axis = axis_of[kind]
        if axis is not None:
            on_axis = (jnp.arange(shape[axis]) == number) | (number < 0)
            other_axes = [i for i in range(len(shape)) if i != axis]
            is_patched = is_patched & jnp.expand_dims(on_axis, other_axes)
    return is_patched


def _cases(chosen: dict[str, tuple[int, ...]], by: Sequence[str], at_once: int) -> np.ndarray:
    """Returns all cases, (chunks, at_once, 3): index of the address, position, head.

    -1 stands for all positions or heads. The last case is repeated to fill its chunk.
    """
    rows = []
    for index, (address, shape) in enumerate(chosen.items()):
        axis_of = edits.axes(address, len(shape))
        sizes = {kind: shape[axis] for kind in by if (axis := axis_of[kind]) is not None}
        positions, heads = (range(sizes[kind]) if kind in sizes else [-1] for kind in KINDS)
        # The cases are in the order of the result's axes, which is that of `by`.
        if list(sizes) == ["head", "position"]:
            rows += [(index, p, h) for h in heads for p in positions]
        else:
            rows += [(index, p, h) for p in positions for h in heads]
    at_once = min(at_once, len(rows))
    rows += [rows[-1]] * (-len(rows) % at_once)
    return np.array(rows, np.int32).reshape(-1, at_once, 3)


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
