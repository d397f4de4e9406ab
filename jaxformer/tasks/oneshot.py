"""One-shot in-context image classification (arXiv 2405.15926, section 4.2).

An episode shows one labelled image of each of two classes, then a query image of one of them. The
target is 2 label - 1. Every image is cut into patches, whose grey values are repeated in three
channels. A token is the sum of

    the patch, normalised to mean 0 and variance 1
    the embedding of its image's label, 0, 1 or "?", drawn once from N(0, 1)
    its position: sinusoids, standardised over all tokens and dimensions together

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
from jaxformer.tasks.source import HeldOut, batch_positions, examples
from jaxformer.tasks.task import Batch, OneAnswer, Scores

CHANNELS, SHOWN_IMAGES = 3, 2


@dataclass(frozen=True, eq=False)
class OneShot(OneAnswer):
    """Episodes over the classes of `images`.

    If `shuffled`, the two classes, their order and their labels are drawn. Otherwise the first two
    classes keep their order and the labels 0 and 1, as in the out-of-distribution sets.
    """

    images: Images  # pixels_CxKxSxS: C classes of K images with S x S pixels
    patch: int = 8  # side of a patch in pixels
    label_seed: int = 0  # seed of the embeddings of labels
    shuffled: bool = True

    def __post_init__(self):
        classes, per_class, size, _ = self.images.pixels_CxKxSxS.shape
        if classes < SHOWN_IMAGES or per_class < 2:
            raise UserError(
                f"one-shot episodes need at least {SHOWN_IMAGES} classes of at least 2 images, got "
                f"{classes} classes of {per_class}."
            )
        check_range("data.patch", self.patch, 1, size)
        if size % self.patch:
            raise UserError(
                f"patches of {self.patch} do not tile images of {size} pixels: data.patch must "
                "divide data.size."
            )

    # Tasks compare by identity, so that jit never reuses a program that contains other images.
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def vocab_size(self) -> int:
        return 0  # the tokens are vectors

    @property
    def length(self) -> int:
        return (SHOWN_IMAGES + 1) * (self.images.pixels_CxKxSxS.shape[-1] // self.patch) ** 2

    @property
    def dimension(self) -> int:
        """The dimension n of a token."""
        return CHANNELS * self.patch**2

    def blank(self) -> jax.Array:
        """Returns an input of zeros for initialising a model, (1, T, n)."""
        return jnp.zeros((1, self.length, self.dimension))

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        """Returns an episode: inputs (T, n) vectors, targets (1,) the label of the query."""
        classes, per_class = self.images.pixels_CxKxSxS.shape[:2]
        first, class_shift, flip, query, image_0, image_1, query_shift = _draw_below(
            key, (classes, classes - 1, 2, SHOWN_IMAGES, per_class, per_class, per_class - 1)
        )
        # The classes and labels of the two shown images.
        classes_2, labels_2 = jnp.arange(SHOWN_IMAGES), jnp.arange(SHOWN_IMAGES)
        if self.shuffled:
            classes_2 = jnp.stack([first, (first + 1 + class_shift) % classes])
            labels_2 = jnp.stack([flip, 1 - flip])
        # The query is an image of one of these classes, but not the image that is shown.
        shown_2 = jnp.stack([image_0, image_1])
        images_3 = jnp.append(shown_2, (shown_2[query] + 1 + query_shift) % per_class)
        classes_3 = jnp.append(classes_2, classes_2[query])
        pixels_3xSxS = jnp.asarray(self.images.pixels_CxKxSxS)[classes_3, images_3]
        # The query has the label 2, which stands for "?".
        token_labels_3 = jnp.append(labels_2, SHOWN_IMAGES)
        inputs_Txn = self.tokens(pixels_3xSxS, token_labels_3)
        return Batch(inputs_Txn, labels_2[query][None].astype(jnp.int32), jnp.ones(1))

    def tokens(self, pixels_3xSxS: jax.Array, labels_3: jax.Array) -> jax.Array:
        """Returns the (T, n) tokens of three images and their labels (2 is "?")."""
        grey_3xSxS = (pixels_3xSxS / 255.0 - self.images.mean) / self.images.std
        patches_3xPxn = _patches(grey_3xSxS, self.patch)
        centred = patches_3xPxn - patches_3xPxn.mean(-1, keepdims=True)
        normal = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        rng = np.random.default_rng(self.label_seed)
        embedding_3xn = jnp.asarray(
            rng.standard_normal((SHOWN_IMAGES + 1, self.dimension)), normal.dtype
        )
        labelled = normal + embedding_3xn[labels_3][:, None]
        position_Txn = jnp.asarray(positions(self.length, self.dimension), normal.dtype)
        return labelled.reshape(self.length, self.dimension) + position_Txn

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        """Returns the squared error of f to 2 label - 1 and the accuracy of its sign.

        Args:
            logits_BxKxV: the outputs f, here (B,); other tasks have logits.
            batch: the episodes.
        """
        f_B, weight_B = logits_BxKxV, batch.weights[:, 0]
        target_B = 2.0 * batch.targets[:, 0] - 1
        correct_B = (f_B > 0) == (target_B > 0)
        return {
            "loss": Scores((f_B - target_B) ** 2, weight_B),
            "accuracy": Scores(correct_B.astype(weight_B.dtype), weight_B),
        }

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns the accuracies of the best constant answer and of the nearer shown image."""
        targets_B = np.asarray(batch.targets)[:, 0]
        constant = max(float(np.mean(targets_B == label)) for label in range(SHOWN_IMAGES))
        return {"constant": constant, "nearest_pixels": self.nearest_pixels(batch)}

    def nearest_pixels(self, batch: Batch) -> float:
        """Returns the accuracy of answering with the label of the shown image nearer to the query.

        Distances are computed between normalised patches, without positions and label embeddings.
        """
        rng = np.random.default_rng(self.label_seed)
        embedding_3xn = rng.standard_normal((SHOWN_IMAGES + 1, self.dimension))
        tokens = np.asarray(batch.inputs) - positions(self.length, self.dimension)[None]
        images = tokens.reshape(len(tokens), SHOWN_IMAGES + 1, -1, self.dimension)
        # The normalised patches of an image nearly average out, so the embedding remains.
        means = images.mean(2)
        distance = ((means[:, :, None] - embedding_3xn[None, None]) ** 2).sum(-1)
        first_B = (distance[:, 0, 1] < distance[:, 0, 0]) * 1  # the label of the first image
        labels_Bx2 = np.stack([first_B, 1 - first_B], 1)
        shown = images[:, :SHOWN_IMAGES] - embedding_3xn[labels_Bx2][:, :, None]
        query = images[:, SHOWN_IMAGES:] - embedding_3xn[SHOWN_IMAGES][None, None, None]
        nearer = ((shown - query) ** 2).sum((2, 3)).argmin(1)
        answers = np.take_along_axis(labels_Bx2, nearer[:, None], 1)[:, 0]
        return float(np.mean(answers == np.asarray(batch.targets)[:, 0]))


