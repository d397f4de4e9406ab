"""Decides which training comes next within a budget, so that seeds go to open verdicts.

1. The whole network is trained with one seed at every learning rate. Validation chooses a rate.
2. Every variant is trained with one seed at this rate, so that a first table is complete early.
3. A variant that loses more than the margin is tried at the other rates too, because its loss may
   come from the learning rate. If its best rate is the lowest or highest of them, one beyond it is
   tried, up to `controls.EXTRA_RATES` times. The whole network and each variant with an open
   verdict are trained with 3 seeds, then with 5 and with 8.
4. A variant that is still worse is trained for twice the steps, from the start and with a schedule
   of its own. If that helps, or if it has learned nothing, it is trained for four times the steps.
   `jaxformer.stats.controls` judges it by these runs.
5. Steps 3 and 4 are repeated for the variants that train one part alone.

Members that are in the store are not trained again: the same command resumes a stopped report, and
a larger budget continues it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax

from jaxformer.core.errors import UserError
from jaxformer.data.protocols import HeldOut
from jaxformer.stats import controls
from jaxformer.stats.differences import Number
from jaxformer.studies.anatomy import judge
from jaxformer.studies.anatomy.judge import Cell, Judged, Table
from jaxformer.studies.anatomy.parts import FIXED_MIXING, ONLY, WHOLE_NETWORK, Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.studies.anatomy.training import Trained, Trainer
from jaxformer.studies.budget import Spent
from jaxformer.tasks.language import PreparedText


class Member(NamedTuple):
    """One training: a variant at one seed and one learning rate."""

    variant: Any  # a `Variant`, or an `Update` of a fine-tuning
    seed: int
    rate: float
    times: int = 1  # the steps over those of the subject


class Result(NamedTuple):
    """A trained member, with its parameters if it is the whole network, else None."""

    member: Member
    trained: Any  # `Trained`, or `Tuned` of a fine-tuning
    params: Any


class Study:
    """The variants of a subject, and the members that were trained so far.

    Args:
      subject: task, network and settings.
      variants: the variants to compare with the whole network.
      store: the trained members.
      max_seeds: the largest number of seeds of a variant.
      margin: the share of the lead that a network that is "no worse" may lose.
    """

    def __init__(
        self,
        subject: Subject,
        variants: Sequence[Variant],
        store: Store,
        max_seeds: int = judge.SEEDS_AT_LOOK[-1],
        margin: float = judge.MARGIN,
    ):
        self.subject, self.variants, self.store = subject, list(variants), store
        self.max_seeds, self.margin = max_seeds, margin
        self.metric = subject.task.chosen_by
        self.baselines: dict[str, float] = {}
        self._trainers: dict[tuple[bool, int], Trainer] = {}  # {(is mixing fixed, times): trainer}

    # The plan ------------------------------------------------------------------------------------

    def stages(self) -> Iterator[list[Member]]:
        """Yields lists of members that are due. The first has the whole network at every rate.

        Call `keep` with the results of a list before you take the next list, which depends on their
        scores. Lists may be empty.
        """
        yield [m for rate in self.subject.rates for m in self._missing(WHOLE_NETWORK, [0], rate)]
        yield [
            member
            for variant in self.variants
            for member in self._missing(variant, [0], self.rate(WHOLE_NETWORK))
        ]
        alone = [variant for variant in self.variants if variant.method == ONLY]
        changed = [variant for variant in self.variants if variant.method != ONLY]
        for variants in (changed, alone):
            yield from self._stages(variants)

    def _stages(self, variants: Sequence[Variant]) -> Iterator[list[Member]]:
        """Yields the members of steps 3 and 4 of the module's docstring, for some variants."""
        losing = [variant for variant in variants if self._loses_at_first_seed(variant)]
        # The first stage has the rates of the grid, and each further one a rate beyond its end.
        for _ in range(1 + controls.EXTRA_RATES):
            yield [
                member
                for variant in losing
                for rate in self._rates_due(variant)
                for member in self._missing(variant, [0], rate)
            ]
        yield from self._looks(variants)
        for _ in controls.LONGER:
            yield [
                member
                for row in self._judged().rows
                if row.cell.variant in variants
                for member in self._longer_due(row)
            ]
            # A variant that needs more steps than the whole network is compared at those.
            yield from self._looks(variants)

    def _looks(self, variants: Sequence[Variant]) -> Iterator[list[Member]]:
        """Yields more seeds of the variants whose verdict is open, and of the whole network."""
        for n_seeds in judge.SEEDS_AT_LOOK:
            seeds = range(min(n_seeds, self.max_seeds))
            chosen = [variant for variant in self._open_variants() if variant in variants]
            yield [
                member
                for variant in ([WHOLE_NETWORK, *chosen] if chosen else [])
                for member in self._missing(
                    variant, seeds, self.rate(variant), self._times(variant)
                )
            ]

    def _rates_due(self, variant: Variant) -> list[float]:
        """The rates that are still to be tried, for a variant that loses: the grid, or one more."""
        tried = self._rates_tried(variant)
        if missing := [rate for rate in self.subject.rates if rate not in tried]:
            return missing
        is_dead = self._least_validation(variant, self.rate(variant)) <= self.trivial()[1]
        further = controls.rate_beyond(self.subject.rates, tried, self.rate(variant))
        return [] if is_dead or further is None else [further]

    def _longer_due(self, row: Judged) -> list[Member]:
        """The longer runs without which a variant that loses cannot be judged."""
        variant, rate, rates = row.cell.variant, row.cell.rate, row.cell.rates
        is_dead = controls.at_or_below(row.cell.score, self.trivial()[1])
        is_inside = min(rates) < rate < max(rates)
        if row.raw != judge.WORSE or len(rates) < controls.LEAST_RATES:
            return []
        if not (is_inside or is_dead):
            return []  # no number of steps would make it count
        n_seeds = max(judge.SEEDS_AT_LOOK[0], min(row.cell.score.n, controls.LEAST_SEEDS))
        # A run counts once all of its seeds are there; a smaller budget may have stopped before.
        double, fourfold = controls.LONGER
        if missing := self._missing(variant, range(min(n_seeds, self.max_seeds)), rate, double):
            return missing
        scores = self._scores(variant)
        if can_be_dead := is_dead and self._is_solved():
            n_seeds = controls.LEAST_SEEDS  # of a network that is said to learn nothing
        if fourfold not in scores and controls.next_times(scores, can_be_dead) is None:
            return []
        return self._missing(variant, range(min(n_seeds, self.max_seeds)), rate, fourfold)

    def minimum(self) -> int:
        """Returns the number of trainings until every variant has its first verdict."""
        n_rates = len(self.subject.rates)
        n_seeds = min(judge.SEEDS_AT_LOOK[0], self.max_seeds)
        n_whole = n_rates + n_seeds - 1  # one seed at each rate, the other seeds at one rate
        return n_whole + n_seeds * len(self.variants)

    def _missing(
        self, variant: Variant, seeds: Sequence[int], rate: float, times: int = 1
    ) -> list[Member]:
        missing = [seed for seed in seeds if self.store.get(variant, seed, rate, times) is None]
        return [Member(variant, seed, rate, times) for seed in missing]

    def _open_variants(self) -> list[Variant]:
        decided = {row.cell.variant for row in self._judged().rows if row.raw != judge.OPEN}
        return [variant for variant in self.variants if variant not in decided]

    def _loses_at_first_seed(self, variant: Variant) -> bool:
        rate = self.rate(WHOLE_NETWORK)
        score, whole_score = (self._score(v, 0, rate) for v in (variant, WHOLE_NETWORK))
        lead = whole_score - self.trivial()[1]
        return not score >= whole_score - self.margin * lead  # also for a score that is nan

    # Results -------------------------------------------------------------------------------------

    @property
    def has_first_table(self) -> bool:
        """Whether every variant was trained with one seed."""
        rate = self.rate(WHOLE_NETWORK)
        return all(self.store.get(variant, 0, rate) for variant in self.variants)

    def train(self, member: Member) -> Result:
        """Trains a member."""
        variant, seed, rate, times = member
        trained, params = self._trainer(variant, times).train(variant, seed, rate)
        is_whole = member.variant == WHOLE_NETWORK
        return Result(member, trained, jax.device_get(params) if is_whole else None)

    def keep(self, result: Result) -> None:
        """Stores a trained member, unless a job of a cluster has stored it."""
        variant, seed, rate, times = result.member
        if self.store.get(variant, seed, rate, times) is None:
            self.store.put(variant, seed, rate, result.trained, times)
        # Of the rates that were tried, the parameters of the one that validation prefers are kept.
        if result.params is not None and result.member.rate == self.rate(WHOLE_NETWORK):
            self.store.put_params(result.member.rate, result.params, result.member.seed)

    def whole_params(self) -> Any:
        """Returns the parameters of the whole network's first seed at its learning rate.

        The network is trained again if the file of its parameters is missing or damaged.
        """
        rate = self.rate(WHOLE_NETWORK)
        params = self.store.get_params(rate)
        if params is None:
            _, params = self._trainer(WHOLE_NETWORK).train(WHOLE_NETWORK, 0, rate)
            self.store.put_params(rate, params)
        return params

    def other_params(self, most: int) -> list[Any]:
        """Returns the parameters of the whole network's other seeds, as far as they are stored.

        A network that diverged is left out, because its parts do nothing.
        """
        rate = self.rate(WHOLE_NETWORK)
        found = []
        for seed in range(1, self.max_seeds):
            member = self.store.get(WHOLE_NETWORK, seed, rate)
            params = self.store.get_params(rate, seed)
            if member is not None and member.diverged_at is None and params is not None:
                found.append(params)
        return found[:most]

    def snapshots(self, points: int) -> Iterator[tuple[int, float, Any]]:
        """Trains the whole network's first seed again; yields (step, loss, parameters)."""
        rate = self.rate(WHOLE_NETWORK)
        return self._trainer(WHOLE_NETWORK).snapshots(WHOLE_NETWORK, 0, rate, points)

    def _trainer(self, variant: Variant, times: int = 1) -> Trainer:
        key = variant.method == FIXED_MIXING, times
        if key not in self._trainers:
            network = (
                self.subject.mixing if variant.method == FIXED_MIXING else self.subject.network
            )
            assert network is not None
            # The steps themselves keep their network, whose compiled initial values are shared.
            network = network if times == 1 else network.longer(times)
            self._trainers[key] = Trainer(network, self.heldout)
        return self._trainers[key]

    @cached_property
    def heldout(self) -> HeldOut:
        """The held-out sets, which all variants share."""
        return self.subject.drawn.sets

    def trivial(self) -> tuple[str, float]:
        """Returns name and score of the best trivial predictor on the test set."""
        task = self.subject.task
        if not self.baselines:
            self.baselines = dict(self.subject.drawn.baselines)
        return judge.best_trivial(self.baselines, self.metric, isinstance(task, PreparedText))

    def rate(self, variant: Variant) -> float:
        """Returns the learning rate with the best validation score of the first seed.

        Diverged members have the worst score.
        """
        tried = self._rates_tried(variant)
        if not tried:
            return self.subject.rates[0] if variant == WHOLE_NETWORK else self.rate(WHOLE_NETWORK)
        return max(tried, key=lambda rate: self._validation(variant, rate))

    def _rates_tried(self, variant: Variant) -> list[float]:
        """The rates at which the first seed was trained: of the grid, and beyond its ends."""
        tried = [rate for rate in self.subject.rates if self.store.get(variant, 0, rate)]
        for end in (min, max):
            # A rate beyond was trained only after all before it.
            for _ in range(controls.EXTRA_RATES if tried else 0):
                further = controls.rate_beyond(self.subject.rates, tried, end(tried))
                if further is not None and self.store.get(variant, 0, further):
                    tried.append(further)
        return tried

    def _validation(self, variant: Variant, rate: float) -> float:
        """Returns the validation score of the first seed; higher is better."""
        member = self.store.get(variant, 0, rate)
        if member is None or member.diverged_at is not None:
            return -math.inf
        value = member.validation[self.metric].mean
        value = -value if self.metric == "loss" else value
        return value if math.isfinite(value) else -math.inf

    def _least_validation(self, variant: Variant, rate: float) -> float:
        """The validation score of the first seed less two standard errors of its examples."""
        member = self.store.get(variant, 0, rate)
        error = 0.0 if member is None else member.validation[self.metric].sem
        return self._validation(variant, rate) - 2 * (error if math.isfinite(error) else 0.0)

    def _score(self, variant: Variant, seed: int, rate: float) -> float:
        """Returns the test score of a member, nan if it was not trained; higher is better."""
        member = self.store.get(variant, seed, rate)
        if member is None:
            return math.nan
        value = member.test[self.metric].mean
        return -value if self.metric == "loss" else value

    def cell(self, variant: Variant) -> Cell | None:
        """Returns the score of a variant at its learning rate; None if it was not trained."""
        if not self._members(variant):
            return None
        rate, times = self.rate(variant), self._times(variant)
        members = self._members(variant, times)
        number = self._number(members)
        assert number is not None
        tried = self._rates_tried(variant) or [rate]
        elsewhere = [self._least_validation(variant, other) for other in tried if other != rate]
        return Cell(
            variant,
            number,
            rate,
            rates=tuple(tried),
            steps=times * self.subject.network.steps,
            longer=self._number(self._members(variant, 2 * times)),
            best_elsewhere=max(elsewhere, default=-math.inf),
            is_rising=any(
                controls.rises([loss for _, loss in member.curve]) for member in members.values()
            ),
            missing=f"{times} x the steps still help" if times == controls.LONGER[-1] else "",
        )

    def _members(self, variant: Variant, times: int = 1) -> dict[int, Trained]:
        """{seed: member} at the learning rate of a variant."""
        rate, members = self.rate(variant), {}
        for seed in range(self.max_seeds):
            if (member := self.store.get(variant, seed, rate, times)) is not None:
                members[seed] = member
        return members

    def _number(self, members: Mapping[int, Trained]) -> Number | None:
        """The score over seeds, None without any."""
        if not members:
            return None
        scores = {seed: member.test for seed, member in members.items()}
        diverged = [seed for seed, member in members.items() if member.diverged_at is not None]
        return judge.score_number(scores, self.metric, diverged)

    def _scores(self, variant: Variant) -> dict[int, Number]:
        """{times the steps of the subject: score} of a variant at its learning rate."""
        scores = {}
        for times in (1, *controls.LONGER):
            if (number := self._number(self._members(variant, times))) is not None:
                scores[times] = number
        return scores

    def _times(self, variant: Variant) -> int:
        """The steps at which a variant is compared, over those of the subject."""
        return controls.compared_times(self._scores(variant))

    def _is_solved(self) -> bool:
        """Whether every seed of the whole network solves the task."""
        whole = self.cell(WHOLE_NETWORK)
        return whole is not None and judge.solved_at(whole) is not None

    def table(self) -> Table:
        """Returns all comparisons so far."""
        table = self._judged()
        return table._replace(rows=tuple(map(self._with_budget, table.rows)))

    def _with_budget(self, row: Judged) -> Judged:
        """The row, which says so if the variant lost and its next tries were not paid for."""
        variant = row.cell.variant
        is_losing = self._loses_at_first_seed(variant)
        is_due = bool((is_losing and self._rates_due(variant)) or self._longer_due(row))
        if row.outcome != judge.NOT_TRAINED or not is_due:
            return row
        return row._replace(control=controls.State(judge.NOT_TRAINED, controls.WITHIN_BUDGET))

    def _judged(self) -> Table:
        whole = self.cell(WHOLE_NETWORK)
        if whole is None:
            raise UserError("nothing was trained: the budget is too small for one training.")
        cells = [cell for variant in self.variants if (cell := self.cell(variant)) is not None]
        name, trivial = self.trivial()
        return judge.judge(whole, cells, trivial, name, self.margin)

    def check_learned(self) -> None:
        """Raises UserError unless the whole network is above the trivial predictor.

        It is called once the whole network was tried at every rate.
        """
        rate = self.rate(WHOLE_NETWORK)
        member = self.store.get(WHOLE_NETWORK, 0, rate)
        if member is None:
            return
        name, trivial = self.trivial()
        score, error = self._score(WHOLE_NETWORK, 0, rate), member.test[self.metric].sem
        if member.diverged_at is not None:
            rates = ", ".join(f"{rate:g}" for rate in self.subject.rates)
            raise UserError(
                f"nothing to explain: the loss was not finite at step {member.diverged_at} at "
                f"every learning rate, {rates}. Try lower ones."
            )
        if not score - 2 * (error if math.isfinite(error) else 0.0) > trivial:
            raise UserError(
                f"nothing to explain: after {self.subject.network.steps} steps the whole network "
                f"has {self.metric} {abs(score):.3g}, and {name.replace('_', ' ')} has "
                f"{abs(trivial):.3g}. Try more steps, other learning rates or "
                "a larger network (width, layers)."
            )


