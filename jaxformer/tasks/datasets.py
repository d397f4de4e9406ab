"""Rows of data-set libraries as a task in memory."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.tasks.arrays import NOT_SCORED, PARTS, Arrays

SPLITS = {**dict.fromkeys(("validation", "valid", "val", "dev"), "validation"), "train": "train"}
SPLITS |= {"test": "test"}
MASK = "attention_mask"  # the column in which tokenizers of transformers mark padding by 0


def from_dataset(
    dataset: Any,
    inputs: str | int = "input_ids",
    targets: str | int | None = "labels",
    weights: str | int | None = None,
    *,
    pad: int | None = None,
    shift: bool = False,
    **options: Any,
) -> Arrays:
    """Reads all rows of a data set into memory.

    Args:
        dataset: {"train": rows, "test": rows}, such as the DatasetDict of Hugging Face or what
            `tfds.load` returns; or rows alone. Rows are anything with a length that can be
            iterated: a `datasets.Dataset`, a tf.data.Dataset, a PyTorch Dataset, a list. A folder
            that `Dataset.save_to_disk` wrote is read with the package `datasets`.
        inputs: the column with the tokens of a row; for rows that are tuples, 0, 1 and 2 are
            inputs, targets and weights.
        targets: the column with a target for each token, or with one answer. None: each token
            predicts the next one.
        weights: the column with a weight for each target.
        pad: the token that fills up shorter rows, which is not scored. Without it all rows must
            have one length. Rows may be padded already: tokens of which the column
            `attention_mask` says 0 are left out first, and in rows without that column a run of
            `pad` at the beginning or the end. Keep the column if `pad` also ends a text.
        shift: the label of a position is what the position before it predicts, as in labels for
            transformers, which are a copy of the tokens with -100 where nothing is scored.
        **options: vocab_size, and the shares validation and test that parts which the data set
            lacks take from "train", as in `Arrays`.

    Example:
        rows = datasets.load_dataset("glue", "cola").map(lambda row: tokenizer(row["sentence"]))
        task = from_dataset(rows, targets="label", pad=tokenizer.pad_token_id)
    """
    columns = inputs, targets, weights
    gathered: dict[str, list[Any]] = {"inputs": [], "targets": [], "weights": []}
    parts: list[str] = []
    splits, are_copies, are_cut = _splits(dataset), True, False
    for split, rows in splits.items():
        for number, row in enumerate(_iterate(rows, split)):
            fields, is_cut = _without_padding(row, _fields(row, columns), pad)
            are_cut = are_cut or is_cut
            are_copies = are_copies and _is_copy(*fields[:2])
            for name, values in zip(gathered, _shifted(fields) if shift else fields, strict=True):
                gathered[name].append(values)
            parts.append(split)
            _check_row(gathered, f"row {number} of {split}")
    if not parts:
        raise UserError("the data set has no rows.")
    if are_copies and not shift:
        raise UserError(
            "the target of each token is the token itself, as in labels for transformers, which "
            "shifts them: give shift=True, or targets=None if no label is -100."
        )
    if pad is None and are_cut and len({*map(len, gathered["inputs"])}) > 1:
        raise UserError(
            f"the rows are padded ({MASK} has zeros): give pad=TOKEN, such as the tokenizer's "
            "pad_token_id, which is not scored."
        )
    if pad is not None:
        _fill_up(gathered, pad)
    arrays = {name: values for name, values in gathered.items() if values[0] is not None}
    return Arrays(**arrays, parts=parts if len(splits) > 1 else None, **options)


def _splits(dataset: Any) -> dict[str, Any]:
    """Returns {name of a part: its rows}; rows without parts are all "train"."""
    if isinstance(dataset, str | Path):
        dataset = _load_folder(dataset)
    if not isinstance(dataset, Mapping):
        return {"train": dataset}
    parts = {SPLITS.get(str(name)): rows for name, rows in dataset.items()}
    if None in parts or "train" not in parts:
        raise UserError(
            f"the data set has the splits {', '.join(map(str, dataset))}: choose among them as "
            f"{{'train': rows, ..}} with the names {', '.join(PARTS)}."
        )
    if len(parts) < len(dataset):
        raise UserError(f"two of the splits {', '.join(dataset)} are one part; give one of them.")
    return parts  # type: ignore[return-value]


def _load_folder(folder: str | Path) -> Any:
    if not Path(folder).is_dir():
        raise UserError(f"no folder {str(folder)!r}, which a data set was saved to.")
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise UserError(
            f"reading {folder} needs the package datasets (pip install datasets); or give rows, "
            "or arrays to jaxformer.tasks.Arrays."
        ) from None
    return datasets.load_from_disk(str(folder))


def _iterate(rows: Any, split: str) -> Iterator[Any]:
    try:
        n = len(rows)
    except TypeError:
        raise UserError(
            f"{split} has no length: a stream does not end. Take the first examples, such as "
            "list(itertools.islice(rows, 10_000))."
        ) from None
    if hasattr(rows, "as_numpy_iterator"):  # tf.data.Dataset
        yield from rows.as_numpy_iterator()
    elif hasattr(rows, "__iter__"):
        yield from rows
    else:  # a PyTorch Dataset, which need not stop at its length when it is iterated
        yield from (rows[i] for i in range(n))


def _fields(row: Any, columns: tuple[Any, ...]) -> list[Any]:
    """The inputs, targets and weights of a row; None for those without a column."""
    if not isinstance(row, Mapping):
        if not isinstance(row, tuple | list):
            raise UserError(
                f"a row must be a dict of columns or a tuple (inputs, targets), got "
                f"{type(row).__name__}."
            )
        values = [row[i] if i < len(row) else None for i in range(3)]
        return [values[0], None if columns[1] is None else values[1], values[2]]
    for column in columns:
        if column is not None and column not in row:
            raise UserError(
                f"the rows have no column {column!r}.{did_you_mean(column, map(str, row))} They "
                f"have: {', '.join(map(str, row))}. Give inputs=.. and targets=.. ."
            )
    return [None if column is None else row[column] for column in columns]


def _without_padding(row: Any, fields: list[Any], pad: int | None) -> tuple[list[Any], bool]:
    """The fields of a row without its padding, and whether there was any.

    A tokenizer that fills up rows writes zeros into a column of its own. Without that column the
    padding is the run of `pad` at each end.
    """
    inputs = fields[0]
    if np.ndim(inputs) != 1:  # `_check_row` refuses it
        return fields, False
    if isinstance(row, Mapping) and row.get(MASK) is not None:
        is_real_T = np.asarray(row[MASK]) != 0
    elif pad is not None:
        is_real_T = _is_within(np.asarray(inputs) != pad)
    else:
        return fields, False
    if is_real_T.shape != np.shape(inputs) or is_real_T.all():
        return fields, False
    kept = [
        np.asarray(x)[is_real_T] if np.shape(x) == is_real_T.shape else x  # an answer is no list
        for x in fields
    ]
    return kept, True


def _is_within(is_text_T: np.ndarray) -> np.ndarray:
    """Booleans (T,): from the first to the last token of a text. A row without text keeps one."""
    places = np.flatnonzero(is_text_T)
    first, last = (places[0], places[-1]) if places.size else (0, 0)
    position_T = np.arange(len(is_text_T))
    return (first <= position_T) & (position_T <= last)


def _is_copy(inputs: Any, targets: Any) -> bool:
    """Tests whether the scored targets of a row are its tokens."""
    if targets is None or np.shape(targets) != np.shape(inputs) or np.ndim(inputs) != 1:
        return False
    targets = np.asarray(targets)
    return bool(((targets == inputs) | (targets == NOT_SCORED)).all())


def _shifted(fields: list[Any]) -> list[Any]:
    """The fields of a row in which a position has the label and the weight of the next one."""
    inputs, targets, weights = fields
    if np.ndim(targets) != 1 or len(targets) != len(inputs):
        raise UserError("shift=True needs a label for each token.")
    return [inputs[:-1], targets[1:], None if weights is None else weights[1:]]


def _check_row(gathered: dict[str, list[Any]], where: str) -> None:
    values = gathered["inputs"][-1]
    if isinstance(values, str | bytes):
        raise UserError(
            f"{where}: the inputs are a text ({values[:20]!r}): encode it with a tokenizer first."
        )
    if np.ndim(values) != 1:
        raise UserError(f"{where}: the inputs must be a list of tokens, got {values!r:.60}.")


def _fill_up(gathered: dict[str, list[Any]], pad: int) -> None:
    """Fills rows up to the longest one, with targets that are not scored."""
    length = max(map(len, gathered["inputs"]))
    scored = gathered["targets"]
    if scored[0] is None:  # the next token, which padding is not
        scored = [[*row[1:], NOT_SCORED] for row in gathered["inputs"]]
    elif np.ndim(scored[0]) == 0:  # one answer, after the last token
        scored = [
            [*[NOT_SCORED] * (len(row) - 1), answer]
            for row, answer in zip(gathered["inputs"], scored, strict=True)
        ]
        if gathered["weights"][0] is not None:
            gathered["weights"] = [
                [*[0] * (len(row) - 1), weight]
                for row, weight in zip(gathered["inputs"], gathered["weights"], strict=True)
            ]
    gathered["targets"] = scored
    for name, fill in (("inputs", pad), ("targets", NOT_SCORED), ("weights", 0)):
        if gathered[name][0] is not None:
            gathered[name] = [[*row, *[fill] * (length - len(row))] for row in gathered[name]]
