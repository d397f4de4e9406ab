"""`probe` reads a class off an activation, beside networks and labels that cannot know it.

A linear probe that reads 1.000 from a trained network has found little if it reads .97 from the
same network with random queries and keys. So every probe is a table:

    trained           the network
    untrained         the same model, never trained
                      (of a published model instead: block weights drawn anew)
    frozen            trained, with parts random (queries and keys by default)
    shuffled labels   the network, with labels of other examples
    control task      the network, with a random class for each token (Hewitt and Liang 1909.03368)
    most frequent     no network
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.core.text_format import with_error
from jaxformer.interp import nulls as null_models
from jaxformer.interp import probes
from jaxformer.interp.capture.running import capture
from jaxformer.models.source import origin
from jaxformer.models.texts import as_tokens
from jaxformer.stats.differences import LEVEL, clopper_pearson, mean_and_sem, quantile
from jaxformer.studies import nulls
from jaxformer.training.run_view import Run

TRAINED, UNTRAINED, FROZEN = "trained", "untrained", "frozen"
REDRAWN, SHUFFLED, CONTROL = "block weights drawn anew", "shuffled labels", "control task"
MOST_FREQUENT = "most frequent class"
NETWORKS = (UNTRAINED, REDRAWN, FROZEN)  # the rows that are networks without the answer
PHRASES = {UNTRAINED: "untrained", REDRAWN: "with block weights drawn anew"}
LACKS = {
    None: "trained with frozen parts",
    "frozen_qk": "without trained queries and keys",
    "frozen_mlp": "without trained MLPs",
}


class Row(NamedTuple):
    """The accuracy of a probe, over networks or draws."""

    name: str
    accuracy: float
    half_width: float  # of the 95 % interval over networks or draws; over examples for one of them
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.name:<26} {with_error(self.accuracy, self.half_width or None):<18} {self.n}"

    @property
    def n(self) -> int:
        return len(self.values)


@dataclass(frozen=True, repr=False)
class Probe:
    """A probe and its nulls.

    Attributes:
        address: of the activation.
        rows: the network first, then its nulls.
        examples, features, classes: the sizes of the probe.
        frozen: what the frozen network lacks, such as "without trained queries and keys".
    """

    address: str
    rows: tuple[Row, ...]
    examples: int
    features: int
    classes: int
    frozen: str

    def row(self, name: str) -> Row:
        """The row of a name, such as "untrained"."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise UserError(f"the probe has no row {name!r}; it has {', '.join(found)}.")
        return found[name]

    @property
    def table(self) -> list[dict[str, Any]]:
        """A dict for each row: `pandas.DataFrame(found.table)`."""
        return [row._asdict() for row in self.rows]

    @property
    def sentence(self) -> str:
        """The worth of the network's number beside the best network that cannot know."""
        trained = self.rows[0]
        others = [row for row in self.rows[1:] if row.name in NETWORKS]
        number = with_error(trained.accuracy, trained.half_width or None)
        if not others:
            return f"{number}, compared with no network."
        phrases = PHRASES | {FROZEN: self.frozen}
        rest = ", ".join(f"{row.accuracy:.3f} {phrases[row.name]}" for row in others)
        best = max(others, key=lambda row: row.accuracy)
        gain = trained.accuracy - best.accuracy
        error = float(np.hypot(trained.half_width, best.half_width))
        text = f"{number}; {rest}: "
        if gain <= error:
            return f"{text}no different from the network {phrases[best.name]}."
        return f"{text}what training put there is worth {with_error(gain, error or None)}."

    def __repr__(self) -> str:
        head = (
            f"{self.address}: {self.features} features, {self.classes} classes, "
            f"{self.examples} examples"
        )
        return "\n".join(
            [head, f"{'':<26} {'accuracy':<18} n", *map(str, self.rows), self.sentence]
        )