class Plan(Protocol):
    """A study, as `run` needs it; that of a fine-tuning (`studies.finetuning`) is another one."""

    def stages(self) -> Iterator[list[Member]]: ...

    def train(self, member: Member, /) -> Result: ...

    def keep(self, result: Result, /) -> None: ...

    def check_learned(self) -> None: ...


def run(
    study: Plan,
    budget: float,
    report: Callable[[Member, Any], None] = lambda member, trained: None,
    is_stopped: Callable[[], bool] = lambda: False,
    train_all: Callable[[Sequence[Member]], Iterator[Result]] | None = None,
    processes: int = 1,
) -> bool:
    """Trains members until all verdicts are decided or the budget is used up.

    Args:
      budget: seconds, as `Spent` counts them. The first member, which includes compilation, is
        trained in any case.
      report: called after each member.
      is_stopped: returns whether to stop before the next member.
      train_all: trains members in any order; by default one after the other.
      processes: the number of members that `train_all` trains at once.

    Returns:
      Whether the plan was completed.
    """
    spent = Spent(is_here=train_all is None)
    training_seconds: list[float] = []
    train_all = train_all or (lambda members: map(study.train, members))
    for stage_number, stage in enumerate(study.stages()):
        results, waiting = iter(train_all(stage)), set(stage)
        for n_results, _ in enumerate(stage):
            # The first training is left out of the estimate, because it includes compilation.
            expected = min(training_seconds[1:], default=0.0) / processes
            is_spent = spent.seconds() + expected > budget
            if is_stopped() or (training_seconds and is_spent):
                return False
            if (result := next(results, None)) is None:
                if not is_stopped():
                    raise UserError(
                        f"the executor trained {n_results} of {len(stage)} members and ended "
                        "without an error: it must yield a result for each member."
                    )
                return False  # a signal stopped the jobs of a cluster
            if not isinstance(result, Result) or result.member not in waiting:
                raise UserError(
                    "the executor must yield one result of `Study.train` for each member, got "
                    f"{getattr(result, 'member', result)!r:.100}. What was trained before is kept."
                )
            waiting.remove(result.member)
            study.keep(result)
            training_seconds.append(result.trained.seconds)
            report(result.member, result.trained)
        if stage_number == 0:  # the whole network at every rate
            study.check_learned()
    return True
