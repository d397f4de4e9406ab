"""Sets the weights of a decoder part by part: which part of the residual stream each head moves."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.models.decoder import Decoder, decoder

SHARPNESS = 20.0  # the score of a match; other keys get e^-20 of its weight
GAIN = 4.0  # of the unembedding
# All networks and prompts have the same shapes, so that a program is compiled once for all of them.
VOCAB, LENGTH, HEADS, BLOCKS, HIDDEN, JUNK = 12, 8, 4, 2, 25, 6


class Builder:
    """Kernels of a decoder that are filled part by part."""

    def __init__(self):
        sizes = {"token": VOCAB, "position": LENGTH, "before": VOCAB, "answer": VOCAB}
        sizes |= {"one": 1, "junk": JUNK}
        starts = np.cumsum([0, *sizes.values()])
        self.parts = {
            name: slice(start, start + size)
            for (name, size), start in zip(sizes.items(), starts, strict=False)
        }
        self.head_width = max(VOCAB, LENGTH, -(-int(starts[-1]) // HEADS))
        width = HEADS * self.head_width
        self.model = decoder(
            vocab_size=VOCAB,
            length=LENGTH,
            width=width,
            layers=BLOCKS,
            heads=HEADS,
            mlp_width=HIDDEN,
            positions="none",
            learned_positions=True,
            use_norm=False,
            act="relu",
        )
        self.arrays = {
            "embed/embedding": np.zeros((VOCAB, width)),
            "positions/embedding": np.zeros((LENGTH, width)),
            "unembed/kernel": np.zeros((width, VOCAB)),
        }
        for block in range(BLOCKS):
            for letter in ("query", "key", "value", "out"):
                self.arrays[f"block_{block}/attn/{letter}/kernel"] = np.zeros((width, width))
            for letter in ("gate", "in", "out"):
                shape = (HIDDEN, width) if letter == "out" else (width, HIDDEN)
                self.arrays[f"block_{block}/mlp/{letter}/kernel"] = np.zeros(shape)
        self.arrays["embed/embedding"][:, self.parts["token"]] = np.eye(VOCAB)
        self.arrays["embed/embedding"][:, self.parts["one"]] = 1
        self.arrays["positions/embedding"][:, self.parts["position"]] = np.eye(LENGTH)
        self.arrays["unembed/kernel"][self.parts["answer"]] = GAIN * np.eye(VOCAB)
        self.random = np.random.default_rng(0)
        self.idle = [(block, head) for block in range(BLOCKS) for head in range(HEADS)]
        self.idle_mlps = [*range(BLOCKS)]

    def head(
        self,
        block: int,
        head: int,
        value: str,
        into: str,
        query: tuple[str, np.ndarray] | None = None,
        key: tuple[str, np.ndarray] | None = None,
        factor: float = 1.0,
    ) -> None:
        """Sets a head that moves the part `value` of its keys into the part `into`.

        A query is (the part that is read, a matrix whose row says how much each key is wanted).
        Without query and key the head attends equally to all tokens.
        """
        first = head * self.head_width
        for letter, read in (("query", query), ("key", key)):
            if read is not None:
                part, matrix = read
                columns = slice(first, first + matrix.shape[1])
                kernel = self.arrays[f"block_{block}/attn/{letter}/kernel"]
                # Half of the sharpness, and half of the scale 1/sqrt(D), in queries and in keys.
                kernel[self.parts[part], columns] = (
                    matrix * (SHARPNESS * self.head_width**0.5) ** 0.5
                )
        size = self.parts[value].stop - self.parts[value].start
        columns = slice(first, first + size)
        self.arrays[f"block_{block}/attn/value/kernel"][self.parts[value], columns] = np.eye(size)
        self.arrays[f"block_{block}/attn/out/kernel"][columns, self.parts[into]] = factor * np.eye(
            size
        )
        self.idle.remove((block, head))

    def previous(self, block: int, head: int, into: str, factor: float = 1.0) -> None:
        """Sets a head that copies the previous token; the first token gets itself."""
        wanted = np.eye(LENGTH)[np.maximum(np.arange(LENGTH) - 1, 0)]
        positions = ("position", wanted), ("position", np.eye(LENGTH))
        self.head(block, head, "token", into, *positions, factor)

    def mlp(self, block: int, gate: Any, linear: Any, out: Any) -> None:
        """Sets an MLP from {(part, index): weights of the hidden units} of each matrix."""
        for letter, entries in (("gate", gate), ("in", linear)):
            for part, matrix in entries.items():
                self.arrays[f"block_{block}/mlp/{letter}/kernel"][self.parts[part]] = matrix
        for part, matrix in out.items():
            self.arrays[f"block_{block}/mlp/out/kernel"][:, self.parts[part]] = matrix
        self.idle_mlps.remove(block)

    def finish(self) -> tuple[Decoder, dict[str, Any]]:
        """Lets the other heads and MLPs compute something that no answer reads."""
        read = np.r_[self.parts["token"], self.parts["junk"]]
        for block, head in self.idle:
            columns = slice(head * self.head_width, (head + 1) * self.head_width)
            for letter in ("query", "key", "value"):
                kernel = self.arrays[f"block_{block}/attn/{letter}/kernel"]
                kernel[read, columns] = self.random.normal(size=(len(read), self.head_width))
            out = self.arrays[f"block_{block}/attn/out/kernel"]
            out[columns, self.parts["junk"]] = 0.2 * self.random.normal(
                size=(self.head_width, JUNK)
            )
        for block in self.idle_mlps:
            for letter in ("gate", "in"):
                kernel = self.arrays[f"block_{block}/mlp/{letter}/kernel"]
                kernel[read] = 0.3 * self.random.normal(size=(len(read), HIDDEN))
            out = self.arrays[f"block_{block}/mlp/out/kernel"]
            out[:, self.parts["junk"]] = self.random.normal(size=(HIDDEN, JUNK)) / HIDDEN
        params = {path: jnp.asarray(array, jnp.float32) for path, array in self.arrays.items()}
        return self.model, paths.unflatten(params)
