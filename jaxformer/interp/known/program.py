"""Small programs over the tokens of a prompt, and the rules that they obey.

    induction = Program(
        vocab_size=10,
        length=8,
        steps={
            "before": Aggregate(back(1), "token"),
            "answer": Aggregate(equal("token", "before"), "token"),
        },
    )

Each step computes a variable, which has a value at every position. Two variables are given: "token"
and "position". A step reads variables by name, and the step "answer" is what the network returns. A
variable is one of `size` values, or a number if its size is `NUMBER`.

A step looks at its own position and earlier ones. Prompts begin with token 0, which occurs nowhere
else: heads that have nothing to do look at it, and `Count` does not count it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range, unknown

TOKEN, POSITION, ANSWER = "token", "position", "answer"
NUMBER = 0  # the size of a variable that is a number
RULES = ("equal", "back", "less", "greater", "next", "all")
COUNTED = ("equal", "less", "greater")  # the rules that select any number of positions
SENSED = ("back", "equal")  # the rules whose heads are silent if they see the sensor
MAX_VALUES = 1000  # of a variable; the tables of a network grow with their square


@dataclass(frozen=True)
class Select:
    """Which keys a position looks at; `equal`, `back` and the others write it shorter.

    Attributes:
        rule: one of RULES.
        queries: the variable of the position that looks.
        keys: the variable of the positions that it looks at.
        steps: how many positions "back" goes.
    """

    rule: str
    queries: str = TOKEN
    keys: str = TOKEN
    steps: int = 0


def equal(queries: str, keys: str) -> Select:
    """The keys that have the value of the query."""
    return Select("equal", queries, keys)


def back(steps: int) -> Select:
    """The position so many steps back; the first position where there is none."""
    return Select("back", POSITION, POSITION, steps)


def less(queries: str, keys: str) -> Select:
    """The keys that are smaller than the query."""
    return Select("less", queries, keys)


def greater(queries: str, keys: str) -> Select:
    """The keys that are greater than the query."""
    return Select("greater", queries, keys)


def following(queries: str, keys: str) -> Select:
    """The smallest of the keys that are greater than the query."""
    return Select("next", queries, keys)


def everything() -> Select:
    """All positions up to this one."""
    return Select("all")


@dataclass(frozen=True)
class Aggregate:
    """The mean of a variable over the selected positions: one head.

    The mean of values is their distribution. It is a value again if all selected positions have the
    same one, as other steps expect of what they read.
    """

    select: Select
    values: str


@dataclass(frozen=True)
class Count:
    """The number of selected positions, without the first one: a head, then an MLP."""

    select: Select


@dataclass(frozen=True)
class Table:
    """The entry of a table for each value of a variable: an MLP.

    Attributes:
        of: the variable.
        table: the new value for each of its values, or a number for each (as floats).
    """

    of: str
    table: tuple[float, ...]


@dataclass(frozen=True)
class Logic:
    """The entry of a table for each pair of values of two variables: an MLP."""

    first: str
    second: str
    table: tuple[tuple[int, ...], ...]  # a row for each value of `first`


@dataclass(frozen=True)
class Copies:
    """Heads that compute the same thing, of which any one suffices.

    An MLP reads their sum and asks for each value only whether it is above a threshold, so there is
    no answer where the selected positions differ.
    """

    step: Aggregate
    n: int


@dataclass(frozen=True)
class Shares:
    """Heads that compute the same thing and add up: each writes its share of it."""

    step: Aggregate
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Backup:
    """A main head, an MLP that senses its output, and a head that steps in without it.

    The sensor sees a single value, so there is no answer where the selected positions differ.
    """

    step: Aggregate


@dataclass(frozen=True)
class Choose:
    """One of two heads, by the token of the position; the other one is silent.

    Attributes:
        token: where it stands, `then` works.
        then: what the first head computes.
        otherwise: what the second head computes, at all other tokens.
        share: the share of prompts that end with `token`.
    """

    token: int
    then: Aggregate
    otherwise: Aggregate
    share: float


@dataclass(frozen=True)
class Cancelling:
    """Two heads that add opposite things to the answer, so that together they do nothing."""

    step: Aggregate
    factor: float


Step = Aggregate | Count | Table | Logic | Copies | Shares | Backup | Choose | Cancelling


@dataclass(frozen=True)
class Program:
    """Named steps over the tokens of a prompt; raises UserError where they make no program.

    Attributes:
        vocab_size: the number of tokens, V. Token 0 begins each prompt.
        length: the number of tokens of a prompt, T. The last position has the answer.
        steps: {name: step}, in any order.
    """

    vocab_size: int
    length: int
    steps: Mapping[str, Step]
    # {variable: the number of its values}
    sizes: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        check_range("vocab_size", self.vocab_size, 3, MAX_VALUES)
        check_range("length", self.length, 2, MAX_VALUES)
        for name in self.steps:
            if name in (TOKEN, POSITION):
                raise UserError(f"{name!r} is given to every program: rename this step.")
            if not name.isidentifier():
                raise UserError(f"a step needs a name like 'before', got {name!r}.")
        if ANSWER not in self.steps:
            raise UserError(
                f"a program needs a step {ANSWER!r}, which the network returns; it has "
                f"{', '.join(map(repr, self.steps)) or 'no steps'}."
            )
        sizes = {TOKEN: self.vocab_size, POSITION: self.length}
        for name in self.order:
            sizes[name] = _size(name, self.steps[name], sizes, self)
            if ANSWER in reads(self.steps[name]):
                raise UserError(
                    f"the step {name!r} reads {ANSWER!r}, which nothing but the output may read: "
                    "compute it in a step of another name, and give the answer that."
                )
        object.__setattr__(self, "sizes", sizes)
        _check_copies(self)
        _check_sums(self)
        _check_choices(self)
        if sizes[ANSWER] > self.vocab_size:
            raise UserError(
                f"the answer has {sizes[ANSWER]} values, more than the {self.vocab_size} tokens "
                "that stand for them: give a larger vocab_size or a table with fewer values."
            )

    @property
    def order(self) -> list[str]:
        """The names of the steps, each after what it reads."""
        ordered: list[str] = []
        for name in self.steps:
            self._visit(name, [], ordered)
        return ordered

    def _visit(self, name: str, path: list[str], ordered: list[str]) -> None:
        """Appends a step to `ordered`, after all that it reads."""
        if name in ordered or name in (TOKEN, POSITION):
            return
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise UserError(
                f"the steps read each other in a cycle, {cycle}: a step may read only what is "
                "computed without it."
            )
        if name not in self.steps:
            raise unknown("variable", name, (TOKEN, POSITION, *self.steps))
        for read in reads(self.steps[name]):
            self._visit(read, [*path, name], ordered)
        ordered.append(name)

    @property
    def needed(self) -> set[str]:
        """The steps that the answer depends on."""
        found: set[str] = set()
        waiting = [ANSWER]
        while waiting:
            name = waiting.pop()
            if name in found or name not in self.steps:
                continue
            found.add(name)
            waiting += reads(self.steps[name])
        return found

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of parts that a method may find hard, such as "redundant"; or "plain"."""
        names = {
            Shares: "additive",
            Copies: "redundant",
            Cancelling: "cancelling",
            Backup: "backup",
            Choose: "conditional",
        }
        steps = self.steps.values()
        found = [name for kind, name in names.items() if any(type(s) is kind for s in steps)]
        return tuple(found) or ("plain",)


