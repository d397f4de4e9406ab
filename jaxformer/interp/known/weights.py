"""The weights of a decoder that has a part of the residual stream for each variable.

Idle heads and MLPs read everything and write into a subspace of their own, which no answer reads. A
rotation of the stream mixes all subspaces without changing any output. Noise is the only thing that
does.

Shape letters: N the width of the stream, H D the heads side by side, M hidden units.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.known.parts import SHARPNESS, Head, Neurons, Part, Plan, Read
from jaxformer.interp.known.placement import Place, Placed
from jaxformer.interp.known.program import ANSWER, NUMBER, POSITION, TOKEN, Program
from jaxformer.models.decoder import Decoder, decoder

GAIN = 8.0  # of the unembedding: the logit of an answer
JUNK = "junk"
JUNK_WIDTH = 6  # of the subspace of idle heads and MLPs
IDLE_STD = 0.5  # of what idle queries, keys and values read from one variable


@dataclass(frozen=True)
class Shape:
    """The sizes of a network, apart from its vocabulary and length."""

    heads: int
    layers: int
    width: int
    head_width: int
    mlp_width: int


def shape_of(
    placed: Placed,
    heads: int | None = None,
    layers: int | None = None,
    width: int | None = None,
    head_width: int | None = None,
    mlp_width: int | None = None,
) -> Shape:
    """The sizes that the parts need, or given ones; raises UserError if those do not suffice."""
    plan = placed.plan
    of_heads = [part.width for part in plan.parts if isinstance(part, Head)]
    sizes = ", ".join(f"{name} {size}" for name, size in _subspaces(plan).items())
    return Shape(
        heads=_enough("heads", placed.heads, heads),
        layers=_enough("layers", placed.layers, layers),
        width=_enough("width", sum(_subspaces(plan).values()), width, sizes),
        head_width=_enough("head_width", max(of_heads, default=1), head_width),
        mlp_width=_enough("mlp_width", max(placed.hidden_units().values(), default=1), mlp_width),
    )


def _enough(name: str, needed: int, given: int | None, parts: str = "") -> int:
    """The given size if it is at least what is needed."""
    if given is not None and given < needed:
        of_parts = f" ({parts})" if parts else ""
        raise UserError(
            f"the program does not fit: it needs a {name} of {needed}{of_parts}, got "
            f"{name}={given}. Give {name}={needed} or fewer values."
        )
    return needed if given is None else given


def _subspaces(plan: Plan) -> dict[str, int]:
    """{name: the width of a subspace of the stream}, in their order."""
    return {**plan.sizes, JUNK: JUNK_WIDTH}


def model_of(program: Program, shape: Shape) -> Decoder:
    """The decoder, without norms, of these sizes."""
    return decoder(
        vocab_size=program.vocab_size,
        length=program.length,
        width=shape.width,
        layers=shape.layers,
        heads=shape.heads,
        head_width=shape.head_width,
        mlp_width=shape.mlp_width,
        gated=False,
        act="relu",
        positions="none",
        learned_positions=True,
        use_norm=False,
        use_bias=True,
        outputs=int(program.sizes[ANSWER] == NUMBER),
    )


def params_of(
    program: Program,
    placed: Placed,
    shape: Shape,
    idle: list[Place],
    is_rotated: bool,
    noise: float,
    random: np.random.Generator,
) -> dict[str, Any]:
    """The parameters of the decoder.

    Args:
        program: the program.
        placed: its parts.
        shape: the sizes of the network.
        idle: the heads and MLPs with random weights; those without any part are zero.
        is_rotated: whether the stream is rotated.
        noise: the standard deviation of the noise on each weight, as a share of the root mean
            square of its kind.
        random: draws the weights of idle parts, the rotation and the noise.
    """
    arrays = Arrays(placed.plan, shape)
    arrays.embed(program)
    for part, its_place in zip(placed.plan.parts, placed.places, strict=True):
        arrays.set(part, its_place)
    for its_place in idle:
        arrays.set_idle(its_place, random)
    if is_rotated:
        arrays.rotate(random)
    if noise:
        arrays.add_noise(noise, random)
    leaves = {path: jnp.asarray(array, jnp.float32) for path, array in arrays.arrays.items()}
    return paths.unflatten(leaves)


class Arrays:
    """The arrays of a decoder by path, which parts fill."""

    def __init__(self, plan: Plan, shape: Shape):
        self.shape = shape
        starts = np.cumsum([0, *_subspaces(plan).values()])
        self.subspaces = {
            name: slice(starts[i], starts[i] + size)
            for i, (name, size) in enumerate(_subspaces(plan).items())
        }
        self.arrays: dict[str, np.ndarray] = {}
        self.units_used = dict.fromkeys(range(shape.layers), 0)
        width, n_columns = shape.width, shape.heads * shape.head_width
        for block in range(shape.layers):
            for letter in ("query", "key", "value"):
                self._zeros(f"block_{block}/attn/{letter}", width, n_columns)
            self._zeros(f"block_{block}/attn/out", n_columns, width)
            self._zeros(f"block_{block}/mlp/in", width, shape.mlp_width)
            self._zeros(f"block_{block}/mlp/out", shape.mlp_width, width)

    def _zeros(self, module: str, n_rows: int, n_columns: int) -> None:
        self.arrays[f"{module}/kernel"] = np.zeros((n_rows, n_columns))
        self.arrays[f"{module}/bias"] = np.zeros(n_columns)

    def embed(self, program: Program) -> None:
        """Sets the tables of tokens and positions, and the unembedding."""
        width = self.shape.width
        tokens_VxN = np.zeros((program.vocab_size, width))
        tokens_VxN[:, self.subspaces[TOKEN]] = np.eye(program.vocab_size)
        positions_TxN = np.zeros((program.length, width))
        positions_TxN[:, self.subspaces[POSITION]] = np.eye(program.length)
        size = program.sizes[ANSWER]
        unembed_KxV = GAIN * np.eye(size, program.vocab_size)
        if size == NUMBER:
            unembed_KxV = np.ones((1, 1))
        unembed_NxV = np.zeros((width, unembed_KxV.shape[1]))
        unembed_NxV[self.subspaces[ANSWER]] = unembed_KxV
        self.arrays["embed/embedding"] = tokens_VxN
        self.arrays["positions/embedding"] = positions_TxN
        self.arrays["unembed/kernel"] = unembed_NxV

    def set(self, part: Part, place: Place) -> None:
        """Sets the weights of a part at its place."""
        if isinstance(part, Head):
            self._set_head(part, place)
        else:
            self._set_neurons(part, place)

    def _set_head(self, part: Head, place: Place) -> None:
        attn, first = f"block_{place.block}/attn", self._first_column(place)
        # Half of the sharpness, and half of the scale 1/sqrt(D), in queries and in keys.
        factor = (SHARPNESS * self.shape.head_width**0.5) ** 0.5
        for letter, reads, scale in (
            ("query", part.queries, factor),
            ("key", part.keys, factor),
            ("value", (part.values,), 1.0),
        ):
            self._read(f"{attn}/{letter}/kernel", first, reads, scale)
        columns = slice(first, first + len(part.bias))
        self.arrays[f"{attn}/query/bias"][columns] = factor * part.bias
        rows = slice(first, first + len(part.out))
        self.arrays[f"{attn}/out/kernel"][rows, self.subspaces[part.writes]] = part.out

    def _set_neurons(self, part: Neurons, place: Place) -> None:
        mlp, first = f"block_{place.block}/mlp", self.units_used[place.block]
        units = slice(first, first + len(part.bias))
        self.units_used[place.block] = units.stop
        self._read(f"{mlp}/in/kernel", first, part.inputs, 1.0)
        self.arrays[f"{mlp}/in/bias"][units] = part.bias
        self.arrays[f"{mlp}/out/kernel"][units, self.subspaces[part.writes]] = part.out

    def _read(self, path: str, first: int, reads: tuple[Read, ...], scale: float) -> None:
        """Adds the matrices of reads to a kernel, from its column `first` on."""
        for read in reads:
            columns = slice(first, first + read.matrix.shape[1])
            self.arrays[path][self.subspaces[read.variable], columns] += scale * read.matrix

    def set_idle(self, place: Place, random: np.random.Generator) -> None:
        """Sets random weights that read everything and write where no answer reads."""
        width, junk = self.shape.width, self.subspaces[JUNK]
        if place.head is None:
            inputs, out = (
                f"block_{place.block}/mlp/in/kernel",
                f"block_{place.block}/mlp/out/kernel",
            )
            n_units = self.shape.mlp_width
            self.arrays[inputs][:] = IDLE_STD * random.normal(size=(width, n_units))
            self.arrays[out][:, junk] = random.normal(size=(n_units, JUNK_WIDTH)) / n_units
            return
        attn, first = f"block_{place.block}/attn", self._first_column(place)
        columns = slice(first, first + self.shape.head_width)
        size = width, self.shape.head_width
        for letter in ("query", "key", "value"):
            self.arrays[f"{attn}/{letter}/kernel"][:, columns] = IDLE_STD * random.normal(size=size)
        out_DxJ = random.normal(size=(self.shape.head_width, JUNK_WIDTH))
        self.arrays[f"{attn}/out/kernel"][columns, junk] = out_DxJ * self.shape.head_width**-0.5

    def rotate(self, random: np.random.Generator) -> None:
        """Rotates the stream: what writes into it is turned, what reads it is turned back."""
        width = self.shape.width
        rotation_NxN = np.linalg.qr(random.normal(size=(width, width)))[0]
        for path, array in self.arrays.items():
            module, leaf = path.split("/")[-2:]
            if leaf == "embedding" or module == "out":
                self.arrays[path] = array @ rotation_NxN
            elif leaf == "kernel":
                self.arrays[path] = rotation_NxN.T @ array

    def add_noise(self, noise: float, random: np.random.Generator) -> None:
        """Adds Gaussian noise to all weights, scaled by their kind: the same name in all blocks."""
        kinds: dict[str, list[str]] = {}
        for path in self.arrays:
            kinds.setdefault(path.split("/", 1)[-1] if "block_" in path else path, []).append(path)
        for same in kinds.values():
            numbers = np.concatenate([self.arrays[path].ravel() for path in same])
            scale = noise * np.sqrt(np.mean(numbers**2))
            for path in same:
                size = self.arrays[path].shape
                self.arrays[path] = self.arrays[path] + scale * random.normal(size=size)

    def _first_column(self, place: Place) -> int:
        assert place.head is not None
        return place.head * self.shape.head_width
