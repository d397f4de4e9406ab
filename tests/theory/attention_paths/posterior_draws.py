"""Posteriors of the examples, and how two of them are compared."""

import jax
import numpy as np

from theory import attention_paths
from theory.attention_paths.diagnostics import monte_carlo_error

# Ten times the paper's temperature: trajectories over weights are three times shorter. The long
# checks below are at the paper's own.
T, N = 0.1, 5


def draw(example, draws, chains, method, warmup=300, width=N, temperature=T, **kwargs):
    with jax.enable_x64(True):
        args = (
            example.attentioned,
            example.labels,
            width,
            temperature,
            (2, 2),
            draws,
            warmup,
            chains,
        )
        return attention_paths.sample(jax.random.key(0), *args, method=method, **kwargs)


def agree(ours, theirs, errors=4.0):
    """Means of two runs, each (chains, draws, ..), within standard errors of their difference."""
    gap = ours.mean((0, 1)) - theirs.mean((0, 1))
    error = np.hypot(monte_carlo_error(ours), monte_carlo_error(theirs))
    assert (np.abs(gap) < errors * error).all(), gap / error


def compare(ours, theirs, example):
    def by_chain(values, count):
        return values.reshape(count, -1, *values.shape[1:])

    upper = (slice(None), *np.triu_indices(4))
    pick = example.attentioned_test[:5]
    for read in (
        lambda p: p.U[upper],
        lambda p: p.energies(),
        lambda p: np.einsum("sdn,bdn->sb", p.linear, pick),
    ):
        agree(*(by_chain(read(p), len(p.diagnostics["step_size"])) for p in (ours, theirs)))
    gap = ours.variance(pick) / theirs.variance(pick)
    assert (np.abs(gap - 1) < 0.35).all()
