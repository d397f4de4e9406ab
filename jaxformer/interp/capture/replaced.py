"""The metric of prompts in which activations are replaced, for many cases at once.

A case replaces some activations, or some heads or positions of them, by given values. `patch` takes
the values of another prompt, `ablate` means, zeros or those of other prompts.

Models whose blocks run one at a time compute only what a case can change: the blocks from the first
replaced one on and, where earlier keys and values are kept, the tokens from the first replaced one
on (`jaxformer.interp.blocks`). Other models run as a whole for each case.

Shapes: C cases, B prompts, T tokens, S the tokens of a suffix, N width.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.blocks import Blocks, Pass, addresses, block_output
from jaxformer.interp.capture import edits
from jaxformer.interp.capture.metric import Metric, per_example
from jaxformer.interp.capture.running import capture, run
from jaxformer.interp.one_block import count_blocks, is_divisible, one_block, read
from jaxformer.interp.programs import compiled
from jaxformer.models.model import Model, take_positions

Progress = Callable[[int, int], None]
MAX_TOKENS = 4096  # of all cases that run at once
MAX_STARTS = 4  # each first token has other shapes, and so another compiled program
CHUNK_TOKENS = 64  # computing fewer tokens costs less time than compiling a further program
# Activations that a pass over later tokens only has as well; it computes no rows of earlier scores.
OF_LATER_TOKENS = {"before", "states", "attn/heads", "attn/output", "mlp/output"}
IN_BLOCK = re.compile(r"block_(\d+)/(.+)")


class Where(NamedTuple):
    """The part of an activation that a case replaces; None: all of its positions or heads."""

    position: int | None = None
    head: int | None = None


Case = Mapping[str, Sequence[Where]]  # {address: parts of it}


def metric_of_cases(
    model: Model,
    params: Any,
    inputs: tuple[Any, ...],
    new: Mapping[str, jax.Array],
    cases: Sequence[Case],
    metric: Metric,
    at_once: int,
    *,
    first: int = 0,
    progress: Progress | None = None,
) -> np.ndarray:
    """Returns the metric of each case, (C,) or (C, B).

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the prompts in which activations are replaced, and further inputs of the model.
        new: {address: the values that take the place of an activation}, of its shape.
        cases: what each case replaces.
        metric: a function of the logits (B, T, V), or (B, K, V) if `inputs` have positions.
        at_once: the most cases that run in parallel.
        first: the position from which on new values differ, in a model that reads earlier tokens
            only.
        progress: a function of the number of finished cases and of all.

    The metric is a part of no kept program: what a function of the caller reads may have changed
    since the last call, so it is traced once in each call, and applied to a chunk of cases at a
    time.
    """
    by_block = _runs_by_block(model, inputs, new)
    positions_BxK = inputs[1] if len(inputs) > 1 else None

    @jax.jit
    def metric_of_chunk(params, outputs_C):
        def one_case(output):
            logits = output
            if by_block:  # the states after the last block
                logits = _read_out(model, params, take_positions(output, positions_BxK))
            return per_example(metric, logits)

        return jax.vmap(one_case)(outputs_C)

    # Cases that replace nothing after the tokens that all prompts share are one case.
    same = np.array([by_block and _changes_nothing(case, first) for case in cases])
    run_alone = np.unique(np.where(same, same.argmax(), np.arange(len(cases))))
    runs: Any = _ByBlock if by_block else _Whole
    chunks = runs(model, params, inputs, new, [cases[i] for i in run_alone], at_once, first)
    values: Any = None
    done = 0
    for chunk, outputs_CxBxTxN in chunks:
        chosen = run_alone[chunk]
        of_chunk = np.asarray(metric_of_chunk(params, outputs_CxBxTxN))
        if values is None:
            values = np.empty((len(cases), *of_chunk.shape[1:]), of_chunk.dtype)
        values[chosen] = of_chunk[: len(chosen)]
        if progress is not None:
            done += len(chosen)
            progress(done, len(run_alone))
    if same.any():
        values[same] = values[same.argmax()]
    return values


def _changes_nothing(case: Case, first: int) -> bool:
    """Whether a case replaces only positions before the first one that has new values."""
    return all(
        where.position is not None and where.position < first
        for parts in case.values()
        for where in parts
    )


def activations(
    model: Model, params: Any, inputs: tuple[Any, ...], chosen: Sequence[str]
) -> dict[str, jax.Array]:
    """Returns {address: activation} of a run, block by block where that is possible."""
    names: list[str] = []
    if _runs_by_block(model, inputs, chosen):
        places = {address: _block_of(address) for address in chosen}
        names = sorted({name for _, name in places.values()})
    if not names or not OF_LATER_TOKENS.issuperset(names):
        return compiled(_captured, model, tuple(chosen))(params, inputs)
    values = Blocks(model, params).forward(inputs[0], names).values
    return {address: values[block][name] for address, (block, name) in places.items()}


def _captured(model, chosen, params, inputs):
    return capture(model, params, *inputs, names=[re.escape(address) for address in chosen])


def _runs_by_block(model: Model, inputs: tuple[Any, ...], chosen: Iterable[str]) -> bool:
    """Whether each replaced activation lies in a block, and the read-out follows the last one."""
    if not is_divisible(model) or not getattr(model.spec, "has_logits", True):
        return False
    if any(given is not None for given in inputs[2:]):  # such as the segments of an encoder
        return False
    known = {f"block_{i}/{a}" for i in range(count_blocks(model)) for a in _in_block(model, i)}
    return {*chosen} <= known


def _in_block(model: Model, block: int) -> tuple[str, ...]:
    return addresses(one_block(model, block))


def _read_out(model: Model, params: Any, last_BxKxN: jax.Array) -> jax.Array:
    """Returns the logits (B, K, V) of the last block's states."""
    last = count_blocks(model) - 1
    last_params = {name: x for name, x in params.items() if not name.startswith("block_")}
    last_params["block_0"] = params[f"block_{last}"]
    return read(one_block(model, last), last_params, last_BxKxN)


