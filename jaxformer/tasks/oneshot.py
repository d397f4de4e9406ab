"""One-shot in-context image classification (arXiv 2405.15926, section 4.2).

An episode shows one image of each of two classes with its label, then an image of one of them to be
labelled. Every image is cut into patches of three equal channels; a patch is normalised to mean 0
and variance 1, and gets its position (sinusoids over all tokens, standardised as a whole) and the
embedding of its image's label: 0, 1 or "?", drawn once from N(0, 1). The target is 2 label - 1.

    tokens   16 patches x (first image, second image, query) = 48 tokens of dimension 192

Classes of training, validation and test are disjoint; see images.split.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.data.images import Images
from jaxformer.tasks.source import HeldOut, batch_places, examples
from jaxformer.tasks.task import Batch, OneAnswer, Scores

CHANNELS, SHOWN = 3, 2


@dataclass(frozen=True, eq=False)
class OneShot(OneAnswer):
    """Episodes over the classes of `images`.

    shuffled: which class is shown first and which has label 1 is drawn; otherwise the first two
    classes keep their order and the labels 0 and 1, as in the out-of-distribution sets.
    """

    images: Images
    patch: int = 8
    label_seed: int = 0
    shuffled: bool = True

    def __post_init__(self):
        classes, per_class, size, _ = self.images.pixels_CxKxSxS.shape
        if classes < SHOWN or per_class < 2:
            raise UserError(
                f"one-shot episodes need at least {SHOWN} classes of at least 2 images, got "
                f"{classes} classes of {per_class}."
            )
        check_range("data.patch", self.patch, 1, size)
        if size % self.patch:
            raise UserError(f"patches of {self.patch} do not tile images of {size} pixels.")

    # By identity: a Task without fields calls any two of them equal, and a program compiled for
    # the classes of one would serve those of another.
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def vocab_size(self) -> int:
        return 0  # the tokens are vectors

    @property
    def length(self) -> int:
        return (SHOWN + 1) * (self.images.pixels_CxKxSxS.shape[-1] // self.patch) ** 2

    @property
    def dimension(self) -> int:
        """n, numbers a token."""
        return CHANNELS * self.patch**2

    def blank(self) -> jax.Array:
        return jnp.zeros((1, self.length, self.dimension))

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        """inputs (T, n) instead of token numbers; targets (1,) the label of the query."""
        classes, per_class = self.images.pixels_CxKxSxS.shape[:2]
        first, other, flip, asked, place, place_too, step = _draw(
            key, (classes, classes - 1, 2, SHOWN, per_class, per_class, per_class - 1)
        )
        shown_2, labels_2 = jnp.arange(SHOWN), jnp.arange(SHOWN)
        if self.shuffled:
            shown_2 = jnp.stack([first, (first + 1 + other) % classes])
            labels_2 = jnp.stack([flip, 1 - flip])
        # The query is another image of its class than the one that is shown.
        place_2 = jnp.stack([place, place_too])
        places_3 = jnp.append(place_2, (place_2[asked] + 1 + step) % per_class)
        classes_3 = jnp.append(shown_2, shown_2[asked])
        pixels_3xSxS = jnp.asarray(self.images.pixels_CxKxSxS)[classes_3, places_3]
        seen_3 = jnp.append(labels_2, SHOWN)
        inputs_Txn = self.tokens(pixels_3xSxS, seen_3)
        return Batch(inputs_Txn, labels_2[asked][None].astype(jnp.int32), jnp.ones(1))

    def tokens(self, pixels_3xSxS: jax.Array, labels_3: jax.Array) -> jax.Array:
        """(T, n) of three images and their label tokens (2 is "?")."""
        grey_3xSxS = (pixels_3xSxS / 255.0 - self.images.mean) / self.images.std
        patches_3xSxn = _patches(grey_3xSxS, self.patch)
        centred = patches_3xSxn - patches_3xSxn.mean(-1, keepdims=True)
        normal = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        rng = np.random.default_rng(self.label_seed)
        embedding_3xn = jnp.asarray(rng.standard_normal((SHOWN + 1, self.dimension)), normal.dtype)
        labelled = normal + embedding_3xn[labels_3][:, None]
        position_Txn = jnp.asarray(positions(self.length, self.dimension), normal.dtype)
        return labelled.reshape(self.length, self.dimension) + position_Txn

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        """loss: squared error to 2 label - 1; accuracy: of the sign. Here "logits" is f, (B,)."""
        f_B, weight_B = logits_BxKxV, batch.weights[:, 0]
        target_B = 2.0 * batch.targets[:, 0] - 1
        correct_B = (f_B > 0) == (target_B > 0)
        return {
            "loss": Scores((f_B - target_B) ** 2, weight_B),
            "accuracy": Scores(correct_B.astype(weight_B.dtype), weight_B),
        }

    def baselines(self, batch: Batch) -> dict[str, float]:
        """The best constant answer, and pixels: the label of the nearer shown image."""
        targets_B = np.asarray(batch.targets)[:, 0]
        constant = max(float(np.mean(targets_B == label)) for label in range(SHOWN))
        return {"constant": constant, "nearest_pixels": self.nearest_pixels(batch)}

    def nearest_pixels(self, batch: Batch) -> float:
        """Accuracy of comparing the query's normalised patches with those of either image."""
        rng = np.random.default_rng(self.label_seed)
        embedding_3xn = rng.standard_normal((SHOWN + 1, self.dimension))
        tokens = np.asarray(batch.inputs) - positions(self.length, self.dimension)[None]
        images = tokens.reshape(len(tokens), SHOWN + 1, -1, self.dimension)
        means = images.mean(2)  # of the patches: normalised ones average out beside the embedding
        distance = ((means[:, :, None] - embedding_3xn[None, None]) ** 2).sum(-1)
        first_B = (distance[:, 0, 1] < distance[:, 0, 0]) * 1  # the label of the first image
        labels_Bx2 = np.stack([first_B, 1 - first_B], 1)
        bare = images[:, :SHOWN] - embedding_3xn[labels_Bx2][:, :, None]
        query = images[:, SHOWN:] - embedding_3xn[SHOWN][None, None, None]
        nearer = ((bare - query) ** 2).sum((2, 3)).argmin(1)
        answers = np.take_along_axis(labels_Bx2, nearer[:, None], 1)[:, 0]
        return float(np.mean(answers == np.asarray(batch.targets)[:, 0]))


