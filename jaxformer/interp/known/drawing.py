"""Draws programs at random, and dresses them with what makes their circuits hard to find."""

from collections.abc import Callable

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.known import prompts
from jaxformer.interp.known.compiled import (
    MAX_NOISE,
    NOISE_FACTOR,
    TOLERANCE,
    Compiled,
    compile_program,
)
from jaxformer.interp.known.program import (
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
    back,
    equal,
    everything,
    following,
    less,
)

# All networks of the same heads and layers have one shape, so that a program is compiled once.
VOCAB, LENGTH = 10, 8
WIDTH, HEAD_WIDTH, MLP_WIDTH = 96, 12, 128
LETTERS = VOCAB - 1  # the tokens apart from the first one of a prompt
MARGIN = 1.2  # between what a rare head does and what does not count
FEW_PAIRS = 16  # that a program must have

Steps = dict[str, Step]


def draw(
    seed: int,
    *,
    heads: int = 4,
    layers: int = 3,
    additive: int = 0,
    redundancy: int = 0,
    cancelling: int = 0,
    idle: int = 0,
    backup: bool = False,
    conditional: float = 0.0,
    noise: float = 0.0,
    rotated: bool = True,
) -> Compiled:
    """Draws a program, dresses it, and compiles it.

    At most one of `additive`, `redundancy`, `backup` and `conditional` may be given, so that each
    network has one kind. Pairs that cancel, idle heads and noise go with all of them. All networks
    of the same heads and layers share their shapes.

    Args:
        seed: of the program, the places of its parts, and everything random.
        heads: the heads of a block.
        layers: the number of blocks.
        additive: so many heads write a share of one result each (2 to 4; 0: one writes it all).
        redundancy: so many copies of a head more than it needs.
        cancelling: so many pairs of heads that write opposite things into the answer.
        idle: so many heads have random weights and write where no answer reads.
        backup: whether a head has a backup, which is silent as long as it works.
        conditional: the share of prompts on which another head than usual does the work, at most
            .4; 0: the same head on all.
        noise: the standard deviation of the noise on all weights, as a share of their root mean
            square; at most .03. Give `Compiled.tolerance` to a search then.
        rotated: whether the residual stream is rotated.

    Example:
        network = known.random(3, redundancy=1, idle=4)
        print(network.kinds, network.roles)
        pairs = network.sample(32)
        wiring = circuits.Wiring(network.model, network.params, *pairs, ablation="mean")
        assert circuits.find(wiring).edges in network.circuits["mean"]
    """
    check_range("seed", seed, 0)
    check_range("heads", heads, 1, 64)
    check_range("layers", layers, 1, 64)
    check_range("additive", additive, 0, 4)  # of more heads, some would have too small a share
    if additive == 1:
        raise UserError("additive=1 head has nothing to add to: give 2 to 4, or 0.")
    check_range("redundancy", redundancy, 0, 3)  # the means of more copies pass the threshold
    check_range("cancelling", cancelling, 0, 64)
    check_range("conditional", conditional, 0, 0.4)
    check_range("noise", noise, 0, MAX_NOISE)
    given = {
        "additive": additive,
        "redundancy": redundancy,
        "backup": backup,
        "conditional": conditional,
    }
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        raise UserError(
            f"a random network has one kind, got {' and '.join(chosen)}: give one of "
            f"{', '.join(given)}, or write the program and compile it."
        )
    least = MARGIN * (TOLERANCE + NOISE_FACTOR * noise)
    if 0 < conditional < least:
        raise UserError(
            f"conditional={conditional:.3g} of the prompts would be lost in noise={noise:.3g}: "
            f"give at least {least:.3g}."
        )
    random = np.random.default_rng(seed)
    reason = "it has no head to dress"
    for core in random.permutation(len(CORES)):
        steps = CORES[core](random)
        names = [name for name, step in steps.items() if isinstance(step, Aggregate)]
        for name in random.permutation(names) if chosen else [""]:
            all_steps = dict(steps)
            if name:
                all_steps[name] = _dressed(steps[name], additive, redundancy, conditional, random)
            for i in range(cancelling):
                all_steps[f"pair_{i}"] = _pair(random)
            try:
                program = Program(VOCAB, LENGTH, all_steps)
                prompts.sample(program, FEW_PAIRS, seed)  # raises if there are none
                return compile_program(
                    program,
                    heads=heads,
                    layers=layers,
                    width=WIDTH,
                    head_width=HEAD_WIDTH,
                    mlp_width=MLP_WIDTH,
                    seed=seed,
                    idle=idle,
                    rotated=rotated,
                    noise=noise,
                )
            except UserError as error:
                reason = str(error)
    raise UserError(f"no random program fits; the last one did not because {reason}")


