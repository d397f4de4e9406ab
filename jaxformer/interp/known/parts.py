"""The heads and hidden units that compute a program: which variable each reads and writes.

The residual stream is the direct sum of a subspace for each variable. A part reads some of them by
matrices and adds to one:

    head      a_ts = SHARPNESS (sum_v q_t[v] Q_v + b) . (sum_v k_s[v] K_v)
              y_t[w] += softmax_s(a_ts) x_s[v] O
    neurons   y[w] += relu(sum_v x[v] M_v + b) O

Values are one-hot. A head looks up a row of `program.wanted` with its query and multiplies it with
the one-hot key. A last column of queries and keys is the *sink*: the key of the first position has
a 1 there, and the query says how much a head that has nothing to do wants it.

Shape letters: K values of a variable, D numbers of a query and a key, M hidden units.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxformer.interp.known import meaning
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
    Shares,
    Step,
    Table,
    wanted,
)

SHARPNESS = 30.0  # the score of a key that is wanted; others get e^-30 of its weight
SILENCE = 2.0  # how much a silent head wants the sink; a key that it looks for has 1
# A value is there if its number is above the threshold. One copy of it has 1, and the means of
# three copies among nine values have a third.
THRESHOLD, STEEPNESS = 0.75, 8.0


@dataclass(frozen=True, eq=False)
class Read:
    """A variable that a part reads, and the matrix by which it reads it.

    Attributes:
        variable: the name of the variable.
        matrix: (K, D) or (K, M).
        is_gate: whether it says that the part is silent, and nothing else.
    """

    variable: str
    matrix: np.ndarray
    is_gate: bool = False


@dataclass(frozen=True, eq=False)
class Head:
    """A head; see the module's docstring.

    Attributes:
        step: the step of the program that it belongs to.
        role: what the head is among those of its step, such as "copy", "main" or "backup".
        writes: the variable that it adds to.
        queries, keys, values: what it reads.
        bias: b, of the queries, (D,).
        out: O, from the values to the variable.
    """

    step: str
    role: str
    writes: str
    queries: tuple[Read, ...]
    keys: tuple[Read, ...]
    values: Read
    bias: np.ndarray
    out: np.ndarray

    @property
    def reads(self) -> dict[str, tuple[Read, ...]]:
        """{"query", "key" or "value": what they read}."""
        return {"query": self.queries, "key": self.keys, "value": (self.values,)}

    @property
    def width(self) -> int:
        """The numbers that a head needs for its queries, keys and values."""
        return max(len(self.bias), len(self.out))


@dataclass(frozen=True, eq=False)
class Neurons:
    """Hidden units of an MLP; see the module's docstring."""

    step: str
    role: str
    writes: str
    inputs: tuple[Read, ...]
    bias: np.ndarray
    out: np.ndarray

    @property
    def reads(self) -> dict[str, tuple[Read, ...]]:
        """{"": what the units read}."""
        return {"": self.inputs}


Part = Head | Neurons


@dataclass(frozen=True)
class Plan:
    """The parts of a program in the order of computation, and the sizes of their variables.

    A part reads of a variable what the parts before it have written.
    """

    parts: tuple[Part, ...]
    sizes: dict[str, int]  # {variable: the width of its subspace}
    constants: frozenset[str]  # variables that have one value as long as every part works


def plan_of(program: Program) -> Plan:
    """The parts that compute a program."""
    sizes = {name: max(size, 1) for name, size in program.sizes.items()}
    for name, step in program.steps.items():
        if isinstance(step, Cancelling):
            del sizes[name]  # it writes into the answer
    lowered = Lowering(program, sizes)
    for name in program.order:
        lowered.add(name, program.steps[name])
    return Plan(tuple(lowered.parts), lowered.sizes, frozenset(lowered.constants))


