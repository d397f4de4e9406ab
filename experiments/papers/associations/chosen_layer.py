"""LASER on one published model: its layer is chosen on some prompts and judged on others.

The prompts are split in two halves, the even and the odd ones. On each half, the block is chosen
whose cut gives the highest ratio P(right) / P(the). It is judged on the other half, so that every
prompt is judged by a cut that was chosen without it. Two more measurements explain the last block:
what the logit lens reads before it, and its direct contribution to the logits.

The margin of a prompt is logit(right word) - logit(" the"). B is the axis of prompts, and C that of
the full model and its L cuts, one at each block.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.associations import blockwise, next_token, paper_prompts, published
from experiments.papers.associations.laser_search import matching_matrices
from experiments.papers.associations.next_token import PromptBatch
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer import lens, surgery
from jaxformer.core import paths
from jaxformer.core.errors import NotFiniteError, check_choice
from jaxformer.interp.prompts import first_token
from jaxformer.training.metrics import over_seeds

MATRICES = r"block_\d+/mlp/in"
BATCH_SIZE = 100  # prompts in one step
MIN_PROBABILITY = 1e-30
QUANTITIES = ("target", "the")


def measure_chosen_layer(
    source: str,
    prompt: str,
    judged: str,
    sentences: int,
    fraction: float,
    dtype: str,
    seed: int,
) -> Outcome:
    """Measures P(right) and P(the), full, cut at the chosen block, and cut at the last block.

    Args:
      source: A folder, a GGUF file, "package:NAME", a name on the hub, or "tiny:FAMILY".
      prompt: A kind of `paper_prompts.KINDS`, on whose prompts the block is chosen.
      judged: A kind of prompts to judge, all with the block chosen on the first half of `prompt`.
        "" judges each half of `prompt` with the block chosen on the other half.
      sentences: The number of prompts, or 0 for all.
      fraction: The share of the rank to keep.
      dtype: The dtype of the parameters.
      seed: The seed of the names in prompts of kind "ioi".
    """
    with jax.enable_x64(False):
        model, params, tokenizer = published.open_model(source, "", seed, dtype)
        the_token, _ = first_token(tokenizer, paper_prompts.GENERIC)

        def encoded(kind: str) -> PromptBatch:
            prompts = paper_prompts.prompts_of(kind, sentences, seed, tokenizer)
            texts, targets = [p.text for p in prompts], [p.target for p in prompts]
            return next_token.encode(tokenizer, texts, targets)

        choosing = encoded(prompt)
        judging = encoded(judged) if judged else choosing
        chosen_from = probabilities_of_cuts(model, params, choosing, the_token, fraction)
        measured = chosen_from
        if judged:
            measured = probabilities_of_cuts(model, params, judging, the_token, fraction)
        explained = _explain_last_block(model, params, judging, the_token)
    return _outcome(measured, chosen_from, bool(judged), explained)


def probabilities_of_cuts(
    model: Any, params: Any, prompts: PromptBatch, the_token: int, fraction: float
) -> np.ndarray:
    """Returns P(right) and P(the) after each prompt, (C, 2, B): full, then cut at each block.

    `the_token` is the token id of " the".
    """
    log_probabilities = blockwise.make_log_probabilities(model, params, prompts, BATCH_SIZE)
    tokens_Bx2 = np.stack([prompts.targets_B, np.full(len(prompts.targets_B), the_token)], 1)

    def probabilities(cut: Any, path: str) -> np.ndarray:
        logs_BxV = log_probabilities(cut, path)
        if not next_token.is_finite(logs_BxV).all():
            raise NotFiniteError(
                f"expected finite logits, got nan or infinity with {path or 'no matrix'} cut. Try "
                "--config.figure.dtype=float32."
            )
        return np.exp(np.take_along_axis(logs_BxV, tokens_Bx2, 1)).T

    rows, flat = [probabilities(params, "")], paths.flatten(params)
    for path in matching_matrices(params, MATRICES):
        kernel = jnp.asarray(flat[path])
        cut = surgery.low_rank(kernel, max(surgery.rank_of(kernel, fraction), 1))
        rows.append(probabilities(paths.replace(params, {path: cut}), path))
    return np.array(rows)


def choose(p_Cx2xB: np.ndarray) -> int:
    """Returns the block with the highest ratio of mean P(right) to mean P(the)."""
    means_Cx2 = p_Cx2xB[1:].mean(-1)
    return int(np.argmax(means_Cx2[:, 0] / np.maximum(means_Cx2[:, 1], MIN_PROBABILITY)))


def _explain_last_block(
    model: Any, params: Any, prompts: PromptBatch, the_token: int
) -> dict[str, np.ndarray]:
    """Returns, for each prompt, the margin before and after the last block, and its MLP's part.

    The margin before is what the logit lens reads. The part is the direct contribution of the
    last MLP; "last_mlp_is_largest" is 1 where no other MLP contributes more.
    """
    tokens_BxT, ends_Bx1, targets_B, _ = prompts
    last = model.spec.layers - 1

    def margins(logits_Bx1xV):
        right_B = jnp.take_along_axis(logits_Bx1xV[:, 0], targets_B[:, None], 1)[:, 0]
        return right_B - logits_Bx1xV[:, 0, the_token]

    @jax.jit
    def measure(params):
        names = rf"block_({last - 1}|{last})/states"
        read = lens.logit_lens(model, params, tokens_BxT, ends_Bx1, names=names)
        parts = lens.attribution(
            model, params, tokens_BxT, ends_Bx1, metric=lambda logits: margins(logits).sum()
        ).parts
        by_block_LxB = jnp.stack([parts[f"block_{i}/mlp/output"].sum(1) for i in range(last + 1)])
        before_B, after_B = (margins(read[f"block_{i}/states"]) for i in (last - 1, last))
        return before_B, after_B, by_block_LxB

    before_B, after_B, by_block_LxB = map(np.asarray, measure(params))
    return {
        "margin_before": before_B,
        "margin_after": after_B,
        "margin_rise": after_B - before_B,
        "margin_of_last_mlp": by_block_LxB[-1],
        "last_mlp_is_largest": (by_block_LxB.argmax(0) == last).astype(float),
    }


def _outcome(
    measured: np.ndarray,
    chosen_from: np.ndarray,
    is_judged_apart: bool,
    explained: dict[str, np.ndarray],
) -> Outcome:
    """Returns the metrics, and the ratio at each block for the figure."""
    halves = [slice(0, None, 2), slice(1, None, 2)]
    blocks = [choose(chosen_from[..., half]) for half in halves]
    cut_2xB = np.empty_like(measured[0])
    for half, block in zip(reversed(halves), blocks, strict=True):
        cut_2xB[:, half] = measured[1 + block][:, half]
    if is_judged_apart:
        cut_2xB = measured[1 + blocks[0]]
    metrics = {f"chosen_block/{i}": exact(float(block)) for i, block in enumerate(blocks)}
    cuts = {"": measured[0], "/cut": cut_2xB, "/last": measured[-1]}
    for suffix, p_2xB in cuts.items():
        right, the = p_2xB.mean(1)
        metrics[f"ratio{suffix}"] = exact(right / max(the, MIN_PROBABILITY))
        for name, p_B, whole_B in zip(QUANTITIES, p_2xB, measured[0], strict=True):
            # The mean and the error are those over prompts.
            metrics[f"p_{name}{suffix}"] = over_seeds(p_B)
            if suffix:
                metrics[f"p_{name}_gain{suffix}"] = over_seeds(p_B - whole_B)
    metrics |= {name: over_seeds(values_B) for name, values_B in explained.items()}
    return Outcome({"p": measured.mean(-1), "chosen": np.array(blocks)}, metrics)


def check_chosen_layer(source: str, prompt: str, judged: str, fraction: float, dtype: str) -> None:
    """Raises if the measurement would refuse its settings; downloads nothing."""
    check_choice("kind of prompt", judged or prompt, paper_prompts.KINDS)
    published.check_published(source, prompt, MATRICES, (fraction,), dtype)


def draw_chosen_layer(arrays, prompt: str, judged: str, fraction: float):
    """Draws P(right) and P(the) when each block is cut, against the full model."""
    p_Cx2 = arrays["p"]
    blocks = np.arange(len(p_Cx2) - 1)
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.0))
    for colour, name, p_C in zip(plots.cycle(2), QUANTITIES, p_Cx2.T, strict=True):
        label = published.LABELS[name]
        axis.plot(blocks, p_C[1:], "o-", color=colour, ms=3, label=label)
        axis.axhline(p_C[0], color=colour, linestyle=":")
    for block in dict.fromkeys(int(block) for block in arrays["chosen"]):
        axis.axvline(block, color="0.8", zorder=0)
    axis.set(xlabel="block whose mlp/in is cut", ylabel="probability", yscale="log")
    chosen = " and ".join(str(int(block)) for block in arrays["chosen"])
    caption = (
        f"Rank {fraction:g} of each matrix is kept. Dotted: the full model. Vertical: the blocks "
        f"chosen on each half. Means over the prompts of {judged or prompt!r}."
    )
    plots.add_finding(figure, f"The halves choose block {chosen}", caption, axis)
    return figure


CHOSEN_LAYER = Figure(
    measure=measure_chosen_layer, draw=draw_chosen_layer, check=check_chosen_layer
)