def _dressed(
    step: Step,
    additive: int,
    redundancy: int,
    conditional: float,
    random: np.random.Generator,
) -> Step:
    """The step with shares, copies, a condition, or else a backup."""
    assert isinstance(step, Aggregate)
    if additive:
        share_n = 0.2 + random.dirichlet(np.ones(additive))
        return Shares(step, tuple((share_n / share_n.sum()).tolist()))
    if redundancy:
        return Copies(step, 1 + redundancy)
    if conditional:
        others = [steps for steps in range(1, LENGTH - 1) if steps != step.select.steps]
        other = Aggregate(back(int(random.choice(others))), "token")
        return Choose(_letter(random), other, step, conditional)
    return Backup(step)


def _pair(random: np.random.Generator) -> Cancelling:
    return Cancelling(_shifted(random), float(random.uniform(1, 2)))


def _shifted(random: np.random.Generator, values: str = "token", most: int = LENGTH - 2):
    """A head that looks back 1 to `most` positions."""
    return Aggregate(back(int(random.integers(1, most + 1))), values)


def _letter(random: np.random.Generator) -> int:
    return int(random.integers(1, VOCAB))


def _permutation(random: np.random.Generator) -> tuple[int, ...]:
    """A table that exchanges the letters; token 0 stays what it is."""
    return (0, *(1 + random.permutation(LETTERS)).tolist())


def _logic_table(random: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """A sum, a larger or smaller one, or what two letters have in common."""
    kind = int(random.integers(4))
    rows = [(0,) * VOCAB]
    for first in range(1, VOCAB):
        row = [0]
        for second in range(1, VOCAB):
            is_odd = first % 2, second % 2
            entry = (
                1 + (first + second) % LETTERS,
                max(first, second),
                min(first, second),
                1 + (is_odd[0] and is_odd[1]),
            )[kind]
            row.append(entry)
        rows.append(tuple(row))
    return tuple(rows)


def _shift(random: np.random.Generator) -> Steps:
    return {"answer": _shifted(random)}


def _shift_then_table(random: np.random.Generator) -> Steps:
    return {"there": _shifted(random), "answer": Table("there", _permutation(random))}


def _table_then_shift(random: np.random.Generator) -> Steps:
    return {
        "other": Table("token", _permutation(random)),
        "answer": _shifted(random, "other"),
    }


def _shift_of_shift(random: np.random.Generator) -> Steps:
    return {
        "there": _shifted(random, most=3),
        "answer": _shifted(random, "there", most=3),
    }


def _logic_of_shifts(random: np.random.Generator) -> Steps:
    first, second = (random.permutation(LENGTH - 2)[:2] + 1).tolist()
    return {
        "first": Aggregate(back(first), "token"),
        "second": Aggregate(back(second), "token"),
        "answer": Logic("first", "second", _logic_table(random)),
    }


def _logic_with_token(random: np.random.Generator) -> Steps:
    return {
        "there": _shifted(random),
        "answer": Logic("there", "token", _logic_table(random)),
    }


def _induction(random: np.random.Generator) -> Steps:
    del random
    return {
        "before": Aggregate(back(1), "token"),
        "answer": Aggregate(equal("token", "before"), "token"),
    }


def _induction_then_table(random: np.random.Generator) -> Steps:
    return {
        "before": Aggregate(back(1), "token"),
        "found": Aggregate(equal("token", "before"), "token"),
        "answer": Table("found", _permutation(random)),
    }


def _lookup_of_table(random: np.random.Generator) -> Steps:
    return {
        "before": Aggregate(back(1), "token"),
        "asked": Table("token", _permutation(random)),
        "answer": Aggregate(equal("asked", "before"), "token"),
    }


def _count_equal(random: np.random.Generator) -> Steps:
    del random
    return {"answer": Count(equal("token", "token"))}


def _count_less(random: np.random.Generator) -> Steps:
    del random
    return {"answer": Count(less("token", "token"))}


def _table_of_count(random: np.random.Generator) -> Steps:
    table = (1 + random.permutation(LETTERS)[:LENGTH]).tolist()
    return {"n": Count(less("token", "token")), "answer": Table("n", tuple(table))}


def _next_greater(random: np.random.Generator) -> Steps:
    del random
    return {"answer": Aggregate(following("token", "token"), "token")}


def _majority(random: np.random.Generator) -> Steps:
    del random
    return {"answer": Aggregate(everything(), "token")}


CORES: list[Callable[[np.random.Generator], Steps]] = [
    _shift,
    _shift_then_table,
    _table_then_shift,
    _shift_of_shift,
    _logic_of_shifts,
    _logic_with_token,
    _induction,
    _induction_then_table,
    _lookup_of_table,
    _count_equal,
    _count_less,
    _table_of_count,
    _next_greater,
    _majority,
]
