"""Own arrays and data sets: any examples in memory are a task, with parts and trivial scores."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks import Arrays, from_dataset, trivial
from jaxformer.tasks.disk import OnDisk
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.integers(0, 10, (400, 3))
ANSWERS = INPUTS.sum(1) % 10
PARTS = (TRAIN, VALIDATION, TEST)


def rows_of(task, part):
    index = np.arange(task.count(part))
    return task.batch(jnp.asarray(task.rows(part, index, index)), None)


def test_one_answer_stands_at_the_last_position():
    batch = rows_of(Arrays(INPUTS, ANSWERS), TRAIN)
    np.testing.assert_array_equal(batch.weights, np.tile([0, 0, 1], (len(batch.inputs), 1)))
    np.testing.assert_array_equal(batch.targets[:, -1], batch.inputs.sum(1) % 10)


def test_without_targets_each_token_predicts_the_next_one():
    task = Arrays(INPUTS)
    batch = rows_of(task, TRAIN)
    assert (task.length, task.n_scored) == (2, 2)
    np.testing.assert_array_equal(batch.inputs[:, 1], batch.targets[:, 0])


def test_weights_and_the_target_minus_100_choose_what_is_scored():
    targets = np.where(INPUTS % 2, INPUTS, -100)
    weights = np.full(INPUTS.shape, 0.5)
    weights[:, 0] = 0
    task = Arrays(INPUTS, targets, weights)
    batch = rows_of(task, TRAIN)
    assert task.n_scored == 2
    is_scored = (np.asarray(batch.inputs) % 2 == 1) & (np.arange(3) > 0)[None]
    np.testing.assert_array_equal(batch.weights, 0.5 * is_scored)
    np.testing.assert_array_equal(batch.targets, np.where(batch.inputs % 2, batch.inputs, 0))


def test_equal_inputs_are_in_one_part_whatever_their_order():
    shuffled = RANDOM.permutation(len(INPUTS))
    tasks = Arrays(INPUTS, ANSWERS), Arrays(INPUTS[shuffled], ANSWERS[shuffled])
    first, second = (
        [{tuple(x) for x in np.asarray(rows_of(task, part).inputs)} for part in PARTS]
        for task in tasks
    )
    assert first == second
    assert not first[0] & first[1] and not first[0] & first[2] and not first[1] & first[2]
    assert len(set.union(*first)) == len({tuple(x) for x in INPUTS})
    assert sum(tasks[0].examples) == len(INPUTS)


def test_given_parts_are_kept_and_a_missing_one_is_taken_from_training():
    names = np.where(np.arange(400) < 300, "train", "test")
    task = Arrays(INPUTS, ANSWERS, parts=list(names), validation=0.2)
    np.testing.assert_array_equal(rows_of(task, TEST).inputs, INPUTS[300:])
    train, validation, test = task.examples
    assert test == 100 and train + validation == 300 and 40 < validation < 80


def test_every_training_example_is_visited_once_in_an_epoch():
    task = Arrays(np.arange(40).reshape(20, 2), np.zeros(20, int))
    data = make_source(task, DataSettings(), batch_size=8)
    assert isinstance(data, OnDisk) and task.examples == (16, 2, 2)
    key = jax.random.key(0)
    batches = [
        np.asarray(data.batch_at(key, step, jnp.zeros(1, "uint32")).inputs) for step in range(4)
    ]
    epochs = np.concatenate(batches[:2]), np.concatenate(batches[2:])
    for epoch in epochs:
        assert {tuple(x) for x in epoch} == {tuple(x) for x in np.asarray(rows_of(task, 0).inputs)}
    assert (epochs[0] != epochs[1]).any()


def test_bigrams_are_counted_on_the_training_part():
    task = Arrays(INPUTS)
    fit, test = rows_of(task, TRAIN), rows_of(task, TEST)
    counts = np.zeros((10, 10))
    np.add.at(counts, (np.asarray(fit.inputs).ravel(), np.asarray(fit.targets).ravel()), 1)
    tokens, targets = np.asarray(test.inputs).ravel(), np.asarray(test.targets).ravel()
    unigram = (0.5 + counts.sum(0)) / (0.5 + counts.sum(0)).sum()
    p = (counts + unigram[None]) / (counts.sum(1, keepdims=True) + 1)
    scores = task.baselines(test)
    np.testing.assert_allclose(scores["bigram_loss"], -np.log(p[tokens, targets]).mean())
    np.testing.assert_allclose(
        scores["best_after_token"], (counts.argmax(1)[tokens] == targets).mean()
    )


def test_a_token_that_training_lacks_gets_the_frequencies():
    def batch(tokens, targets):
        ones = np.ones((len(tokens), 1))
        return Batch(*(np.array(x)[:, None] for x in (tokens, targets)), ones)  # type: ignore

    bigram = trivial.Bigram(batch([0, 0, 1, 1], [2, 2, 2, 1]), 3)
    unseen = batch([7], [2])
    assert bigram.accuracy(unseen) == 1
    np.testing.assert_allclose(bigram.loss(unseen), -np.log(3.5 / 5.5))


def test_a_frozen_part_is_compared_on_own_arrays_and_the_run_resumes_only_with_them(tmp_path):
    task = Arrays(INPUTS, ANSWERS)
    model = decoder(**task.sizes, width=8, layers=1, heads=1, mlp_width=8)
    rules = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
    options = {"steps": 4, "batch_size": 8, "progress": False, "workdir": tmp_path / "run"}
    run = jaxformer.train(task, model, rules, **options)
    names = {"best_constant", "best_after_token", "unigram_loss", "bigram_loss"}
    assert set(run.result.baselines) >= names
    again = jaxformer.train(Arrays(INPUTS, ANSWERS), model, rules, **options)
    assert again.result.metrics["loss"].mean == run.result.metrics["loss"].mean
    np.save(tmp_path / "inputs.npy", INPUTS)
    on_disk = np.load(tmp_path / "inputs.npy", mmap_mode="r+")
    on_disk[0, 0] = (on_disk[0, 0] + 1) % 10  # a data set on disk that changes
    with pytest.raises(UserError, match="fingerprint"):
        jaxformer.train(Arrays(on_disk, ANSWERS), model, rules, **options)


def test_test_examples_that_are_training_examples_too_are_said_and_scored_apart(capsys):
    inputs, answers = np.concatenate([INPUTS, INPUTS[:30]]), np.concatenate([ANSWERS, ANSWERS[:30]])
    parts = np.repeat(["train", "validation", "test"], [300, 50, 80])
    in_training = {tuple(x) for x in INPUTS[:300]}
    unseen = np.array([tuple(x) not in in_training for x in inputs[350:]])
    assert 30 <= (~unseen).sum() < 80
    task = Arrays(inputs, answers, parts=parts)
    data = make_source(task, DataSettings(), 8)
    np.testing.assert_array_equal(data.unseen(jax.random.key(0), data.heldout().test), unseen)
    model = decoder(**task.sizes, width=8, layers=1, heads=1, mlp_width=8)
    run = jaxformer.train(task, model, steps=2, batch_size=8, warmup=0, progress=False)
    n_right = run.result.metrics["accuracy_unseen"].mean * unseen.sum()
    assert n_right == pytest.approx(round(n_right), abs=1e-4)
    error = capsys.readouterr().err
    assert f"{(~unseen).sum()} of 80 test examples have inputs of training examples" in error
    # Of a training set of ten rows fewer are known.
    small = make_source(task, DataSettings(train_size=10), 8)
    assert small.unseen(jax.random.key(0), data.heldout().test).sum() > unseen.sum()
    by_hash = make_source(Arrays(inputs, answers), DataSettings(), 8)
    assert by_hash.unseen(jax.random.key(0), data.heldout().test) is None


def test_arrays_that_change_later_do_not_change_the_task():
    inputs = INPUTS.copy()
    task = Arrays(inputs, ANSWERS)
    before = np.asarray(rows_of(task, TRAIN).inputs)
    inputs[:] = 0
    np.testing.assert_array_equal(rows_of(task, TRAIN).inputs, before)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((INPUTS, ANSWERS[:-1]), {}, r"targets must have the shape \(400, 3\).* got \(399,\)"),
        ((INPUTS, INPUTS[:, :2]), {}, r"targets must have the shape .* got \(400, 2\)"),
        (
            (INPUTS, ANSWERS, np.ones((400, 3))),
            {},
            r"weights must be numbers of the shape \(400,\)",
        ),
        ((INPUTS, ANSWERS, -np.ones(400)), {}, "weights must be finite and at least 0"),
        ((INPUTS, ANSWERS, np.zeros(400)), {}, "nothing is scored"),
        (([[1, 2], [3]], [0, 1]), {}, "different lengths: pad them"),
        ((INPUTS.astype(object), ANSWERS), {}, "got objects or rows"),
        ((INPUTS / 2, ANSWERS), {}, "whole numbers .tokens., got float64: convert"),
        ((np.array([["a", "b"]] * 9), ANSWERS[:9]), {}, "encode texts with a tokenizer"),
        ((INPUTS[0], ANSWERS), {}, r"inputs must have the shape \(examples, tokens\), got \(3,\)"),
        ((INPUTS - 1, ANSWERS), {}, r"inputs must be from 0 .*; got -1"),
        ((INPUTS, ANSWERS - 10), {}, "or -100 for a position that is not scored; got -"),
        ((INPUTS[:1], ANSWERS[:1]), {}, "1 different training inputs are too few"),
        ((INPUTS[[0, 0, 1]], ANSWERS[:3]), {}, "2 different training inputs are too few"),
        ((INPUTS[:, :1],), {}, "without targets there is no next one"),
        ((INPUTS, ANSWERS), {"vocab_size": 5}, "from 0 to vocab_size - 1 = 4, got 9"),
        ((INPUTS, ANSWERS), {"parts": ["train"]}, "each of the 400 examples; got 1"),
        ((INPUTS, ANSWERS), {"parts": ["tain"] * 400}, "Did you mean 'train'"),
        ((INPUTS, ANSWERS), {"test": 0.95}, "sum below 1, got 0.1 and 0.95"),
        ((INPUTS, ANSWERS), {"validation": np.nan}, "sum below 1, got nan and 0.1"),
        ((INPUTS, ANSWERS), {"test": "x"}, "test must be a number, got 'x'"),
        ((INPUTS, ANSWERS), {"parts": 3}, "each of the 400 examples; got 3"),
        ((INPUTS, ANSWERS), {"parts": [None, *["train"] * 399]}, "unknown part 'None'"),
        ((INPUTS, ANSWERS), {"vocab_size": 20.5}, "vocab_size must be a whole number, got 20.5"),
        ((INPUTS, ANSWERS, np.full(400, 1e39)), {}, r"from 1e-06 to 1e\+30, got 1e\+39"),
        ((INPUTS, ANSWERS, np.full(400, 1e-50)), {}, "got 1e-50: multiply all by one number"),
    ],
)
def test_wrong_arrays_are_one_line_errors(arguments, options, message):
    with pytest.raises(UserError, match=message) as error:
        Arrays(*arguments, **options)
    assert "\n" not in str(error.value)


ROWS = [{"input_ids": x.tolist(), "labels": int(y)} for x, y in zip(INPUTS, ANSWERS, strict=True)]


class TorchLike:
    """The two methods of a PyTorch Dataset."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, i):
        return INPUTS[i % len(ROWS)], ANSWERS[i % len(ROWS)]  # raises no IndexError at its end


