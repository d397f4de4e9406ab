"""The score of prompts when one component is replaced: attention, MLP or a head of each block.

    measured = Measured(model, params, clean, corrupted, answers)
    measured.mean_ablation()     clean prompts with the component's mean over all prompts
    measured.zero_ablation()     clean prompts with zeros in place of the component
    measured.resampling()        clean prompts with the component's value in the corrupted prompt
    measured.patching()          corrupted prompts with the component's value in the clean prompt
    measured.path_patching()     as patching, but later components keep their corrupted values
    measured.low_rank(0.01)      clean prompts with the component's weights cut to a low rank

A pair is a clean and a corrupted prompt. The scores are (L, C, B) by block, component and pair. The
components of a block are its attention, its MLP and its heads, in the order of `measured.names`.
All components of a block run as one batch from this block on. All blocks share one compiled program
(`jaxformer.interp.blocks`).

Shapes: B pairs, T tokens, N width, H heads, D head width, L blocks, C components of a block,
K scored positions, F fractions of the rank, R = C B rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp.answers import Answers, score
from jaxformer.interp.blocks import Blocks, Pass, block_output, first_difference
from jaxformer.interp.low_rank import cut_params
from jaxformer.interp.one_block import read
from jaxformer.models.half_precision import wide
from jaxformer.models.model import Model, take_positions

HEADS, ATTENTION, MLP = "attn/heads", "attn/output", "mlp/output"
ALL_POSITIONS = np.ones((1, 1), bool)
MAX_TOKENS = 8192  # in all cases that run together
MAX_LOGITS = 2**24  # numbers that are in memory at once
Values = dict[str, jax.Array]  # {address within a block: activation}


class Measured:
    """Clean and corrupted prompts in a network, ready for replacements of components.

    Args:
        model: a decoder, an encoder, a recall model or a published model.
        params: its parameters.
        clean: the tokens of the clean prompts, (B, T), padded on the right.
        corrupted: the tokens of the corrupted prompts, (B, T).
        answers: the scored positions and answers of the clean prompts.
        lengths: the number of tokens before the padding, (B,); by default T.
        heads: whether each head is a component.
        progress: a function without arguments, called after each block of each method.
    """

    def __init__(
        self,
        model: Model,
        params: Any,
        clean: np.ndarray,
        corrupted: np.ndarray,
        answers: Answers,
        *,
        lengths: np.ndarray | None = None,
        heads: bool = True,
        progress: Callable[[], None] | None = None,
    ):
        self.blocks = Blocks(model, params)
        self.answers = Answers(*(jnp.asarray(x) for x in answers))
        lengths = np.full(len(clean), clean.shape[1]) if lengths is None else lengths
        self.real_BxT = jnp.arange(clean.shape[1])[None] < jnp.asarray(lengths)[:, None]
        if not self.blocks.has_memory and not bool(self.real_BxT.all()):
            raise UserError(
                "the prompts have different lengths, which only causal models of jaxformer's "
                "decoder or of a published family can read together; give prompts of one length."
            )
        kept = HEADS, ATTENTION, MLP
        self.clean = self.blocks.forward(jnp.asarray(clean), kept)
        self.corrupted = self.blocks.forward(jnp.asarray(corrupted), kept)
        # In a causal model, states before the first different token are equal: before
        # `first_difference` within each pair, before `first_difference_of_all` in all prompts.
        self.first_difference, self.first_difference_of_all = 0, 0
        if self.blocks.has_memory:
            self.first_difference = first_difference(clean, corrupted)
            all_tokens = np.concatenate([clean, corrupted])
            self.first_difference_of_all = first_difference(all_tokens, np.roll(all_tokens, 1, 0))
        has_heads = HEADS in self.clean.values[0]
        n_heads = model.spec.heads if has_heads else 1  # one switch for the whole attention
        single_heads = list(np.eye(n_heads, dtype=bool)) if has_heads and heads else []
        all_heads, no_heads = np.ones(n_heads, bool), np.zeros(n_heads, bool)
        # Which heads each component replaces, and whether it replaces the MLP. Component 0 is the
        # attention, component 1 the MLP.
        self.heads_CxH = np.array([all_heads, no_heads, *single_heads])
        self.mlp_C = np.arange(len(self.heads_CxH)) == 1
        self.names = [
            component_names(block, len(single_heads), MLP in values)
            for block, values in enumerate(self.clean.values)
        ]
        self.progress = progress or (lambda: None)

    @property
    def n_blocks(self) -> int:
        return self.blocks.n_blocks

    def scores(self, run: Pass) -> np.ndarray:
        """Returns the scores (B,) of a pass without replacements."""
        return self.scores_of_states(run.states[-1])[0]

    def scores_of_states(self, last_RxTxN: jax.Array) -> np.ndarray:
        """Returns the scores (C, B) if these states of whole prompts leave the last block."""
        return np.asarray(self._read(last_RxTxN, self.clean, 0))

    def mean_ablation(self) -> np.ndarray:
        """Returns scores of clean prompts with the mean of a component over all prompts.

        The mean is taken at each position, over clean and corrupted prompts that are long enough.
        """

        def means(clean: Values, corrupted: Values) -> Values:
            return {
                name: mean_of_prompts(clean[name], corrupted[name], self.real_BxT) for name in clean
            }

        return self._scores_with(self.clean, means, self.first_difference_of_all)

    def zero_ablation(self) -> np.ndarray:
        """Returns scores of clean prompts with zeros in place of a component.

        Attention loses all its heads, so a bias of its output kernel (GPT-2) stays.
        """

        def zeros(clean: Values, corrupted: Values) -> Values:
            return {name: jnp.zeros_like(value) for name, value in clean.items()}

        return self._scores_with(self.clean, zeros, 0)

    def resampling(self) -> np.ndarray:
        """Returns scores of clean prompts with a component's value in the corrupted prompt."""
        return self._scores_with(
            self.clean, lambda clean, corrupted: corrupted, self.first_difference
        )

    def patching(self) -> np.ndarray:
        """Returns scores of corrupted prompts with a component's value in the clean prompt."""
        return self._scores_with(
            self.corrupted, lambda clean, corrupted: clean, self.first_difference
        )

    def path_patching(self) -> np.ndarray:
        """Returns the scores of `patching` if later components keep their corrupted values."""
        # All other components are constant, so that positions do not affect each other. Only the
        # scored positions are computed.
        position_BxK = self.answers.position_BxK

        def scored(values: Values) -> Values:
            return {name: take_positions(x, position_BxK) for name, x in values.items()}

        tokens_BxK = take_positions(self.corrupted.tokens_BxT, position_BxK)
        scores = []
        for block in range(self.n_blocks):
            old, new = (scored(run.values[block]) for run in (self.corrupted, self.clean))
            before = take_positions(self.corrupted.states[block], position_BxK)
            block_model = self.blocks.of_block(block)
            components = self.heads_CxH, self.mlp_C, ALL_POSITIONS
            states = replace_parts(*block_model, tokens_BxK, before, old, new, *components, True)
            for later in range(block + 1, self.n_blocks):
                fixed = scored(self.corrupted.values[later])
                fixed.pop(HEADS, None)
                states = _add_branches(*self.blocks.of_block(later), tokens_BxK, states, fixed)
            scores.append(np.asarray(_scores(*self._last_block, states, self.answers)))
            self.progress()
        return np.stack(scores)

    def low_rank(self, *fractions: float) -> np.ndarray:
        """Returns scores (F, L, C, B) of clean prompts with weights of a lower rank.

        The components are attention and MLP. Each loses rank in all its matrices at once.

        Args:
            fractions: of the smaller dimension of each matrix.
        """
        kinds = "attn", "mlp"
        suffix, scores = self.clean.suffix(0), []
        for block in range(self.n_blocks):
            before = self.clean.states[block]
            cuts = cut_params(self.blocks.params[block], kinds, fractions)
            states = jnp.concatenate([self.blocks.run(block, before, suffix, cut) for cut in cuts])
            scores.append(self._scores_after(block, states, self.clean, 0))
            self.progress()
        n_pairs = len(self.clean.tokens_BxT)
        scores_LxFxCxB = np.stack(scores).reshape(-1, len(fractions), len(kinds), n_pairs)
        return scores_LxFxCxB.transpose(1, 0, 2, 3)

    def _scores_with(
        self, base: Pass, new_values: Callable[[Values, Values], Values], start: int
    ) -> np.ndarray:
        """Returns the scores (L, C, B) of a pass in which each component has a new value.

        Args:
            base: the pass.
            new_values: returns the new values of a block from its values in clean and corrupted
                prompts.
            start: the first position to compute; earlier states do not change.
        """
        scores, tokens_BxT = [], base.tokens_BxT[:, start:]
        for block in range(self.n_blocks):
            new = new_values(self.clean.values[block], self.corrupted.values[block])
            old = {name: value[:, start:] for name, value in base.values[block].items()}
            new = {name: value[:, start:] for name, value in new.items()}
            before, block_model = base.states[block][:, start:], self.blocks.of_block(block)
            parts = []
            for chosen in case_chunks(len(self.mlp_C), tokens_BxT.size):
                components = self.heads_CxH[chosen], self.mlp_C[chosen], ALL_POSITIONS
                states = replace_parts(
                    *block_model, tokens_BxT, before, old, new, *components, False
                )
                parts.append(self._scores_after(block, states, base, start))
            scores.append(np.concatenate(parts)[: len(self.mlp_C)])
            self.progress()
        return np.stack(scores)

    def _scores_after(
        self, block: int, states_RxTxN: jax.Array, base: Pass, start: int
    ) -> np.ndarray:
        """Returns the scores (C, B) if these states, from token `start` on, leave a block."""
        last = self.blocks.run_from(block + 1, states_RxTxN, base.suffix(start))
        return np.asarray(self._read(last, base, start))

    def _read(self, last_RxTxN: jax.Array, base: Pass, start: int) -> jax.Array:
        position_BxK = self.answers.position_BxK
        states_RxKxN = _take_scored(base.states[-1], last_RxTxN, position_BxK, start)
        return _scores(*self._last_block, states_RxKxN, self.answers)

    @property
    def _last_block(self) -> tuple[Any, Any]:
        return self.blocks.of_block(self.n_blocks - 1)