@dataclass(frozen=True, eq=False)
class Episodes:
    """What `Source` is to token tasks: classes, not examples, are held out."""

    task: OneShot
    validation: OneShot
    test: OneShot
    ood: dict[str, OneShot]
    key: jax.Array
    batch_size: int
    validation_size: int
    test_size: int

    def heldout(self) -> HeldOut:
        test_key, validation_key = (jax.random.fold_in(self.key, i) for i in (0, 1))
        test = episodes(self.test, test_key, 0, self.test_size)
        validation = episodes(self.validation, validation_key, 0, self.validation_size)
        return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))

    def unlike(self) -> dict[str, Batch]:
        """The out-of-distribution test sets."""
        key = jax.random.fold_in(self.key, 2)
        return {name: episodes(task, key, 0, self.test_size) for name, task in self.ood.items()}

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        return examples(self.task, member_key, batch_places(step, self.batch_size))

    def unseen(self, member_key: jax.Array, batch: Batch) -> None:
        """Episodes are drawn for ever."""


@functools.partial(jax.jit, static_argnums=(0, 3))
def episodes(task: OneShot, key: jax.Array, start: int, count: int) -> Batch:
    """Episodes start .. start + count - 1 of the stream of a key."""
    return examples(task, key, start + jnp.arange(count))


def positions(length: int, dimension: int) -> np.ndarray:
    """sin and cos of t / 10000^(2 i / n), standardised over all entries together."""
    rates = 10_000.0 ** (-np.arange(0, dimension, 2) / dimension)
    angles = np.arange(length)[:, None] * rates[None]
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)[:, :dimension]
    return (table - table.mean()) / table.std()


def _draw(key: jax.Array, sizes: tuple[int, ...]) -> list[jax.Array]:
    """One number below each size. From one call, which compiles in a tenth of the time of seven."""
    uniform = jax.random.uniform(key, (len(sizes),), jnp.float32)
    return [jnp.minimum((u * size).astype(jnp.int32), size - 1) for u, size in zip(uniform, sizes)]


def _patches(grey_IxSxS: jax.Array, patch: int) -> jax.Array:
    """(images, patches, channels patch^2), the channels equal."""
    images, size, _ = grey_IxSxS.shape
    n = size // patch
    tiles = grey_IxSxS.reshape(images, n, patch, n, patch).swapaxes(2, 3)
    flat = tiles.reshape(images, n * n, 1, patch**2)
    return jnp.broadcast_to(flat, (images, n * n, CHANNELS, patch**2)).reshape(images, n * n, -1)