class TensorFlowLike(TorchLike):
    def as_numpy_iterator(self):
        return iter(ROWS)


@pytest.mark.parametrize("rows", [ROWS, TorchLike(), TensorFlowLike()])
def test_rows_of_any_library_are_the_same_task(rows):
    assert from_dataset(rows) == Arrays(INPUTS, ANSWERS)


def test_splits_are_parts_and_their_other_names_are_known():
    task = from_dataset({"train": ROWS[:300], "dev": ROWS[300:350], "test": ROWS[350:]})
    assert task.examples == (300, 50, 50)


def test_a_folder_is_read_with_the_package_that_wrote_it(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="needs the package datasets"):
        monkeypatch.setitem(sys.modules, "datasets", None)
        from_dataset(tmp_path)
    package = SimpleNamespace(load_from_disk=lambda folder: {"train": ROWS})
    monkeypatch.setitem(sys.modules, "datasets", package)
    assert sum(from_dataset(str(tmp_path)).examples) == 400


def test_labels_for_transformers_are_shifted_and_else_refused():
    """Their labels are a copy of the tokens, of which a prompt is not scored."""
    rows = [
        {"input_ids": [1 + i % 5, 2, 3 + i % 4, 4], "labels": [-100, -100, 3 + i % 4, 4]}
        for i in range(60)
    ]
    with pytest.raises(UserError, match=r"the token itself, .* give shift=True") as error:
        from_dataset(rows)
    assert "\n" not in str(error.value)
    batch = rows_of(from_dataset(rows, shift=True), TRAIN)
    np.testing.assert_array_equal(batch.weights, np.tile([0, 1, 1], (len(batch.inputs), 1)))
    np.testing.assert_array_equal(batch.targets[:, 1], batch.inputs[:, 2])
    np.testing.assert_array_equal(batch.targets[:, 2], 4)
    tokens = [[1 + i % 9, 2, 3][: 2 + i % 2] for i in range(60)]
    short = [{"input_ids": row, "labels": row} for row in tokens]
    padded = rows_of(from_dataset(short, pad=0, shift=True), TRAIN)
    np.testing.assert_array_equal(padded.weights.sum(1), (padded.inputs != 0).sum(1))
    with pytest.raises(UserError, match="shift=True needs a label for each token"):
        from_dataset(ROWS, shift=True)