@dataclass(frozen=True, eq=False)
class Episodes:
    """The data of one-shot episodes. Held-out sets are episodes of classes unseen in training."""

    task: OneShot
    validation: OneShot
    test: OneShot
    ood: dict[str, OneShot]  # {name of an out-of-distribution set: its task}
    key: jax.Array  # of the held-out episodes
    batch_size: int
    validation_size: int
    test_size: int

    def heldout(self) -> HeldOut:
        test_key, validation_key = (jax.random.fold_in(self.key, i) for i in (0, 1))
        test = episodes(self.test, test_key, 0, self.test_size)
        validation = episodes(self.validation, validation_key, 0, self.validation_size)
        # No training episode can equal a held-out one, so training has no hashes to avoid.
        return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))

    def out_of_distribution(self) -> dict[str, Batch]:
        """Returns the out-of-distribution test sets."""
        key = jax.random.fold_in(self.key, 2)
        return {name: episodes(task, key, 0, self.test_size) for name, task in self.ood.items()}

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        return examples(self.task, member_key, batch_positions(step, self.batch_size))

    def unseen(self, member_key: jax.Array, batch: Batch) -> None:
        """Returns None: the training set is infinite, so all held-out episodes are unseen."""


@functools.partial(jax.jit, static_argnums=(0, 3))
def episodes(task: OneShot, key: jax.Array, start: int, count: int) -> Batch:
    """Returns the episodes start .. start + count - 1 of the stream of a key.

    Args:
        key: the key of the stream.
        start: the number of the first episode.
        count: the number of episodes.
    """
    return examples(task, key, start + jnp.arange(count))


def positions(length: int, dimension: int) -> np.ndarray:
    """Returns sines and cosines of t / 10000^(2 i / n), standardised over all entries together."""
    rates = 10_000.0 ** (-np.arange(0, dimension, 2) / dimension)
    angles = np.arange(length)[:, None] * rates[None]
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)[:, :dimension]
    return (table - table.mean()) / table.std()


def _draw_below(key: jax.Array, sizes: tuple[int, ...]) -> list[jax.Array]:
    """Draws one integer below each size, in one call because that compiles fast."""
    uniform = jax.random.uniform(key, (len(sizes),), jnp.float32)
    return [jnp.minimum((u * size).astype(jnp.int32), size - 1) for u, size in zip(uniform, sizes)]


def _patches(grey_IxSxS: jax.Array, patch: int) -> jax.Array:
    """Returns patches of grey images, (images, patches, channels patch^2), with equal channels."""
    images, size, _ = grey_IxSxS.shape
    per_side = size // patch
    tiles = grey_IxSxS.reshape(images, per_side, patch, per_side, patch).swapaxes(2, 3)
    flat = tiles.reshape(images, per_side**2, 1, patch**2)
    channels = jnp.broadcast_to(flat, (images, per_side**2, CHANNELS, patch**2))
    return channels.reshape(images, per_side**2, -1)