def aggregates(step: Step) -> list[Aggregate]:
    """The aggregates inside a step; none for tables and counts."""
    if isinstance(step, Aggregate):
        return [step]
    if isinstance(step, Choose):
        return [step.then, step.otherwise]
    if isinstance(step, Copies | Shares | Backup | Cancelling):
        return [step.step]
    return []


def reads(step: Step) -> list[str]:
    """The variables that a step reads."""
    if isinstance(step, Table):
        return [step.of]
    if isinstance(step, Logic):
        return [step.first, step.second]
    if isinstance(step, Count):
        return selected_by(step.select)
    found = []
    for aggregate in aggregates(step):
        found += [*selected_by(aggregate.select), aggregate.values]
    if isinstance(step, Choose):
        found.append(TOKEN)
    return found


def selected_by(select: Select) -> list[str]:
    """The variables that a selection reads."""
    return [] if select.rule == "all" else [select.queries, select.keys]


def wanted(select: Select, n_queries: int, n_keys: int) -> np.ndarray:
    """The numbers that say how much each value of the query wants each value of the key, (Q, K).

    A key is selected if no key of the prompt is wanted more, and its number is positive.
    """
    query_Qx1, key_1xK = np.arange(n_queries)[:, None], np.arange(n_keys)[None]
    if select.rule == "back":
        return (key_1xK == np.maximum(query_Qx1 - select.steps, 0)).astype(float)
    if select.rule == "equal":
        return (key_1xK == query_Qx1).astype(float)
    if select.rule == "less":
        return (key_1xK < query_Qx1).astype(float)
    if select.rule == "greater":
        return (key_1xK > query_Qx1).astype(float)
    assert select.rule == "next", select.rule
    return np.where(key_1xK > query_Qx1, float(n_keys) - key_1xK, 0.0)