def test_short_rows_are_filled_up_with_what_is_not_scored():
    rows = [{"x": [i % 7, 1, 2][: 1 + i % 3], "y": 3} for i in range(90)]
    task = from_dataset(rows, "x", "y", pad=8)
    batches = [rows_of(task, part) for part in PARTS]
    inputs = np.concatenate([batch.inputs for batch in batches])
    weights = np.concatenate([batch.weights for batch in batches])
    length = (inputs != 8).sum(1)
    np.testing.assert_array_equal(weights.argmax(1), length - 1)
    np.testing.assert_array_equal(weights.sum(1), 1)
    texts = from_dataset(
        [{"x": [1 + i % 9, 2, 3][: 2 + i % 2]} for i in range(90)], "x", None, pad=0
    )
    batch = rows_of(texts, TRAIN)
    np.testing.assert_array_equal(batch.weights.sum(1), (batch.inputs != 0).sum(1) - 1)


@pytest.mark.parametrize("targets", [None, "label", "labels"])
def test_rows_that_a_tokenizer_filled_up_are_those_without_padding(targets):
    """Its zeros in `attention_mask` mark what is neither scored nor an input."""
    short = [
        {
            "input_ids": [5 + i % 9, 2, 3][: 2 + i % 2],
            "label": i % 4,
            "labels": [1, 2, 3][: 2 + i % 2],
        }
        for i in range(90)
    ]
    padded = [
        {
            "input_ids": [*row["input_ids"], 0, 0][:3],
            "attention_mask": [1, 1, i % 2],
            "label": row["label"],
            "labels": [*row["labels"], 0, 0][:3],
        }
        for i, row in enumerate(short)
    ]
    expected = from_dataset(short, targets=targets, pad=0)
    assert from_dataset(padded, targets=targets, pad=0) == expected
    with pytest.raises(UserError, match=r"rows are padded \(attention_mask has zeros\): give pad"):
        from_dataset(padded, targets=targets)


