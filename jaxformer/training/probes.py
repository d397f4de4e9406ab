"""Probes: numbers from the activations of the forward pass, which a run logs at every step.

A probe is a pattern over activation addresses and a function of the matching activations. It is
compiled into the training step, and its numbers are metrics of that step.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice


def full_attention_entropy(weights: list[jax.Array]) -> jax.Array:
    """Returns the mean Shannon entropy of an attention row, divided by ln T.

    ln T is the largest entropy of a row in which all T tokens are visible. For causal masks use
    `observables.causal_attention_entropy`.

    Args:
      weights: attention weights (B, H, T, T) of each layer.
    """
    entropies = [
        jax.scipy.special.entr(w_BxHxTxT).sum(-1).mean() / jnp.log(w_BxHxTxT.shape[-1])
        for w_BxHxTxT in weights
    ]
    return jnp.stack(entropies).mean()


# name -> (pattern of addresses, function of the activations)
PROBES = {"attention_entropy": (".*/attn/weights", full_attention_entropy)}


def attach(model: Any, probes: Sequence[str]) -> Any:
    """Returns a model's forward pass with probes, None if there are no probes.

    Args:
      model: a model with activation addresses.
      probes: names of PROBES.

    Returns:
      apply(params, tokens, positions) -> (logits, {probe: number}), or None.
    """
    for name in probes:
        check_choice("probe", name, PROBES)
    if not probes:
        return None

    def apply_with_probes(params, tokens, positions):
        logits, variables = model.apply(
            {"params": params}, tokens, positions, mutable=["intermediates"]
        )
        if not variables.get("intermediates"):
            raise UserError(f"{type(model).__name__} has no activations that a probe could read.")
        numbers = {}
        for name in probes:
            pattern, function = PROBES[name]
            activations = paths.select(variables["intermediates"], pattern)
            numbers[name] = function([*activations.values()])
        return logits, numbers

    return apply_with_probes
