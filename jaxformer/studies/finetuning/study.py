"""Decides which update is trained next, so that seeds go to open comparisons.

1. Everything is trained in full with one seed at every learning rate. Validation chooses a rate.
2. So is every other update: adapters and norms need higher rates than full updates.
3. Everything, and each update whose comparison is open, is trained with 3 seeds, then 5 and 8.

Members that are in the store are not trained again: the same command resumes a stopped study.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy.judge import OPEN, SEEDS_AT_LOOK
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Result
from jaxformer.studies.finetuning import judge
from jaxformer.studies.finetuning.judge import Cell, Table
from jaxformer.studies.finetuning.training import Trainer, Tuned
from jaxformer.studies.finetuning.updates import FULL, Update

AS_LOADED = Update("as loaded", "")
Rates = Callable[[Update], Sequence[float]]


class Study:
    """The updates of a model, and the members that were trained so far.

    Args:
        trainer: trains a member.
        updates: the updates, with the full one of everything.
        rates: the learning rates that an update tries.
        store: the trained members.
        max_seeds: the largest number of seeds of an update.
        margin: the share of the gain that an update which is enough may lose.
    """

    def __init__(
        self,
        trainer: Trainer,
        updates: Sequence[Update],
        rates: Rates,
        store: Store,
        max_seeds: int,
        margin: float,
    ):
        self.trainer, self.rates, self.store = trainer, rates, store
        self.updates = [update for update in updates if update != FULL]
        self.max_seeds, self.margin = max_seeds, margin

    def stages(self) -> Iterator[list[Member]]:
        """Yields lists of members that are due; call `keep` with their results in between."""
        yield self._first_seed(FULL)
        yield [member for update in self.updates for member in self._first_seed(update)]
        for n in SEEDS_AT_LOOK:
            seeds = range(min(n, self.max_seeds))
            open_updates = self._open_updates()
            yield [
                Member(update, seed, self.rate(update))
                for seed in seeds
                for update in ([FULL, *open_updates] if open_updates else [])
                if self.store.get(update, seed, self.rate(update)) is None
            ]

    def _first_seed(self, update: Update) -> list[Member]:
        rates = [rate for rate in self.rates(update) if self.store.get(update, 0, rate) is None]
        return [Member(update, 0, rate) for rate in rates]

    def _open_updates(self) -> list[Update]:
        return [row.cell.update for row in self.table().rows if row.outcome == OPEN]

    def minimum(self) -> int:
        """The number of trainings until every comparison has its first verdict."""
        more = min(SEEDS_AT_LOOK[0], self.max_seeds) - 1
        return sum(len(self.rates(update)) + more for update in (FULL, *self.updates))

    def train(self, member: Member) -> Result:
        return Result(member, self.trainer.train(member.variant, member.seed, member.rate), None)

    def keep(self, result: Result) -> None:
        self.store.put(
            result.member.variant, result.member.seed, result.member.rate, result.trained
        )

    @cached_property
    def before(self) -> Tuned:
        """The scores of the model as it was loaded."""
        stored = self.store.get(AS_LOADED, 0, 0.0)
        if stored is None:
            stored = self.trainer.untrained()
            self.store.put(AS_LOADED, 0, 0.0, stored)
        return stored

    def rate(self, update: Update) -> float:
        """The learning rate with the best validation score of the first seed."""
        return min(self.rates(update), key=lambda rate: self._validation(update, rate))

    def _validation(self, update: Update, rate: float) -> float:
        member = self.store.get(update, 0, rate)
        if member is None or member.diverged_at is not None:
            return math.inf
        return member.validation if math.isfinite(member.validation) else math.inf

    def cell(self, update: Update) -> Cell | None:
        """The members of an update at its rate; None if it was not trained or diverged."""
        rate, rates = self.rate(update), self.rates(update)
        if math.isinf(self._validation(update, rate)):
            return None
        members = {
            seed: member
            for seed in range(self.max_seeds)
            if (member := self.store.get(update, seed, rate)) is not None
        }
        if any(member.diverged_at is not None for member in members.values()):
            members = {0: members[0]}  # the others are no fair sample; one seed decides nothing
        texts = {seed: member.test for seed, member in members.items()}
        is_edge = len(rates) > 1 and rate in (min(rates), max(rates))
        return Cell(update, texts, rate, is_edge)

    def table(self) -> Table:
        """All comparisons so far."""
        whole = self.cell(FULL)
        if whole is None:
            raise UserError(
                "nothing to compare with: the full update of everything was not trained, or its "
                "loss was not finite at any rate. Raise the budget, or take lower rates."
            )
        cells = [cell for update in self.updates if (cell := self.cell(update)) is not None]
        return judge.judged(self.before.test, whole, cells, self.margin)

    def check_learned(self) -> None:
        """Raises UserError unless training everything improves the validation score."""
        after = self._validation(FULL, self.rate(FULL))
        if not after < self.before.validation:
            rates = ", ".join(f"{rate:g}" for rate in self.rates(FULL))
            raise UserError(
                f"nothing to explain: after {self.trainer.settings.steps} steps of everything the "
                f"score is {after:.4g}, and the model as loaded has {self.before.validation:.4g} "
                f"(bits per byte; less is better). Try other rates than {rates}, more "
                "steps, or another text."
            )