class Lowering:
    """Turns steps into parts, one after the other."""

    def __init__(self, program: Program, sizes: dict[str, int]):
        self.program, self.sizes = program, sizes
        self.parts: list[Part] = []
        self.constants: set[str] = set()
        # Every variable has one value at the first position, which sees nothing but itself.
        first_1x1 = np.zeros((1, 1), int)
        self.first = {
            name: np.nan_to_num(value_1x1xK[0, 0])
            for name, value_1x1xK in meaning.run(program, first_1x1).items()
        }

    def add(self, name: str, step: Step) -> None:
        """Adds the parts of a step."""
        lower: Callable[[str, Step], None] = {
            Aggregate: self._aggregate,
            Count: self._count,
            Table: self._table,
            Logic: self._logic,
            Copies: self._copies,
            Shares: self._shares,
            Backup: self._backup,
            Choose: self._choose,
            Cancelling: self._cancelling,
        }[type(step)]
        lower(name, step)

    def _aggregate(self, name: str, step: Aggregate) -> None:
        self.parts.append(self._head(name, "head", step, name))

    def _count(self, name: str, step: Count) -> None:
        """One of 1 + n equally wanted keys is the first position, so its weight is 1 / (1 + n)."""
        select = step.select
        n_queries, n_keys = self.sizes[select.queries], self.sizes[select.keys]
        wanted_KxJ = wanted(select, n_queries, n_keys)
        # The first position is wanted exactly once, whatever its own key is.
        at_first_K = wanted_KxJ @ self.first[select.keys]
        query_KxD = np.concatenate([wanted_KxJ, -at_first_K[:, None]], 1)
        bias_D = np.eye(n_keys + 1)[-1]
        rate, length = f"{name}/rate", self.program.length
        self.sizes[rate] = 1
        head = Head(
            step=name,
            role="head",
            writes=rate,
            queries=(Read(select.queries, query_KxD),),
            keys=(Read(select.keys, np.eye(n_keys, n_keys + 1)), self._sink(n_keys + 1)),
            values=Read(POSITION, np.eye(length)[:, :1]),
            bias=bias_D,
            out=np.ones((1, 1)),
        )
        # Between the rates 1 / (1 + n) of two counts lies a threshold; below the last one is 0.
        rate_N = 1 / (1 + np.arange(length))
        threshold_N = (rate_N + np.append(rate_N[1:], 0)) / 2
        steepness = 1 / (rate_N - threshold_N).min()
        out_NxN = np.eye(length) - np.eye(
            length, k=1
        )  # above this threshold and not above the last
        self.parts += [head, self._thresholds(name, rate, name, threshold_N, steepness, out_NxN)]

    def _table(self, name: str, step: Table) -> None:
        n_values = self.sizes[step.of]
        rows_KxJ = table_rows(step.table, self.program.sizes[name])
        read = Read(step.of, np.eye(n_values))
        self._neurons(name, "table", name, (read,), np.zeros(n_values), rows_KxJ)

    def _logic(self, name: str, step: Logic) -> None:
        """One hidden unit for each pair of values: relu(x_a + y_b - 1)."""
        n_first, n_second = self.sizes[step.first], self.sizes[step.second]
        reads = (
            Read(step.first, np.repeat(np.eye(n_first), n_second, axis=1)),
            Read(step.second, np.tile(np.eye(n_second), n_first)),
        )
        entries = [entry for row in step.table for entry in row]
        rows_MxJ = table_rows(entries, self.program.sizes[name])
        self._neurons(name, "logic", name, reads, -np.ones(len(entries)), rows_MxJ)

    def _copies(self, name: str, step: Copies) -> None:
        total, size = f"{name}/copies", self.sizes[name]
        self.sizes[total] = size
        for _ in range(step.n):
            self.parts.append(self._head(name, "copy", step.step, total))
        threshold_K = np.full(size, THRESHOLD)
        self.parts.append(self._thresholds(name, total, name, threshold_K, STEEPNESS, np.eye(size)))

    def _shares(self, name: str, step: Shares) -> None:
        for share in step.shares:
            self.parts.append(self._head(name, "share", step.step, name, factor=share))

    def _backup(self, name: str, step: Backup) -> None:
        size, seen = self.sizes[name], f"{name}/seen"
        self.sizes[seen] = 1
        self.constants.add(seen)
        self.parts.append(self._head(name, "main", step.step, name))
        threshold_K = np.full(size, THRESHOLD)
        sensor = self._thresholds(name, name, seen, threshold_K, STEEPNESS, np.ones((size, 1)))
        self.parts.append(sensor)
        gate = Read(seen, np.full((1, 1), SILENCE), is_gate=True)
        self.parts.append(self._head(name, "backup", step.step, name, gate=gate))

    def _choose(self, name: str, step: Choose) -> None:
        is_token_V = np.eye(self.program.vocab_size)[step.token]
        for role, aggregate, is_silent_V in (
            ("then", step.then, 1 - is_token_V),
            ("otherwise", step.otherwise, is_token_V),
        ):
            gate = Read(TOKEN, SILENCE * is_silent_V[:, None], is_gate=True)
            self.parts.append(self._head(name, role, aggregate, name, gate=gate))

    def _cancelling(self, name: str, step: Cancelling) -> None:
        for role, factor in (("plus", step.factor), ("minus", -step.factor)):
            self.parts.append(self._head(name, role, step.step, ANSWER, factor=factor))

    def _head(
        self,
        name: str,
        role: str,
        step: Aggregate,
        writes: str,
        factor: float = 1.0,
        gate: Read | None = None,
    ) -> Head:
        """A head that computes an aggregate.

        Args:
            gate: what makes the head look at the sink, a column for the query.
        """
        select, size = step.select, self.sizes[step.values]
        queries: list[Read] = []
        keys: list[Read] = []
        n_keys = 0
        if select.rule != "all":
            n_keys = self.sizes[select.keys]
            queries.append(Read(select.queries, wanted(select, self.sizes[select.queries], n_keys)))
            keys.append(Read(select.keys, np.eye(n_keys)))
        value_KxK = np.eye(size)
        n_columns = n_keys
        if gate is not None:
            n_columns = n_keys + 1
            sink_column_1xD = np.eye(n_columns)[-1:]
            queries.append(Read(gate.variable, gate.matrix @ sink_column_1xD, is_gate=True))
            keys.append(self._sink(n_columns, is_gate=True))
            value_KxK[0] = 0  # token 0, which a silent head looks at, is worth nothing
        return Head(
            step=name,
            role=role,
            writes=writes,
            queries=tuple(_widened(read, n_columns) for read in queries),
            keys=tuple(_widened(read, n_columns) for read in keys),
            values=Read(step.values, value_KxK),
            bias=np.zeros(n_columns),
            out=factor * np.eye(size),
        )

    def _sink(self, n_columns: int, is_gate: bool = False) -> Read:
        """The key of the first position, in the last column."""
        matrix_TxD = np.zeros((self.program.length, n_columns))
        matrix_TxD[0, -1] = 1
        return Read(POSITION, matrix_TxD, is_gate)

    def _neurons(
        self,
        name: str,
        role: str,
        writes: str,
        inputs: Sequence[Read],
        bias_M: np.ndarray,
        out_MxJ: np.ndarray,
    ) -> None:
        self.parts.append(Neurons(name, role, writes, tuple(inputs), bias_M, out_MxJ))

    def _thresholds(
        self,
        name: str,
        variable: str,
        writes: str,
        threshold_N: np.ndarray,
        steepness: float,
        out_NxJ: np.ndarray,
    ) -> Neurons:
        """Units of which each pair is 1 if a number is above its threshold, and else 0.

        A pair is relu(z + 1/2) - relu(z - 1/2) with z = steepness (x - threshold). There is one
        number for all thresholds, or one for each.
        """
        size, n = self.sizes[variable], len(threshold_N)
        number_KxN = np.ones((1, n)) if size == 1 else np.eye(size)
        matrix_Kx2N = steepness * np.repeat(number_KxN, 2, axis=1)
        bias_2N = np.repeat(-steepness * threshold_N, 2) + np.tile([0.5, -0.5], n)
        out_2NxJ = np.repeat(out_NxJ, 2, axis=0) * np.tile([1.0, -1.0], n)[:, None]
        role = "sensor" if writes.endswith("/seen") else "threshold"
        return Neurons(name, role, writes, (Read(variable, matrix_Kx2N),), bias_2N, out_2NxJ)


def table_rows(entries: Sequence[float], size: int) -> np.ndarray:
    """The one-hot rows of values, (K, size), or the column of numbers, (K, 1)."""
    if size == NUMBER:
        return np.asarray(entries, float)[:, None]
    return np.eye(size)[np.asarray(entries, int)]


def _widened(read: Read, n_columns: int) -> Read:
    """The read with further columns of zeros."""
    missing = n_columns - read.matrix.shape[1]
    return Read(read.variable, np.pad(read.matrix, ((0, 0), (0, missing))), read.is_gate)