def _size(name: str, step: Any, sizes: dict[str, int], program: Program) -> int:
    """The number of values of a step; raises UserError where it cannot be computed."""
    where = f"the step {name!r}"
    if not isinstance(step, Step):
        raise UserError(
            f"{where} must be an Aggregate, Count, Table, Logic or another step of "
            f"jaxformer.interp.known.program, got {type(step).__name__}."
        )
    selects = [aggregate.select for aggregate in aggregates(step)]
    if isinstance(step, Count):
        selects.append(step.select)
    for select in selects:
        _check_select(where, select, sizes)
    if isinstance(step, Count):
        check_choice(f"rule of {where}", step.select.rule, COUNTED)
        return program.length
    if isinstance(step, Table):
        return _size_of_table(where, step, sizes)
    if isinstance(step, Logic):
        return _size_of_logic(where, step, sizes)
    if isinstance(step, Copies):
        check_range(f"{where}: the number of copies", step.n, 2, 100)
    if isinstance(step, Shares):
        _check_share_numbers(where, step)
    if isinstance(step, Choose):
        check_range(f"{where}: the token", step.token, 1, program.vocab_size - 1)
        check_range(f"{where}: the share of prompts", step.share, 0.02, 0.4)
    if isinstance(step, Backup | Choose | Cancelling):
        for aggregate in aggregates(step):
            if aggregate.values != TOKEN:
                raise UserError(
                    f"{where}: {type(step).__name__} moves values of 'token' only, because token 0 "
                    f"is what a silent head looks at; got {aggregate.values!r}."
                )
    if isinstance(step, Backup) and selects[0].rule not in SENSED:
        raise UserError(
            f"the sensor of {where} sees one value: Backup takes heads that look back(n) or at an "
            f"equal key, got {selects[0].rule!r}."
        )
    if isinstance(step, Cancelling):
        check_range(f"{where}: the factor", step.factor, 0.1, 100)
    values = aggregates(step)[0].values
    if isinstance(step, Copies) and sizes[values] == NUMBER:
        raise UserError(f"{where}: Copies needs values, but {values!r} is a number.")
    return sizes[values]


def _check_select(where: str, select: Select, sizes: dict[str, int]) -> None:
    check_choice(f"rule of {where}", select.rule, RULES)
    for variable in selected_by(select):
        if sizes[variable] == NUMBER:
            raise UserError(f"{where} selects by {variable!r}, which is a number: give values.")
    if select.rule == "back":
        check_range(f"{where}: the steps back", select.steps, 0, sizes[POSITION] - 1)
        if (select.queries, select.keys) != (POSITION, POSITION):
            raise UserError(f"{where}: 'back' goes by position; write back({select.steps}).")
    if select.rule == "equal" and sizes[select.queries] != sizes[select.keys]:
        raise UserError(
            f"{where} compares {select.queries!r} ({sizes[select.queries]} values) with "
            f"{select.keys!r} ({sizes[select.keys]}): give variables with the same values."
        )


