"""The signal of a network, layer by layer, as it is: the partner of theory.signal's predictions.

    cosine      of two different tokens in the residual stream
    keys        e to the mean entropy of a row of attention: how many tokens a query sees
    beta        deviation of the scores of a row over sqrt(ln T)
    gradient    rms of dLoss/dx over that after the last block; the loss is a random direction there

`by_layer` measures any model that marks its residual stream and its rows of attention, ours and
published ones. With train.signal a run logs the first, the second and the last at every evaluation
and says when a layer leaves its range (jaxformer.training.ranges):

    {"step": 400, "signal": {"cosine": [[of what enters, after block 0, ..] of each member], ..}}
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp import capture
from jaxformer.interp.observables import token_cosine
from jaxformer.models.model import Model
from jaxformer.training import ranges

SEQUENCES = 8  # of the validation set that a run looks at
LOGGED = ("cosine", "keys", "gradient")


class Signal(NamedTuple):
    """By depth: L+1 entries begin with what enters block 0, L entries with block 0."""

    cosine: jax.Array  # (L+1,)
    keys: jax.Array  # (L,)
    beta: jax.Array  # (L,)
    gradient: jax.Array  # (L+1,), 1 at last


def by_layer(model: Model, params: Any, inputs: jax.Array) -> Signal:
    """The means over the sequences of `inputs`, (B, T) tokens; jit- and vmap-safe.

    One sequence after the other, so that one holds its activations at a time.
    """
    check(model, inputs)
    draws = jax.random.split(jax.random.key(1), len(inputs))
    found = jax.lax.map(lambda one: _sequence(model, params, one[0][None], one[1]), (inputs, draws))
    cosine, entropy, spread, square = (x.mean(0) for x in found)
    T = inputs.shape[1]
    return Signal(
        cosine, jnp.exp(entropy), jnp.sqrt(spread / jnp.log(T)), jnp.sqrt(square / square[-1])
    )


def check(model: Model, inputs: Any) -> None:
    """Raises, in one line, unless the model has a signal that can be measured."""
    spec, name = model.spec, type(model).__name__
    if getattr(spec, "mixer", "softmax") != "softmax":
        raise UserError(f"the signal needs softmax attention; {name} has {spec.mixer!r}.")
    if not hasattr(spec, "layers"):
        raise UserError(
            f"the signal is that of block_0, block_1, ..; {name} does not say how many."
        )
    if inputs.shape[1] < 2:
        raise UserError("the signal is that of two tokens or more, got sequences of one.")
    # eval_shape turns NumPy's int64 into JAX's int32, where ShapeDtypeStruct warns.
    like = jax.eval_shape(lambda tokens: tokens[:1], inputs)
    known = capture.shapes(model, None, like)
    for address in (_enters(), *_ends(spec), *_rows(spec)):
        if address not in known:
            raise UserError(f"{name} has no {address}: its signal by layer cannot be measured.")
    weights = known[_rows(spec)[0]].shape
    if len(weights) != 4:
        raise UserError(f"the signal needs attention (B, H, T, T); {name} has {weights}.")


def _sequence(model: Model, params: Any, inputs_1xT: jax.Array, key: jax.Array):
    """Of one sequence: cosines, entropies, variances of the scores, mean squares of gradients."""
    stream, rows = [_enters(), *_ends(model.spec)], _rows(model.spec)
    known = capture.shapes(model, params, inputs_1xT)

    def network(nudges):
        edits = {name: partial(jnp.add, nudge) for name, nudge in zip(stream, nudges, strict=True)}
        _, found = capture.run(model, params, inputs_1xT, names=[*stream, *rows], edits=edits)
        return found[stream[-1]], found

    nudges = [jnp.zeros(known[name].shape, known[name].dtype) for name in stream]
    out, back, found = jax.vjp(network, nudges, has_aux=True)
    (gradients,) = back(jax.random.normal(key, out.shape, out.dtype))
    number = jnp.result_type(float)
    weights = [found[name].astype(number) for name in rows]
    return (
        jnp.stack([token_cosine(found[name].astype(number)).mean() for name in stream]),
        jnp.stack([jax.scipy.special.entr(a_1xHxTxT).sum(-1).mean() for a_1xHxTxT in weights]),
        jnp.stack([_spread(a_1xHxTxT) for a_1xHxTxT in weights]),
        jnp.stack([jnp.square(g.astype(number)).mean() for g in gradients]),
    )


def _spread(a_BxHxTxT: jax.Array) -> jax.Array:
    """The variance of the scores within a row, which the logarithms of its weights show; the mean
    over the rows that see two tokens or more."""
    seen = a_BxHxTxT > 0
    log = jnp.log(jnp.where(seen, a_BxHxTxT, 1))
    count = seen.sum(-1)
    mean = log.sum(-1) / jnp.maximum(count, 1)
    square = jnp.where(seen, (log - mean[..., None]) ** 2, 0).sum(-1)
    several = count > 1
    return jnp.where(several, square / jnp.maximum(count - 1, 1), 0).sum() / several.sum()


def _enters() -> str:
    return "block_0/before"


def _ends(spec: Any) -> list[str]:
    return [f"block_{i}/states" for i in range(spec.layers)]


def _rows(spec: Any) -> list[str]:
    return [f"block_{i}/attn/weights" for i in range(spec.layers)]


# Along a run --------------------------------------------------------------------------------------


class Watch:
    """Measures every member of a run, and knows which of its ranges were left already."""

    def __init__(self, model: Model, inputs: Any, members: Sequence[tuple[int, float]], place: Any):
        self.inputs, self.members = np.asarray(inputs[:SEQUENCES]), members
        check(model, self.inputs)
        self.left: set[str] = set()

        def measure(params, inputs):
            return jax.lax.map(lambda mine: by_layer(model, mine, inputs), params)

        self.measure = jax.jit(measure, out_shardings=place)

    def row(self, params: Any) -> dict[str, list[list[float]]]:
        """{name: for each member its layers}; `params` have a leading axis of members."""
        found = self.measure(params, self.inputs)._asdict()
        return {name: np.asarray(found[name], float).tolist() for name in LOGGED}

    def warnings(self, row: dict[str, list[list[float]]]) -> list[str]:
        """A line for each range that some member has left since the last call."""
        said: dict[str, list[str]] = {}
        for i, (seed, rate) in enumerate(self.members):
            mine = {name: row[name][i] for name in LOGGED}
            for what, words in ranges.outside(**mine, length=self.inputs.shape[1]).items():
                said.setdefault(what, []).append(f"{words} (seed {seed}, rate {rate:g})")
        new = [what for what in said if what not in self.left]
        self.left = set(said)
        n = len(self.members)
        return [f"{what} in {len(said[what])} of {n} members: {said[what][0]}" for what in new]


def summary(row: dict[str, list[list[float | None]]], ending: str) -> list[dict[str, float]]:
    """Per member the worst layer of each number, under names that end in `ending`: the highest
    cosine, the fewest keys, and the gradient after the first block."""
    cosine, keys, gradient = (np.asarray(row[name], float) for name in LOGGED)
    columns = {
        f"signal_cosine_{ending}": cosine[:, 1:].max(1),
        f"signal_keys_{ending}": keys.min(1),
        f"signal_gradient_{ending}": gradient[:, 1],
    }
    return [{n: float(v[i]) for n, v in columns.items()} for i in range(len(cosine))]
