"""Searches for the smallest set of trained parts, and for the smallest network, that is no worse.

Parts leave one after the other (backwards elimination), either frozen at their random values or
removed. In each step seed 0 tries every remaining part; the largest of those that lose nothing
visible is the candidate, and the judge of the report compares it with the whole network on fresh
seeds, on 3, 5 and at last 8 of them. A part that failed once stays. All comparisons of a search
share 5 % of errors.

The result is small, but not always the smallest there is: two parts may stand in for each other,
and then the order decides which of them stays. `Step.ties` names those.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jaxformer.core import paths
from jaxformer.core.partition import FROZEN as UNTRAINED
from jaxformer.io.run_folder import config_hash
from jaxformer.stats.differences import LEVEL, Number
from jaxformer.studies.anatomy import judge
from jaxformer.studies.anatomy.parts import FROZEN, REMOVED, WHOLE_NETWORK, Part, Variant
from jaxformer.studies.anatomy.sentences import BRANCH_OF, score_text, sentence_subject
from jaxformer.studies.anatomy.study import Member, Result, Study
from jaxformer.studies.budget import Spent

MAX_NAME = 100  # letters; longer names of variants are shortened, since files are named for them
FIRST_FRESH = 1  # seed 0 chooses the candidates
UNSEARCHED = "everything outside the searched parts"  # which need not cover the network


class Step(NamedTuple):
    """The network after one more part has left."""

    gone: str  # the part that left; "" for the whole network
    parameters: int  # that are still trained, or still there
    score: Number  # over fresh seeds
    ties: tuple[str, ...] = ()  # parts that looked as good in this step


class Elimination(NamedTuple):
    """The steps of a search.

    Attributes:
        method: "frozen" or "removed".
        steps: the whole network, then one step for each part that left.
        left: the parts that are still trained, or still there.
        total: the parameters of the whole network.
        is_complete: whether the search ended; False if the time was over.
    """

    method: str
    steps: tuple[Step, ...]
    left: tuple[str, ...]
    total: int
    is_complete: bool

    @property
    def sentence(self) -> str:
        whole, last = self.steps[0], self.steps[-1]
        numbers = f"{score_text(last.score).removesuffix(' %')} against {score_text(whole.score)}"
        share = f"{last.parameters / self.total:.1%} of the parameters"
        so_far = "" if self.is_complete else " So far: the search was stopped."
        if len(self.steps) == 1:
            verb = "stay random" if self.method == FROZEN else "go"
            if not self.is_complete:
                return f"The search was stopped before it found a part that can {verb}."
            return f"No part was found that can {verb} without a loss."
        if self.method == FROZEN:
            return f"It is enough to train {_listed(self.left)}: {share}, {numbers}.{so_far}"
        gone = _listed([f"no {step.gone.removeprefix('the ')}" for step in self.steps[1:]])
        return f"The smallest network found has {gone}: {share}, {numbers}.{so_far}"


TrainAll = Callable[[Sequence[Member]], Iterator[Result]]


def candidates(parts: Sequence[Part], method: str) -> list[Part]:
    """Returns the parts that may leave: the smallest ones that freeze, or branches of blocks.

    Args:
        parts: those of the network and of each of its blocks (`parts_of` with by_layer).
        method: "frozen" or "removed".
    """
    if method == REMOVED:
        return [part for part in parts if part.zeroed and part.layer is not None]
    whole = [part for part in parts if part.layer is None]
    branches = {BRANCH_OF[part.name] for part in whole if part.name in BRANCH_OF}
    return [part for part in whole if part.name not in branches]


def search(
    study: Study,
    parts: Sequence[Part],
    method: str,
    *,
    train_all: TrainAll | None = None,
    seconds: float = math.inf,
    is_stopped: Callable[[], bool] = lambda: False,
    write_line: Callable[[str], None] = lambda line: None,
) -> Elimination:
    """Lets parts leave as long as the network is no worse.

    Args:
        study: the whole network, trained at its learning rate; members are kept in its store.
        parts: the parts that may leave, as from `candidates`.
        method: "frozen" or "removed".
        train_all: trains members in any order; by default one after the other.
        seconds: the time of the search, as `Spent` counts it.
        is_stopped: returns whether to stop before the next training.
        write_line: prints a line for each step.
    """
    trials = _Trials(study, method, len(parts), train_all, seconds, is_stopped)
    gone: list[Part] = []
    stays: list[Part] = []
    is_complete = trials.train([WHOLE_NETWORK], trials.fresh(0))
    steps = [Step("", trials.parameters([]), trials.score(WHOLE_NETWORK))]

    def remaining() -> list[Part]:
        """The parts that would make the network smaller, but not leave nothing."""
        now = trials.parameters(gone)
        sizes = {part: trials.parameters([*gone, part]) for part in parts if part not in gone}
        return [part for part, size in sizes.items() if size < now]

    while is_complete:
        tried = [x for x in remaining() if x not in stays and trials.parameters([*gone, x]) > 0]
        is_complete = trials.train([trials.variant([*gone, part]) for part in tried], [0])
        if not tried or not is_complete:
            break
        passing = [part for part in tried if trials.passes(trials.variant([*gone, part]))]
        stays += [part for part in tried if part not in passing]
        # The largest part goes first, because the smallest network is looked for.
        passing.sort(key=lambda part: trials.parameters([*gone, part]))
        for part in passing:
            outcome = trials.is_no_worse(trials.variant([*gone, part]))
            if outcome is None:
                is_complete = False
                break
            if not outcome:
                stays.append(part)
                continue
            gone.append(part)
            ties = tuple(part_text(other) for other in passing if other not in (part, *stays))
            score = trials.score(trials.variant(gone))
            steps.append(Step(part_text(part), trials.parameters(gone), score, ties))
            left = steps[-1].parameters / steps[0].parameters
            write_line(f"  {part_text(part)} {method}: {score_text(score)}, {left:.1%} are left")
            break
    if gone:  # compared seed by seed, so the whole network's score is that of the same seeds
        whole, seeds = trials.score(WHOLE_NETWORK), [*steps[-1].score.by_seed]
        if {*seeds} <= {*whole.by_seed}:
            steps[0] = steps[0]._replace(score=whole.of_seeds(seeds))
    names = tuple(part_text(part) for part in remaining())
    if method == FROZEN and trials.parameters(parts) > 0:
        names += (UNSEARCHED,)
    total = study.subject.parameters()
    return Elimination(method, tuple(steps), names, total, is_complete)


class _Trials:
    """Trains and judges networks without some of their parts."""

    def __init__(
        self,
        study: Study,
        method: str,
        n_parts: int,
        train_all: TrainAll | None,
        seconds: float,
        is_stopped: Callable[[], bool],
    ):
        self.study, self.method, self.n_parts = study, method, n_parts
        self.train_all = train_all or (lambda members: map(study.train, members))
        self.spent, self.budget = Spent(is_here=train_all is None), seconds
        self.is_stopped = is_stopped
        network = study.subject.network
        self.sizes = {
            path: leaf.size
            for path, leaf in paths.flatten(network.shapes).items()
            if method == REMOVED or network.partition.label(path) != UNTRAINED
        }

    def variant(self, gone: Sequence[Part]) -> Variant:
        """The network without some parts; without one, it is a variant of the ordinary report."""
        name, layer = gone[0].name, gone[0].layer
        if len(gone) > 1:
            name, layer = " + ".join(sorted(part_text(part) for part in gone)), None
            if len(name) > MAX_NAME:
                name = f"{len(gone)} parts {config_hash({'parts': name})}"
        fixed = _any_of([part.pattern for part in gone])
        zeroed = _any_of([part.zeroed for part in gone]) if self.method == REMOVED else ""
        return Variant(name, self.method, layer, fixed, zeroed)

    def parameters(self, gone: Sequence[Part]) -> int:
        """The number of parameters that are still trained, or still there."""
        changed = self.variant(gone) if gone else WHOLE_NETWORK
        return sum(size for path, size in self.sizes.items() if changed.is_updated(path))

    def train(self, variants: Sequence[Variant], seeds: Sequence[int]) -> bool:
        """Trains missing members; returns False if the time was over before."""
        rate = self.study.rate(WHOLE_NETWORK)
        members = [Member(variant, seed, rate) for variant in variants for seed in seeds]
        missing = [member for member in members if self.study.store.get(*member) is None]
        results = self.train_all(missing) if missing else iter(())
        for _ in missing:
            if self.is_stopped() or self.spent.seconds() > self.budget:
                return False
            if (result := next(results, None)) is None:
                return False
            self.study.keep(result)
        return True

    def passes(self, variant: Variant) -> bool:
        """Whether seed 0 loses no more than the margin."""
        whole, score = (self._cell(v, [0]).score.mean for v in (WHOLE_NETWORK, variant))
        return score >= whole - self.study.margin * (whole - self.study.trivial()[1])

    def is_no_worse(self, variant: Variant) -> bool | None:
        """Whether a variant is no worse on fresh seeds; None if the time was over before."""
        name, trivial = self.study.trivial()
        for look in range(len(judge.SEEDS_AT_LOOK)):
            seeds = self.fresh(look)
            if not self.train([WHOLE_NETWORK, variant], seeds):
                return None
            whole, cell = (self._cell(v, seeds) for v in (WHOLE_NETWORK, variant))
            (row,) = judge.judge(whole, [cell], trivial, name, self.study.margin).rows
            if row.raw == judge.WORSE:  # a part that might go with more training stays as well
                return False
            if row.outcome == judge.NO_WORSE and row.p * self.n_parts < 1 - LEVEL:
                return True
        return False

    def score(self, variant: Variant) -> Number:
        """The score over all fresh seeds that were trained, over seed 0 if there are none."""
        rate = self.study.rate(WHOLE_NETWORK)
        fresh = self.fresh(len(judge.SEEDS_AT_LOOK) - 1)
        seeds = [seed for seed in fresh if self.study.store.get(variant, seed, rate) is not None]
        return self._cell(variant, seeds or [0]).score

    def fresh(self, look: int) -> range:
        n_seeds = min(judge.SEEDS_AT_LOOK[look], self.study.max_seeds)
        return range(FIRST_FRESH, FIRST_FRESH + n_seeds)

    def _cell(self, variant: Variant, seeds: Sequence[int]) -> judge.Cell:
        """The score over some seeds at the learning rate of the whole network."""
        rate = self.study.rate(WHOLE_NETWORK)
        members = {seed: self.study.store.get(variant, seed, rate) for seed in seeds}
        known = {seed: member for seed, member in members.items() if member is not None}
        diverged = [seed for seed, member in known.items() if member.diverged_at is not None]
        scores = {seed: member.test for seed, member in known.items()}
        return judge.Cell(variant, judge.score_number(scores, self.study.metric, diverged), rate)


def part_text(part: Part) -> str:
    """Returns a name such as "the MLP of block 1"."""
    text = sentence_subject(part.name, part.layer)
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def _any_of(patterns: Sequence[str]) -> str:
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{pattern})" for pattern in patterns)


def _listed(names: Sequence[str]) -> str:
    bare = [name.removeprefix("the ") for name in names]
    return bare[0] if len(bare) == 1 else f"{', '.join(bare[:-1])} and {bare[-1]}"