def _size_of_table(where: str, step: Table, sizes: dict[str, int]) -> int:
    if sizes[step.of] != len(step.table) or sizes[step.of] == NUMBER:
        raise UserError(
            f"{where}: the table must have an entry for each of the {sizes[step.of]} values of "
            f"{step.of!r}, got {len(step.table)}."
        )
    if any(isinstance(entry, float) for entry in step.table):
        return NUMBER
    return _largest(where, step.table) + 1


def _size_of_logic(where: str, step: Logic, sizes: dict[str, int]) -> int:
    expected = sizes[step.first], sizes[step.second]
    widths = {len(row) for row in step.table}
    if NUMBER in expected or (len(step.table), widths) != (expected[0], {expected[1]}):
        raise UserError(
            f"{where}: the table must have {expected[0]} rows of {expected[1]} entries, one for "
            f"each pair of values of {step.first!r} and {step.second!r}."
        )
    return max(_largest(where, row) for row in step.table) + 1


def _largest(where: str, entries: Iterable[Any]) -> int:
    """The largest entry of a table of values."""
    entries = list(entries)
    for entry in entries:
        if not isinstance(entry, int | np.integer) or not 0 <= entry < MAX_VALUES:
            raise UserError(
                f"{where}: entries of a table must be whole numbers from 0 to {MAX_VALUES - 1}, "
                f"got {entry!r}."
            )
    return int(max(entries))


def _check_share_numbers(where: str, step: Shares) -> None:
    shares = step.shares
    if len(shares) < 2 or min(shares) < 0.05 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(
            f"{where}: expected two or more shares of at least .05 that sum to 1, got {shares}."
        )


def _check_copies(program: Program) -> None:
    """Raises for copies and choices of which no circuit can be stated.

    If one of two copies moves another value, both values are there. The answer then shows it only
    if the copies look at positions, and if no second input turns the other value into a third
    answer, which a difference of two logits does not see. What a rare head moves may also not
    matter to the few prompts on which it works, if a second input decides.
    """
    for name, step in program.steps.items():
        if not isinstance(step, Copies | Choose):
            continue
        kind = type(step).__name__
        if {aggregate.select.rule for aggregate in aggregates(step)} != {"back"}:
            raise UserError(f"the step {name!r}: {kind} takes heads that look back(n) only.")
        for reader in _readers_of_values(program, name):
            if isinstance(program.steps[reader], Logic):
                raise UserError(
                    f"the step {name!r}: {kind} may not reach Logic ({reader!r}): with a second "
                    "input, some of its values would not be seen in the answer."
                )


def _readers_of_values(program: Program, name: str) -> set[str]:
    """The steps that pass on the value of this one, or compute with it."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for reader, step in program.steps.items():
            if isinstance(step, Table | Logic):
                is_reader = current in reads(step)
            else:
                is_reader = current in [a.values for a in aggregates(step)]
            if is_reader and reader not in found:
                found.add(reader)
                waiting.append(reader)
    return found


def _check_sums(program: Program) -> None:
    """Raises for shares and choices that a head compares.

    A head sees no difference between 1 and .7, so the parts would not add up there. A choice is
    also made by the token of the last position, so nothing may carry it further.
    """
    for name, step in program.steps.items():
        if not isinstance(step, Shares | Choose):
            continue
        for reader, other in program.steps.items():
            is_sum = isinstance(other, Table | Logic)
            if name in reads(other) and not is_sum:
                raise UserError(
                    f"the step {name!r}: {type(step).__name__} may be the answer or be read by "
                    f"Table (Shares also by Logic), but {reader!r} reads it by a head."
                )


def _check_choices(program: Program) -> None:
    """Raises for several choices, and for opposite parts with more values than the answer."""
    choices = [name for name, step in program.steps.items() if isinstance(step, Choose)]
    if len(choices) > 1:
        raise UserError(f"a program may have one Choose, got {', '.join(choices)}.")
    for name, step in program.steps.items():
        is_opposite = isinstance(step, Cancelling)
        if is_opposite and program.sizes[name] != program.sizes[ANSWER]:
            raise UserError(
                f"the step {name!r} has {program.sizes[name]} values and the answer "
                f"{program.sizes[ANSWER]}: Cancelling writes into the answer, so give them the "
                "same number."
            )
