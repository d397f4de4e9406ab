"""The score of prompts when several components are gone at once.

    removal = Removal(measured, "mean")
    removal.without([["block_0/attn/head_0", "block_1/mlp"], ["block_1/attn/head_2"]])

`groups` asks a `Removal` or a `Wiring` for such scores. A `Removal` is one run of the network for
each group, whatever its size, and reads every model whose blocks run one at a time; a `Wiring`
computes a mixture for each reader, since it can also cut single edges.

Shapes: B pairs, T tokens, H heads, L blocks, C groups, U = H + 1 switches of a block, the last of
which is its MLP.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import check_choice
from jaxformer.interp.blocks import block_output
from jaxformer.interp.circuits.measured import ABLATIONS
from jaxformer.interp.components import ATTENTION, HEADS, MAX_TOKENS, MLP, Measured, mean_of_prompts

MAX_CASES = 16  # groups that run at once


class Removal:
    """Components of a network that are replaced together.

    Args:
        measured: the network on clean and corrupted prompts.
        ablation: what takes the place of a component's output: its "mean" over all prompts at each
            position, its value in the corrupted prompt ("resample"), or "zero".

    Attributes:
        parts: the heads and MLPs, or the attention and MLPs where heads are not measured.
        whole_B: the scores of the clean prompts.
        nothing_B: the scores if everything is replaced, the embedding included, so that the network
            knows nothing about its prompt.
    """

    def __init__(self, measured: Measured, ablation: str = "mean"):
        check_choice("ablation", ablation, ABLATIONS)
        self.measured, self.ablation = measured, ablation
        self.switches: dict[str, tuple[int, np.ndarray]] = {}  # {part: (block, booleans (U,))}
        for block, names in enumerate(measured.names):
            for name, heads_H, is_mlp in zip(
                names, measured.heads_CxH, measured.mlp_C, strict=False
            ):
                if name:  # "" stands for the MLP of a block without MLP
                    self.switches[name] = block, np.append(heads_H, is_mlp)
        has_heads = any("/head_" in name for name in self.switches)
        self.parts = [name for name in self.switches if not (has_heads and name.endswith("/attn"))]
        self.replacements = [
            {name: self._replacement(clean[name], corrupted[name]) for name in clean}
            for clean, corrupted in zip(
                measured.clean.values, measured.corrupted.values, strict=True
            )
        ]
        self.whole_B = measured.scores(measured.clean)
        self.nothing_B = self._without_everything()

    def _without_everything(self) -> np.ndarray:
        clean, corrupted = self.measured.clean, self.measured.corrupted
        start = self._replacement(clean.states[0], corrupted.states[0])
        n_units = self.measured.heads_CxH.shape[1] + 1
        masks_1xLxU = np.ones((1, self.measured.n_blocks, n_units), bool)
        return self._scores(masks_1xLxU, 0, start)[0]

    def without(self, groups: Sequence[Sequence[str]]) -> np.ndarray:
        """Returns the scores (C, B) of the clean prompts without each group of parts."""
        n_units = self.measured.heads_CxH.shape[1] + 1
        masks_CxLxU = np.zeros((len(groups), self.measured.n_blocks, n_units), bool)
        for mask_LxU, parts in zip(masks_CxLxU, groups, strict=True):
            for part in parts:
                block, switches_U = self.switches[part]
                mask_LxU[block] |= switches_U
        # Blocks before the first change compute nothing new, so cases are run in the order of it.
        first_C = masks_CxLxU.max(2).argmax(1)  # 0 for a group without parts
        order_C = np.argsort(first_C, kind="stable")
        at_once = int(np.clip(MAX_TOKENS // self.measured.clean.tokens_BxT.size, 1, MAX_CASES))
        scores_CxB = np.zeros((len(groups), len(self.whole_B)), np.float32)
        for start in range(0, len(groups), at_once):
            # The last group is repeated, so that one size is compiled.
            chosen = order_C[np.minimum(np.arange(start, start + at_once), len(groups) - 1)]
            first = int(first_C[chosen].min())
            states = self.measured.clean.states[first]
            scores_CxB[chosen] = self._scores(masks_CxLxU[chosen], first, states)
        return scores_CxB

    def _scores(self, masks_CxLxU: np.ndarray, first: int, states_BxTxN: jax.Array) -> np.ndarray:
        """Returns the scores (C, B) if these states enter the block `first`."""
        blocks, clean = self.measured.blocks, self.measured.clean
        states_RxTxN = jnp.tile(states_BxTxN, (len(masks_CxLxU), 1, 1))
        for block in range(first, self.measured.n_blocks):
            states_RxTxN = _block_without(
                *blocks.of_block(block),
                *(clean.tokens_BxT, states_RxTxN, self.replacements[block]),
                masks_CxLxU[:, block],
            )
        return self.measured.scores_of_states(states_RxTxN)

    def _replacement(self, clean: jax.Array, corrupted: jax.Array) -> jax.Array:
        if self.ablation == "mean":
            return mean_of_prompts(clean, corrupted, self.measured.real_BxT)
        return corrupted if self.ablation == "resample" else jnp.zeros_like(clean)


@partial(jax.jit, static_argnames=("model",))
def _block_without(
    model: Any,
    params: Any,
    tokens_BxT: jax.Array,
    states_RxTxN: jax.Array,
    new: dict[str, jax.Array],
    mask_CxU: jax.Array,
) -> jax.Array:
    """Returns the states (C B, T, N) after a block, some of whose components have new outputs."""

    def edit(name: str, is_new: jax.Array) -> Any:
        """Replaces rows ordered by case, then by prompt; `is_new` is (C, 1, ..) to broadcast."""

        def replaced(value: jax.Array) -> jax.Array:
            by_case = value.reshape(len(mask_CxU), -1, *value.shape[1:])
            return jnp.where(is_new, new[name][None], by_case).reshape(value.shape)

        return replaced

    edits = {}
    if HEADS in new:
        edits[HEADS] = edit(HEADS, mask_CxU[:, None, None, :-1, None])
    else:
        edits[ATTENTION] = edit(ATTENTION, mask_CxU[:, None, None, :1])
    if MLP in new:
        edits[MLP] = edit(MLP, mask_CxU[:, None, None, -1:])
    return block_output(model, params, tokens_BxT, states_RxTxN, None, 0, edits)[0]
