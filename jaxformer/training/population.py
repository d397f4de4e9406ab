"""Seeds and learning rates as members of one compiled program.

Members are ordered by learning rate, then by seed. Equal seeds have equal keys at every rate and in
every variant of a config, so that variants are compared on the same random draws.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range, setting
from jaxformer.core.settings import MAX_SEED
from jaxformer.training.metrics import Mean, over_seeds

MAX_SEEDS = 100_000  # checked before a list of them is made


class Population(NamedTuple):
    """The members of a run: every seed at every learning rate."""

    seeds: tuple[int, ...]
    rates: tuple[float, ...]

    @property
    def members(self) -> list[tuple[int, float]]:
        """(seed, learning rate) of each member."""
        return [(seed, rate) for rate in self.rates for seed in self.seeds]

    def init_keys(self) -> jax.Array:
        """Returns (members,) keys of the initial parameters and the fixed mixing."""
        return init_keys(self.member_seeds())

    def data_keys(self) -> jax.Array:
        """Returns (members,) keys of the training data."""
        return data_keys(self.member_seeds())

    def member_seeds(self) -> np.ndarray:
        """Returns (members,) seeds."""
        return np.array([seed for seed, _ in self.members], np.uint32)

    def learning_rates(self) -> jax.Array:
        """Returns (members,) learning rates."""
        return jnp.asarray([rate for _, rate in self.members])

    def by_rate(self, values: Sequence) -> list[list]:
        """Splits values of members into one list for each rate, with an entry for each seed."""
        n = len(self.seeds)
        return [list(values[i * n : (i + 1) * n]) for i in range(len(self.rates))]

    def choose(self, scores: Sequence[float]) -> list[bool]:
        """Returns which members have the rate with the best mean score; ties go to lower rates."""
        # Members that have diverged count -1.8e308 each, so a sum of theirs may overflow to -inf.
        with np.errstate(over="ignore"):
            means = [np.mean(np.nan_to_num(group, nan=-np.inf)) for group in self.by_rate(scores)]
        order = sorted(range(len(means)), key=lambda i: (-means[i], self.rates[i]))
        return [rate == self.rates[order[0]] for _, rate in self.members]

    def reached(self, scores: Sequence[float], target: float) -> bool:
        """Returns whether all seeds of some learning rate reach the target."""
        return any(min(group) >= target for group in self.by_rate(scores))


def init_keys(seeds_M: jax.Array | np.ndarray) -> jax.Array:
    """Returns the key of the initial parameters and the fixed mixing of each seed."""
    return _keys_of(seeds_M, 0)


def data_keys(seeds_M: jax.Array | np.ndarray) -> jax.Array:
    """Returns the key of the training data of each seed."""
    return _keys_of(seeds_M, 1)


@jax.jit
def _keys_of(seeds_M: jax.Array | np.ndarray, stream: int) -> jax.Array:
    """Returns the key fold_in(key(seed), stream) of each seed."""
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), stream))(seeds_M)


def population(first_seed: int, n_seeds: int, rates: Sequence[float]) -> Population:
    """Returns the population of consecutive seeds at these learning rates.

    Args:
        n_seeds: the number of seeds.
        rates: the learning rates; every seed is trained at each of them.
    """
    check_seeds(n_seeds)
    check_range("seed", first_seed, 0, MAX_SEED - n_seeds)
    return population_of_seeds(range(first_seed, first_seed + n_seeds), rates)


def population_of_seeds(seeds: Sequence[int], rates: Sequence[float]) -> Population:
    """Returns the population of a list of seeds at these learning rates."""
    check_seeds(len(seeds))
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise UserError(f"seeds must be whole numbers, got {seed!r}.")
        check_range("seed", seed, 0, MAX_SEED - 1)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"seeds has a seed twice: {seeds}; members with the same seed are equal.")
    return Population(tuple(seeds), checked_rates(setting("optim.learning_rate"), rates))


def checked_rates(name: str, rates: Sequence[float]) -> tuple[float, ...]:
    """The learning rates as floats; raises UserError unless they are positive and different.

    Args:
        name: how the caller's user calls them.
    """
    is_list = isinstance(rates, Sequence | np.ndarray) and len(rates) > 0
    if not is_list or not all(isinstance(rate, Real) and 0 < rate < np.inf for rate in rates):
        got = rates if is_list else f"{rates!r} and no list of them"
        raise UserError(f"{name} must be positive numbers, got {got}.")
    rates = tuple(float(rate) for rate in rates)
    # Training multiplies updates by them in float32, in which a smaller one is 0.
    low, high = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    if wrong := [rate for rate in rates if not low <= rate <= high]:
        raise UserError(f"{name} must be from {low:.2g} to {high:.2g}, got {wrong[0]:g}.")
    if len(set(rates)) < len(rates):
        raise UserError(f"{name} has a rate twice: {rates}; for more members take more seeds.")
    return rates


def check_seeds(n_seeds: int) -> None:
    """Raises unless the number of seeds is between 1 and MAX_SEEDS."""
    check_range(setting("n_seeds"), n_seeds, 1, MAX_SEEDS)


def over_chosen(metrics: Sequence[Mapping[str, Mean]], chosen: Sequence[bool]) -> dict[str, Mean]:
    """Returns mean and standard error of each metric over the chosen members."""
    members = [m for m, is_chosen in zip(metrics, chosen, strict=True) if is_chosen]
    return {name: over_seeds([m[name].mean for m in members]) for name in members[0]}