def component_names(block: int, n_heads: int, has_mlp: bool = True) -> list[str]:
    """Returns the names of the components of a block: block_3/attn, /mlp, /attn/head_0, ..

    The name of an MLP that the block lacks is "".
    """
    mlp = f"block_{block}/mlp" if has_mlp else ""
    heads = (f"block_{block}/attn/head_{h}" for h in range(n_heads))
    return [f"block_{block}/attn", mlp, *heads]


def mean_of_prompts(clean: jax.Array, corrupted: jax.Array, real_BxT: jax.Array) -> jax.Array:
    """Returns the mean over all prompts that have a token at each position, as (B, T, ..)."""
    weight = jnp.expand_dims(real_BxT.astype(jnp.float32), range(2, clean.ndim))
    # The sum over many prompts can be beyond float16, although their mean is not.
    total = ((wide(clean) + wide(corrupted)) * weight).sum(0, keepdims=True)
    n_prompts = 2 * jnp.maximum(weight.sum(0, keepdims=True), 1)
    return jnp.broadcast_to((total / n_prompts).astype(clean.dtype), clean.shape)


def case_chunks(n_cases: int, n_tokens: int, most: int = MAX_TOKENS) -> list[np.ndarray]:
    """Returns the indices of cases that run together; the last chunk may repeat the last case."""
    n_chunks = -(-n_cases // max(most // n_tokens, 1))
    size = -(-n_cases // n_chunks)
    index = np.minimum(np.arange(n_chunks * size), n_cases - 1)
    return list(index.reshape(n_chunks, size))


@partial(jax.jit, static_argnames=("model", "is_mlp_fixed"))
def replace_parts(
    model, params, tokens_BxT, states_BxTxN, old, new, heads_CxH, mlp_C, at_CxT, is_mlp_fixed
) -> jax.Array:
    """Returns the states (C B, T, N) after a block in which each case has a new component.

    Args:
        old, new: {address: activation}; unchosen heads keep the old value.
        heads_CxH, mlp_C: whether each case replaces each head, and the MLP.
        at_CxT: whether it does so at each position; ALL_POSITIONS at all.
        is_mlp_fixed: whether the MLP keeps its old value instead of reading the new heads.
    """

    def one_case(heads_H: jax.Array, is_mlp: jax.Array, at_T: jax.Array) -> jax.Array:
        at_1xTx1 = at_T[None, :, None]
        if HEADS in new:
            chosen, address = heads_H[None, None, :, None] & at_1xTx1[..., None], HEADS
        else:
            chosen, address = heads_H[0] & at_1xTx1, ATTENTION
        edits: dict[str, Any] = {address: jnp.where(chosen, new[address], old[address])}
        if MLP in new:

            def replaced(value: jax.Array) -> jax.Array:
                return jnp.where(is_mlp & at_1xTx1, new[MLP], old[MLP] if is_mlp_fixed else value)

            edits[MLP] = replaced
        return block_output(model, params, tokens_BxT, states_BxTxN, None, 0, edits)[0]

    at_CxT = jnp.broadcast_to(at_CxT, (len(mlp_C), at_CxT.shape[1]))
    states = jax.vmap(one_case)(heads_CxH, mlp_C, at_CxT)
    return states.reshape(-1, *states.shape[2:])


@partial(jax.jit, static_argnames=("model",))
def _add_branches(model, params, tokens_BxT, states_RxTxN, fixed) -> jax.Array:
    """Returns the states after a block whose attention and MLP write fixed values."""
    repeats = states_RxTxN.shape[0] // tokens_BxT.shape[0]
    edits = {name: jnp.tile(x, (repeats, 1, 1)) for name, x in fixed.items()}
    return block_output(model, params, tokens_BxT, states_RxTxN, None, 0, edits)[0]


@partial(jax.jit, static_argnames=("start",))
def _take_scored(base_BxTxN, last_RxTxN, position_BxK, start) -> jax.Array:
    """Returns the last states at scored positions, (R, K, N).

    `last_RxTxN` begins at position `start`. Earlier states are those of the base pass.
    """
    repeats = last_RxTxN.shape[0] // base_BxTxN.shape[0]
    earlier = jnp.tile(base_BxTxN[:, :start], (repeats, 1, 1))
    whole = jnp.concatenate([earlier, last_RxTxN], 1)
    return take_positions(whole, jnp.tile(position_BxK, (repeats, 1)))


@partial(jax.jit, static_argnames=("model",))
def _scores(model, params, states_RxKxN, answers) -> jax.Array:
    """Returns the scores (C, B) of last states. MAX_LOGITS bounds the cases that run at once."""
    cases = states_RxKxN.reshape(-1, *answers.position_BxK.shape, states_RxKxN.shape[-1])
    n_at_once = MAX_LOGITS // (answers.position_BxK.size * model.spec.vocab_size)

    def scores_B(states_BxKxN: jax.Array) -> jax.Array:
        return score(read(model, params, states_BxKxN), answers)

    return jax.lax.map(scores_B, cases, batch_size=min(max(n_at_once, 1), len(cases)))