def probe(
    source: Any,
    address: str,
    labels: Any,
    *,
    params: Any = None,
    inputs: Any = None,
    position: int = -1,
    kind: str = "linear",
    folds: int = 5,
    frozen: Any = "frozen_qk",
    draws: int | None = None,
    seed: int = 0,
) -> Probe:
    """Reads a class off an activation, and off those of networks that cannot know it.

    Args:
        source: a `Run`, all of whose seeds at the chosen learning rate are probed, or a model.
        address: of one activation, such as "block_1/states".
        labels: the class of each example, (B,), or a function of the inputs that returns them.
        params: the parameters of a model.
        inputs: the inputs of the examples; by default the test set of a run that was just trained.
        position: the position at which the activation is read.
        kind: "linear", which is ridge regression in closed form, or "logistic".
        folds: each example is read by a probe that was fitted on the other folds.
        frozen: what is trained as a null with parts random: the name of a variant or rules, with
            the task, steps, batch size and learning rate of a run that was just trained and the
            default optimizer; or a `Run` or parameters that you trained; or None.
        draws: the number of untrained networks and of shuffled labels (default: 8; 2 untrained
            networks of published models).
        seed: of all draws.

    Example:
        run = jaxformer.train(task, model, steps=400, seeds=5)
        found = jaxformer.probe(run, "block_0/states", lambda tokens: tokens.max(1))
        print(found)

    Raises:
        UserError: the labels have one class, the probe has more features than examples, or an
            activation is not finite.
    """
    model, networks = _networks(source, params)
    is_published = bool(origin(model))
    if draws is None:
        draws = null_models.DRAWS_OF_PUBLISHED if is_published else null_models.DRAWS
    check_range("draws", draws, 1, 1000)
    tokens = _inputs(source, model, inputs)
    label_B: Any = labels(tokens) if callable(labels) else labels
    classes = probes.classes_of(label_B, len(tokens))

    # The network itself, then networks that cannot know the answer.
    options = {"kind": kind, "folds": folds, "seed": seed}
    features = [_features(model, network, tokens, address, position) for network in networks]
    n_features = features[0].shape[1]
    probes.check_sizes(len(tokens), n_features, folds)
    rows = [_row(TRAINED, features, [classes.number_B] * len(features), options)]
    keys = jax.random.split(jax.random.key(seed), draws)
    if is_published:  # its initial values are not those that it was trained from
        pattern = null_models.blocks(networks[0])
        empty = [null_models.redraw(networks[0], pattern, key) for key in keys]
    else:
        empty = [null_models.untrained(model, key, jnp.asarray(tokens[:1])) for key in keys]
    name = REDRAWN if is_published else UNTRAINED
    without = [_features(model, network, tokens, address, position) for network in empty]
    rows.append(_row(name, without, [classes.number_B] * draws, options))
    random_networks = _frozen_networks(source, frozen, len(networks))
    if random_networks:
        partly = [_features(model, x, tokens, address, position) for x in random_networks]
        rows.append(_row(FROZEN, partly, [classes.number_B] * len(partly), options))

    # Labels that say nothing, read from the network itself.
    shuffled = [null_models.shuffled_labels(classes.number_B, key) for key in keys]
    rows.append(_row(SHUFFLED, [features[0]] * draws, shuffled, options))
    if np.ndim(tokens) == 2 and np.issubdtype(np.asarray(tokens).dtype, np.integer):
        random = np.random.default_rng(seed)
        control = [_control(classes.number_B, tokens[:, position], random) for _ in range(draws)]
        control = [numbers for numbers in control if len(np.unique(numbers)) > 1]
        if control:
            rows.append(_row(CONTROL, [features[0]] * len(control), control, options))
    frequent = classes.most_frequent
    rows.append(Row(MOST_FREQUENT, frequent, 0.0, (frequent,)))
    lacks = LACKS.get(frozen, LACKS[None]) if isinstance(frozen, str) else LACKS[None]
    return Probe(address, tuple(rows), len(tokens), n_features, len(classes.names), lacks)


def _networks(source: Any, params: Any) -> tuple[Any, list[Any]]:
    """The model of a source, and the parameters of each of its networks."""
    if not isinstance(source, Run):
        if params is None:
            raise UserError("a model has no weights: give probe its params, or a Run.")
        return source, [params]
    if params is not None:
        raise UserError("a run has its own parameters: leave params out.")
    if source.trained is None:
        raise UserError(
            "this run was read from a folder: give its model and parameters, as in model, params, "
            "_ = jaxformer.load(folder); jaxformer.probe(model, address, labels, params=params)."
        )
    return source.trained.phases[-1].setup.model, [source.member(i) for i in source.chosen()]


def _inputs(source: Any, model: Any, inputs: Any) -> np.ndarray:
    if inputs is not None:
        return np.asarray(as_tokens(model, inputs))
    if not isinstance(source, Run) or source.trained is None:
        raise UserError("give probe the inputs of its examples, as in inputs=tokens.")
    return np.asarray(source.trained.session.heldout.test.inputs)


def _features(model: Any, params: Any, tokens: Any, address: str, position: int) -> np.ndarray:
    """The activation of each example at a position, (B, N)."""
    captured = capture(model, params, jnp.asarray(tokens), names=[address])
    if len(captured) != 1:
        some = ", ".join([*captured][:3])
        raise UserError(f"a probe reads one activation, and {address!r} matches {some}, ..")
    (value,) = captured.values()
    array = np.asarray(value, np.float64)
    if array.ndim > 2:
        if not -array.shape[1] <= position < array.shape[1]:
            raise UserError(f"position must be below {array.shape[1]}, got {position}.")
        array = array[:, position]
    if not np.isfinite(array).all():
        raise UserError(f"{address} is not finite in a network that is probed.")
    return array.reshape(len(array), -1)


def _frozen_networks(source: Any, frozen: Any, n_seeds: int) -> list[Any]:
    """The parameters of networks that were trained with parts random."""
    if frozen is None:
        return []
    if isinstance(frozen, Run):
        return [frozen.member(i) for i in frozen.chosen()]
    if isinstance(frozen, Mapping) and any(isinstance(x, Mapping) for x in frozen.values()):
        return [frozen]
    if not isinstance(source, Run):
        return []  # nothing says how to train it
    assert source.trained is not None
    setup = source.trained.phases[-1].setup
    seeds = [source.members[i][0] for i in source.chosen()]
    run = nulls.frozen(
        setup.task,
        frozen,
        model=setup.model,
        steps=source.step,
        batch_size=setup.data.batch_size,
        learning_rate=source.members[source.chosen()[0]][1],
        seeds=seeds[:n_seeds],
        data=setup.data,
    )
    return [run.member(i) for i in run.chosen()]


def _control(classes_B: np.ndarray, token_B: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A random class for each token at the probed position, as often as in the labels."""
    kinds, which_B = np.unique(token_B, return_inverse=True)
    numbers_B = random.choice(classes_B, len(kinds))[which_B]
    return np.unique(numbers_B, return_inverse=True)[1]


def _row(
    name: str,
    features: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    options: Mapping[str, Any],
) -> Row:
    values = tuple(
        probes.accuracy(features_BxN, classes_B, **options)
        for features_BxN, classes_B in zip(features, labels, strict=True)
    )
    mean, sem = mean_and_sem(values)
    if len(values) > 1:
        return Row(name, mean, quantile(len(values) - 1, LEVEL) * sem, values)
    low, high = clopper_pearson(mean, len(labels[0]))
    return Row(name, mean, max(mean - low, high - mean), values)
