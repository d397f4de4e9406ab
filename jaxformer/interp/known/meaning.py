"""Runs a program on tokens, value by value, without a network.

The value of a step is a distribution over its values, or a number. It is nan where the program says
nothing: where no key is selected, or where a step that needs one value reads several.

Shape letters: B prompts, T positions, K values of a variable, Q and S positions of
queries and keys.
"""

import numpy as np

from jaxformer.interp.known.program import (
    ANSWER,
    NUMBER,
    POSITION,
    TOKEN,
    Aggregate,
    Backup,
    Cancelling,
    Choose,
    Copies,
    Count,
    Logic,
    Program,
    Select,
    Step,
    Table,
    aggregates,
    wanted,
)

TIE = 1e-6  # two values of an answer whose shares differ by less are equally right


def answers(program: Program, tokens_BxT: np.ndarray, is_flipped: bool = False) -> np.ndarray:
    """The answer at the last position of each prompt, (B,): a token, or a number; nan if undefined.

    Args:
        is_flipped: whether `Choose` always takes `otherwise`, as it would without its first head.
    """
    last_BxK = run(program, tokens_BxT, is_flipped)[ANSWER][:, -1]
    if program.sizes[ANSWER] == NUMBER:
        return last_BxK[:, 0]
    is_defined_B = ~np.isnan(last_BxK).any(-1)
    sorted_BxK = np.sort(np.nan_to_num(last_BxK), -1)
    if sorted_BxK.shape[1] > 1:
        is_defined_B &= sorted_BxK[:, -1] - sorted_BxK[:, -2] > TIE
    return np.where(is_defined_B, np.nan_to_num(last_BxK).argmax(-1), np.nan)


def run(
    program: Program, tokens_BxT: np.ndarray, is_flipped: bool = False
) -> dict[str, np.ndarray]:
    """{variable: its distribution at each position, (B, T, K), or its number, (B, T, 1)}."""
    B, T = tokens_BxT.shape
    position_BxT = np.broadcast_to(np.arange(T), (B, T))
    variables = {
        TOKEN: np.eye(program.vocab_size)[tokens_BxT],
        POSITION: np.eye(program.length)[position_BxT],
    }
    for name in program.order:
        variables[name] = _step(program, program.steps[name], variables, is_flipped)
    return variables


def _step(
    program: Program, step: Step, variables: dict[str, np.ndarray], is_flipped: bool
) -> np.ndarray:
    if isinstance(step, Table):
        return _looked_up(variables[step.of], _rows(step.table))
    if isinstance(step, Logic):
        first_BxTxK, second_BxTxJ = variables[step.first], variables[step.second]
        pair_BxTxKxJ = first_BxTxK[..., :, None] * second_BxTxJ[..., None, :]
        pair_BxTxP = pair_BxTxKxJ.reshape(*pair_BxTxKxJ.shape[:2], -1)
        entries = [entry for row in step.table for entry in row]
        return _looked_up(pair_BxTxP, _rows(entries))
    if isinstance(step, Count):
        is_selected_BxQxS = _selected(step.select, variables)
        is_selected_BxQxS[..., 0] *= 0  # the first position does not count; nan stays nan
        count_BxQ = is_selected_BxQxS.sum(-1)
        is_defined_BxQ = ~np.isnan(count_BxQ)
        one_hot_BxQxK = np.eye(program.length)[np.nan_to_num(count_BxQ).astype(int)]
        return np.where(is_defined_BxQ[..., None], one_hot_BxQxK, np.nan)
    if isinstance(step, Choose):
        then, otherwise = (_mean(a, variables) for a in (step.then, step.otherwise))
        is_token_BxT = variables[TOKEN][..., step.token] > 0
        return np.where(is_token_BxT[..., None] & (not is_flipped), then, otherwise)
    value_BxTxK = _mean(aggregates(step)[0], variables)
    if isinstance(step, Copies | Backup):  # their thresholds see single values only
        return np.where(_is_value(value_BxTxK)[..., None], value_BxTxK, np.nan)
    return 0 * value_BxTxK if isinstance(step, Cancelling) else value_BxTxK


def _mean(step: Aggregate, variables: dict[str, np.ndarray]) -> np.ndarray:
    """The mean of the selected values, (B, T, K)."""
    is_selected_BxQxS = _selected(step.select, variables)
    value_BxSxK = variables[step.values]
    count_BxQx1 = is_selected_BxQxS.sum(-1, keepdims=True)
    # A value that is not selected may be undefined.
    is_undefined_BxSx1 = np.isnan(value_BxSxK).any(-1, keepdims=True)
    n_undefined_BxQx1 = is_selected_BxQxS @ is_undefined_BxSx1
    total_BxQxK = is_selected_BxQxS @ np.nan_to_num(value_BxSxK)
    is_defined_BxQx1 = (count_BxQx1 > 0) & (n_undefined_BxQx1 == 0)
    return np.where(is_defined_BxQx1, total_BxQxK / np.maximum(count_BxQx1, 1), np.nan)


def _selected(select: Select, variables: dict[str, np.ndarray]) -> np.ndarray:
    """1 where a query selects a key, (B, Q, S); nan in rows that no value decides."""
    B, T = variables[TOKEN].shape[:2]
    is_visible_QxS = np.tril(np.ones((T, T)))
    if select.rule == "all":
        return np.broadcast_to(is_visible_QxS, (B, T, T)).copy()
    query_BxQxK, key_BxSxJ = variables[select.queries], variables[select.keys]
    matrix_KxJ = wanted(select, query_BxQxK.shape[-1], key_BxSxJ.shape[-1])
    query_BxQ, key_BxS = query_BxQxK.argmax(-1), key_BxSxJ.argmax(-1)
    wanted_BxQxS = matrix_KxJ[query_BxQ[:, :, None], key_BxS[:, None, :]] * is_visible_QxS
    most_BxQx1 = wanted_BxQxS.max(-1, keepdims=True)
    is_selected_BxQxS = ((wanted_BxQxS > 0) & (wanted_BxQxS == most_BxQx1)).astype(float)
    # A row is decided if its query and all keys that it sees are single values.
    is_key_open_BxS = ~_is_value(key_BxSxJ)
    sees_open_key_BxQ = np.logical_or.accumulate(is_key_open_BxS, axis=1)
    is_open_BxQ = ~_is_value(query_BxQxK) | sees_open_key_BxQ
    is_selected_BxQxS[is_open_BxQ] = np.nan
    return is_selected_BxQxS


def _looked_up(value_BxTxK: np.ndarray, rows_KxJ: np.ndarray) -> np.ndarray:
    """The row of each single value, (B, T, J); nan where there is none."""
    row_BxTxJ = rows_KxJ[value_BxTxK.argmax(-1)]
    return np.where(_is_value(value_BxTxK)[..., None], row_BxTxJ, np.nan)


def _is_value(value_BxTxK: np.ndarray) -> np.ndarray:
    """Whether a distribution has one value only, (B, T)."""
    return value_BxTxK.max(-1) > 1 - 1e-9


def _rows(entries) -> np.ndarray:
    """The one-hot rows of a table of values, or the column of a table of numbers."""
    if any(isinstance(entry, float) for entry in entries):
        return np.asarray(entries, float)[:, None]
    return np.eye(max(entries) + 1)[list(entries)]
