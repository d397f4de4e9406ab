"""The signal of a network by layer, measured; `theory.signal` predicts the same numbers.

    cosine      between two different tokens in the residual stream
    keys        exp of the mean entropy of an attention row: how many tokens a query sees
    beta        standard deviation of the scores in a row over sqrt(ln T)
    gradient    rms of dLoss/dx, divided by the rms after the last block. The loss is the inner
                product of the last residual stream with a random direction

`by_layer` works for each model with activation addresses for residual stream and attention rows.
With `train.signal` a run logs cosine, keys and gradient at every evaluation, and warns when a layer
leaves its range (`jaxformer.training.ranges`):

    {"step": 400, "signal": {"cosine": [[before block 0, after block 0, ..] of each member], ..}}

Letters: B sequences, T tokens, H heads, L layers.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.interp import capture
from jaxformer.interp.observables import token_cosine
from jaxformer.models.model import Model
from jaxformer.runtime.processes import is_writer
from jaxformer.training import ranges
from jaxformer.training.callbacks import Every

LOGGED_SEQUENCES = 8  # of the validation set
LOGGED = ("cosine", "keys", "gradient")


class Signal(NamedTuple):
    """The signal by depth. Arrays of L+1 entries begin with the input of block 0."""

    cosine: jax.Array  # (L+1,)
    keys: jax.Array  # (L,)
    beta: jax.Array  # (L,)
    gradient: jax.Array  # (L+1,), the last entry is 1


def by_layer(model: Model, params: Any, inputs: jax.Array) -> Signal:
    """Returns the means of the signal over sequences.

    The function can be jitted and vmapped. It computes one sequence after the other, so only the
    activations of one sequence are in memory.

    Args:
      model: a model with `block_i/states` and `block_i/attn/weights`.
      params: its parameters.
      inputs: (B, T) tokens.
    """
    check(model, inputs)
    keys = jax.random.split(jax.random.key(1), len(inputs))

    def one_sequence(args):
        tokens_T, key = args
        return _sequence_signal(model, params, tokens_T[None], key)

    by_sequence = jax.lax.map(one_sequence, (inputs, keys))
    cosine, entropy, variance, squared_gradient = (x.mean(0) for x in by_sequence)
    T = inputs.shape[1]
    return Signal(
        cosine,
        jnp.exp(entropy),
        jnp.sqrt(variance / jnp.log(T)),
        jnp.sqrt(squared_gradient / squared_gradient[-1]),
    )


def check(model: Model, inputs: Any) -> None:
    """Raises UserError unless the signal of the model can be measured on (B, T) tokens."""
    spec, name = model.spec, type(model).__name__
    if getattr(spec, "mixer", "softmax") != "softmax":
        raise UserError(f"the signal needs softmax attention; {name} has {spec.mixer!r}.")
    if not hasattr(spec, "layers"):
        raise UserError(
            f"the signal needs blocks block_0, block_1, ..; the spec of {name} has no `layers`."
        )
    if inputs.shape[1] < 2:
        raise UserError("the signal needs two tokens or more, got sequences of one.")
    # eval_shape turns NumPy's int64 into JAX's int32, where ShapeDtypeStruct warns.
    first = jax.eval_shape(lambda tokens: tokens[:1], inputs)
    shapes = capture.shapes(model, None, first)
    for address in (*_stream_addresses(spec), *_row_addresses(spec)):
        if address not in shapes:
            raise UserError(f"{name} has no {address}: its signal by layer cannot be measured.")
    weights = shapes[_row_addresses(spec)[0]].shape
    if len(weights) != 4:
        raise UserError(f"the signal needs attention (B, H, T, T); {name} has {weights}.")


def _sequence_signal(model: Model, params: Any, inputs_1xT: jax.Array, key: jax.Array):
    """Returns cosines, entropies, score variances and mean squared gradients of a sequence."""
    stream, rows = _stream_addresses(model.spec), _row_addresses(model.spec)
    shapes = capture.shapes(model, params, inputs_1xT)

    def network(offsets):
        edits = {name: partial(jnp.add, x) for name, x in zip(stream, offsets, strict=True)}
        names = [*stream, *rows]
        _, activations = capture.run(model, params, inputs_1xT, names=names, edits=edits)
        return activations[stream[-1]], activations

    # The gradient at a state equals the gradient at an offset of 0 that is added to the state.
    offsets = [jnp.zeros(shapes[name].shape, shapes[name].dtype) for name in stream]
    out, backward, activations = jax.vjp(network, offsets, has_aux=True)
    (gradients,) = backward(jax.random.normal(key, out.shape, out.dtype))
    dtype = jnp.result_type(float)
    weights = [activations[name].astype(dtype) for name in rows]
    return (
        jnp.stack([token_cosine(activations[name].astype(dtype)).mean() for name in stream]),
        jnp.stack([jax.scipy.special.entr(a_1xHxTxT).sum(-1).mean() for a_1xHxTxT in weights]),
        jnp.stack([_score_variance(a_1xHxTxT) for a_1xHxTxT in weights]),
        jnp.stack([jnp.square(g.astype(dtype)).mean() for g in gradients]),
    )


def _score_variance(a_BxHxTxT: jax.Array) -> jax.Array:
    """Returns the variance of scores within a row, averaged over rows.

    Rows with a single visible token are left out.
    The logarithm of a weight is its score up to a constant of the row.
    """
    visible = a_BxHxTxT > 0
    log = jnp.log(jnp.where(visible, a_BxHxTxT, 1))
    count = visible.sum(-1)
    mean = log.sum(-1) / jnp.maximum(count, 1)
    square = jnp.where(visible, (log - mean[..., None]) ** 2, 0).sum(-1)
    has_variance = count > 1
    variances = jnp.where(has_variance, square / jnp.maximum(count - 1, 1), 0)
    return variances.sum() / has_variance.sum()


def _stream_addresses(spec: Any) -> list[str]:
    return ["block_0/before", *(f"block_{i}/states" for i in range(spec.layers))]


def _row_addresses(spec: Any) -> list[str]:
    return [f"block_{i}/attn/weights" for i in range(spec.layers)]


# Along a run --------------------------------------------------------------------------------------


class SignalRows(Every):
    """Writes a row of the signal of every member at each evaluation, and warns on standard error.

    Args:
      interval: steps between two rows.
    """

    def __init__(self, interval: int):
        super().__init__(interval, self.write_row, at_start=True)
        self.outside: set[str] = set()  # ranges that some member had left at the last row

    def on_start(self, session: Any) -> None:
        self.session, setup = session, session.setup
        self.inputs = np.asarray(session.heldout.validation.inputs[:LOGGED_SEQUENCES])
        check(setup.model, self.inputs)

        def measure(params, inputs):
            return jax.lax.map(lambda member: by_layer(setup.model, member, inputs), params)

        on_all_devices = NamedSharding(setup.mesh, PartitionSpec())
        self.measure = jax.jit(measure, out_shardings=on_all_devices)

    def write_row(self, state: Any, step: int) -> None:
        params = Partition.merge(state.trainable, state.frozen)
        signal = self.measure(params, self.inputs)._asdict()
        row = {name: np.asarray(signal[name], float).tolist() for name in LOGGED}
        self.session.workdir.append([{"step": step, "signal": row}])
        for line in self.new_warnings(row) if is_writer() else []:
            if self.session.progress.line:
                self.session.progress.line.clear()
            print(f"warning: step {step}: {line}", file=sys.stderr)

    def new_warnings(self, row: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
        """Returns a line for each range that a member has left, if none had at the last call."""
        lines: dict[str, list[str]] = {}
        members, length = self.session.setup.population.members, self.inputs.shape[1]
        for i, (seed, rate) in enumerate(members):
            layers = {name: row[name][i] for name in LOGGED}
            for problem, line in ranges.outside(**layers, length=length).items():
                lines.setdefault(problem, []).append(f"{line} (seed {seed}, rate {rate:g})")
        new = [problem for problem in lines if problem not in self.outside]
        self.outside = set(lines)
        n = len(members)
        return [f"{name} in {len(lines[name])} of {n} members: {lines[name][0]}" for name in new]


def summary(
    row: Mapping[str, Sequence[Sequence[float | None]]], ending: str
) -> list[dict[str, float]]:
    """Returns each member's highest cosine, fewest keys, and gradient after the first block.

    Args:
      row: {name: (members, layers)} values of a row of the signal.
      ending: the end of the metrics' names, "start" or "end".
    """
    cosine, keys, gradient = (np.asarray(row[name], float) for name in LOGGED)
    columns = {
        f"signal_cosine_{ending}": cosine[:, 1:].max(1),
        f"signal_keys_{ending}": keys.min(1),
        f"signal_gradient_{ending}": gradient[:, 1],
    }
    return [{n: float(v[i]) for n, v in columns.items()} for i in range(len(cosine))]