class _Whole:
    """Runs the whole network for each chunk of cases, and yields its logits."""

    def __init__(self, model, params, inputs, new, cases, at_once, first):
        del first
        self.params, self.inputs, self.new, self.cases = params, inputs, new, cases
        self.at_once = min(at_once, len(cases))
        self.program = compiled(_replaced, model)

    def __iter__(self):
        for start in range(0, len(self.cases), self.at_once):
            chosen = np.arange(start, min(start + self.at_once, len(self.cases)))
            masks = _masks(self.cases, _filled(chosen, self.at_once), self.new)
            yield chosen, self.program(self.params, self.inputs, self.new, masks)


def _replaced(model, params, inputs, new, masks):
    """Returns the logits (C, B, T, V) of each case."""

    def one_case(masks_of_case):
        def replace(value, address):
            return jnp.where(masks_of_case[address], new[address], value)

        replace.takes_address = True
        changed = {re.escape(address): replace for address in new}
        return run(model, params, *inputs, names=[], edits=changed)[0]

    return jax.vmap(one_case)(masks)


class _ByBlock:
    """Runs what each case can change, and yields the last states of chunks, (C, B, T, N)."""

    def __init__(self, model, params, inputs, new, cases, at_once, first):
        self.blocks = Blocks(model, params)
        self.base: Pass = self.blocks.forward(inputs[0])
        self.new, self.cases, self.at_once = new, cases, at_once
        self.in_blocks = [_block_of(address) for address in new]
        self.first = self._starts(first)

    def _starts(self, first: int) -> np.ndarray:
        """Returns the first token that each case computes."""
        names = {name for _, name in self.in_blocks}
        if not self.blocks.has_memory or not names <= OF_LATER_TOKENS:
            return np.zeros(len(self.cases), int)
        starts = []
        for case in self.cases:
            positions = [
                first if where.position is None else max(where.position, first)
                for parts in case.values()
                for where in parts
            ]
            starts.append(min(positions, default=self.length))
        return np.array(starts)

    @property
    def length(self) -> int:
        return self.base.tokens_BxT.shape[1]

    def __iter__(self):
        blocks_C = np.array([min(_block_of(a)[0] for a in case) for case in self.cases])
        for start, in_part in self._parts():
            n_tokens = self.base.tokens_BxT[:, start:].size
            at_once = int(np.clip(MAX_TOKENS // max(n_tokens, 1), 1, self.at_once))
            at_once = min(at_once, len(in_part))
            # Blocks before the first replaced one compute nothing new, so cases are in its order.
            in_order = in_part[np.argsort(blocks_C[in_part], kind="stable")]
            for i in range(0, len(in_order), at_once):
                chosen = in_order[i : i + at_once]
                filled = _filled(chosen, at_once)
                yield chosen, self._last_states(filled, int(blocks_C[chosen].min()), start)

    def _parts(self) -> list[tuple[int, np.ndarray]]:
        """Returns the cases that are computed from the same token on, with few such tokens."""
        order = np.argsort(self.first, kind="stable")
        distinct = np.unique(self.first)
        n_tokens = len(distinct) * self.base.tokens_BxT[:, distinct[0] :].size
        n_parts = max(min(-(-n_tokens // CHUNK_TOKENS), MAX_STARTS, len(distinct)), 1)
        starts = [part.min() for part in np.array_split(distinct, n_parts)]
        part_C = np.searchsorted(starts, self.first[order], side="right") - 1
        return [
            (min(int(start), self.length - 1), order[part_C == i]) for i, start in enumerate(starts)
        ]

    def _last_states(self, filled: np.ndarray, block: int, start: int) -> jax.Array:
        n_cases, blocks = len(filled), self.blocks
        suffix = self.base.suffix(start)
        states = jnp.tile(self.base.states[block][:, start:], (n_cases, 1, 1))
        for i in range(block, blocks.n_blocks):
            names = {name: f"block_{i}/{name}" for j, name in self.in_blocks if j == i}
            if not names:
                states = blocks.run(i, states, suffix)
                continue
            new = {name: self.new[address] for name, address in names.items()}
            masks = _masks(self.cases, filled, {a: self.new[a] for a in names.values()})
            states = _block_with(
                *blocks.of_block(i),
                *(suffix.tokens_BxT, states, suffix.memory[i] if start else None, start),
                {name: _from(start, name, x) for name, x in new.items()},
                {name: _from(start, name, masks[a], 1) for name, a in names.items()},
            )
        return _whole_states(self.base.states[-1], states, start, n_cases)


def _block_of(address: str) -> tuple[int, str]:
    """Returns the number of the block and the address within it."""
    found = IN_BLOCK.fullmatch(address)
    assert found is not None, address
    return int(found[1]), found[2]


def _from(start: int, name: str, value: Any, axes_before: int = 0) -> Any:
    """Returns the positions from `start` on of an activation or its mask."""
    axis = edits.axes(name, value.ndim - axes_before)["position"]
    if not start or axis is None or value.shape[axis + axes_before] == 1:
        return value
    return jax.lax.slice_in_dim(value, start, None, axis=axis + axes_before)


@partial(jax.jit, static_argnames=("model",))
def _block_with(model, params, tokens_BxT, states_RxTxN, memory, start, new, masks):
    """Returns the states (C B, T, N) after a block, some of whose activations are replaced."""

    def edit(name: str) -> Any:
        mask, values = masks[name], new[name]

        def replaced(value: jax.Array) -> jax.Array:
            by_case = value.reshape(len(mask), -1, *value.shape[1:])
            return jnp.where(mask, values[None], by_case).reshape(value.shape)

        return replaced

    changed = {name: edit(name) for name in new}
    if "before" in changed:  # the states themselves
        states_RxTxN = changed.pop("before")(states_RxTxN)
    return block_output(model, params, tokens_BxT, states_RxTxN, memory, start, changed)[0]


@partial(jax.jit, static_argnames=("start", "n_cases"))
def _whole_states(base_BxTxN, last_RxSxN, start, n_cases):
    """Returns states (C, B, T, N): those of the base pass before `start`."""
    by_case = last_RxSxN.reshape(n_cases, -1, *last_RxSxN.shape[1:])
    earlier = jnp.broadcast_to(base_BxTxN[None, :, :start], (n_cases, *base_BxTxN[:, :start].shape))
    return jnp.concatenate([earlier, by_case], 2)


def _masks(cases: Sequence[Case], chosen: np.ndarray, new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {address: booleans (C, 1, ..)}, which broadcast to its activation in each case."""
    masks = {}
    for address, value in new.items():
        shape = value.shape
        axis_of = edits.axes(address, len(shape))
        kept = {axis: shape[axis] for axis in axis_of.values() if axis is not None}
        small = tuple(kept.get(axis, 1) for axis in range(len(shape)))
        mask = np.zeros((len(chosen), *small), bool)
        for row, case in zip(mask, chosen, strict=True):
            for where in cases[case].get(address, ()):
                row |= edits.mask(address, shape, where.head, where.position)
        masks[address] = mask
    return masks


def _filled(chosen: np.ndarray, size: int) -> np.ndarray:
    """Returns as many cases as one program takes: the last one is repeated."""
    return np.pad(chosen, (0, size - len(chosen)), mode="edge")
