"""Posterior draws of the reference problems, and the comparison of two samplers."""

import jax
import numpy as np

from theory import attention_paths
from theory.attention_paths.diagnostics import monte_carlo_error

# Ten times the paper's temperature makes trajectories over weights three times shorter. The slow
# tests use the paper's temperature.
T, N = 0.1, 5


def draw_posterior(example, draws, chains, method, warmup=300, width=N, temperature=T, **kwargs):
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


def check_means_agree(ours, theirs, errors=4.0):
    """Checks that the means of two runs, (chains, draws, ..), agree within standard errors."""
    gap = ours.mean((0, 1)) - theirs.mean((0, 1))
    error = np.hypot(monte_carlo_error(ours), monte_carlo_error(theirs))
    assert (np.abs(gap) < errors * error).all(), gap / error


def check_posteriors_agree(ours, theirs, example):
    """Compares U, the energy, the predictor and its variance."""

    def by_chain(values, count):
        return values.reshape(count, -1, *values.shape[1:])

    upper = (slice(None), *np.triu_indices(4))
    tests = example.attentioned_test[:5]
    for read in (
        lambda p: p.U[upper],
        lambda p: p.energies(),
        lambda p: np.einsum("sdn,bdn->sb", p.linear, tests),
    ):
        values = (by_chain(read(p), p.diagnostics["chains"]) for p in (ours, theirs))
        check_means_agree(*values)
    gap = ours.variance(tests) / theirs.variance(tests)
    assert (np.abs(gap - 1) < 0.35).all()
