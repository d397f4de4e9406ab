"""Numbers of the forward pass that a run logs at every step, beside the loss.

A probe is a pattern over captured names and a function of the captured arrays.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice


def full_attention_entropy(weights: list[jax.Array]) -> jax.Array:
    """Mean Shannon entropy of an attention row over ln T: all layers, heads, rows and examples.

    Every row counts as one of T visible tokens. With a mask: observables.causal_attention_entropy.
    """
    rows = [
        jax.scipy.special.entr(w_BxHxTxT).sum(-1).mean() / jnp.log(w_BxHxTxT.shape[-1])
        for w_BxHxTxT in weights
    ]
    return jnp.stack(rows).mean()


PROBES = {"attention_entropy": (".*/attn/weights", full_attention_entropy)}


def attach(model, probes: Sequence[str]):
    """(params, tokens, positions) -> (logits, {probe: number}), or None without probes."""
    for name in probes:
        check_choice("probe", name, PROBES)
    if not probes:
        return None

    def probed(params, tokens, positions):
        variables, kept = {"params": params}, ["intermediates"]
        logits, state = model.apply(variables, tokens, positions, mutable=kept)
        if not state.get("intermediates"):
            raise UserError(f"{type(model).__name__} records nothing that a probe could see.")
        numbers = {}
        for name in probes:
            pattern, function = PROBES[name]
            numbers[name] = function([*paths.select(state["intermediates"], pattern).values()])
        return logits, numbers

    return probed
