"""Draws from the exact prior of the Bartlett coordinates, as bartlett.py states it."""

import jax
import jax.numpy as jnp

from theory.attention_paths import bartlett


def draw_prior(key, layout: bartlett.Layout, widths) -> jax.Array:
    """Draws theta: A_ii^2 ~ chi^2_{N_l - i + 1} / N_l, and N(0, 1/N_l) below the diagonal."""
    parts = []
    for width, (rows, rank) in zip(widths[::-1], layout.shapes):
        key, chi_key, normal_key = jax.random.split(key, 3)
        chi2 = jax.random.chisquare(chi_key, width - jnp.arange(rank, dtype=float))
        below = rows * rank - rank * (rank + 1) // 2
        parts += [
            0.5 * jnp.log(chi2 / width),
            jax.random.normal(normal_key, (below,)) / width**0.5,
        ]
    return jnp.concatenate(parts)