@pytest.mark.parametrize("targets", [None, "label", "labels"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_that_are_padded_already_are_those_without_padding(targets, side):
    """Without a mask, a run of the pad token at an end is padding; within a text it is a token."""

    def filled(values, pad, n=6):
        padding = [pad] * (n - len(values))
        return [*padding, *values] if side == "left" else [*values, *padding]

    short = [
        {
            "input_ids": [5 + i % 9, 0, 2, 3, 4][: 3 + i % 3],
            "label": i % 4,
            "labels": [1, 2, 3, 1, 2][: 3 + i % 3],
        }
        for i in range(90)
    ]
    padded = [
        {**row, "input_ids": filled(row["input_ids"], 0), "labels": filled(row["labels"], -100)}
        for row in short
    ]
    task = from_dataset(padded, targets=targets, pad=0)
    assert task == from_dataset(short, targets=targets, pad=0)
    if targets == "label":  # after the last token of the text, which is not 0
        batch = rows_of(task, TRAIN)
        np.testing.assert_array_equal(batch.weights.argmax(1), (batch.inputs != 0).sum(1))


def test_a_row_of_padding_alone_is_no_error():
    rows = [{"input_ids": [i % 7 + 1, 2] * (i > 0) or [0, 0]} for i in range(90)]
    task = from_dataset(rows, targets=None, pad=0)
    assert sum(task.examples) == 90 and task.tokens == 2


@pytest.mark.parametrize(
    "dataset, options, message",
    [
        (ROWS, {"targets": "label"}, "no column 'label'. Did you mean 'labels'"),
        (iter(ROWS), {}, "train has no length: a stream does not end"),
        ([], {}, "no rows"),
        ({"train": ROWS, "unsupervised": ROWS}, {}, "has the splits train, unsupervised: choose"),
        ({"train": ROWS, "val": ROWS, "dev": ROWS}, {}, "two of the splits"),
        ([{"input_ids": "a text", "labels": 0}], {}, "row 0 of train: the inputs are a text"),
        ([{"input_ids": 3, "labels": 0}], {}, "must be a list of tokens, got 3"),
        ([3], {}, "a row must be a dict"),
        ("nowhere", {}, "no folder 'nowhere'"),
        ([{"input_ids": [1] * (1 + i % 2), "labels": 0} for i in range(9)], {}, "pad them"),
    ],
)
def test_wrong_data_sets_are_one_line_errors(dataset, options, message):
    with pytest.raises(UserError, match=message) as error:
        from_dataset(dataset, **options)
    assert "\n" not in str(error.value)
