"""The logit lens and the attention weights of a published model for one prompt."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

from experiments.cli.describe import show
from experiments.papers.associations import next_token
from jaxformer import capture, lens, plots
from jaxformer.core.errors import NotFiniteError, UserError
from jaxformer.core.text_format import number
from jaxformer.interp.prompts import answer_position, first_token
from jaxformer.models.model import not_finite

WEIGHTS = r"block_\d+/attn/weights"
SHOWN_HEADS = 12  # the number of heads in the printed table
MAX_TOKENS = 64  # of a prompt


class Look(NamedTuple):
    """Activations for a prompt of T tokens; L blocks, H heads in a block, vocabulary size V."""

    names: list[str]  # of the T tokens
    blocks: list[str]  # the names of the L blocks, such as "block_0"
    log_p_LxTxV: np.ndarray  # log probabilities by the logit lens after each block
    weights_LxHxTxT: np.ndarray
    position: int  # where the model predicts: the last token, or the mask token of an encoder


def look(model: Any, params: Any, tokenizer: Any, prompt: str) -> Look:
    """Runs a model on a prompt; returns the logit lens and the attention of every block."""
    tokens = tokenizer.encode(prompt)
    if not 1 < len(tokens) <= MAX_TOKENS:
        raise UserError(f"--prompt must have 2 to {MAX_TOKENS} tokens, got {len(tokens)}.")
    position = answer_position(tokens, tokenizer, model.spec.causal, "--prompt")
    tokens_1xT = np.array([tokens], np.int32)
    logits = lens.logit_lens(model, params, tokens_1xT)
    weights = capture.capture(model, params, tokens_1xT, names=[WEIGHTS])
    blocks = [address.split("/")[0] for address in logits]
    log_p_LxTxV = np.asarray([jax.nn.log_softmax(x[0].astype(float)) for x in logits.values()])
    is_finite_L = next_token.is_finite(log_p_LxTxV.reshape(len(blocks), -1))
    if not is_finite_L.all():
        broken = not_finite(params)
        advice = "Its activations exceed the numbers of its dtype."
        if broken:
            advice = f"Its weights, such as {broken[0]}, are not finite."
        raise NotFiniteError(
            f"expected finite logits, got nan or infinity after {blocks[is_finite_L.argmin()]}, "
            f"which predict no token. {advice}"
        )
    return Look(
        [tokenizer.show(token) for token in tokens],
        blocks,
        log_p_LxTxV,
        np.asarray([x[0] for x in weights.values()]),
        position,
    )


def print_tables(activations: Look, tokenizer: Any, target: str) -> None:
    """Prints what each block predicts for the prompt, and the heads with the strongest attention.

    Args:
      activations: what `look` captured.
      tokenizer: the model's tokenizer.
      target: a token whose probability and rank are printed, or "".
    """
    at, is_last = activations.position, activations.position == len(activations.names) - 1
    columns = ["block", "likeliest next token" if is_last else "likeliest token", "p"]
    token, note = first_token(tokenizer, target) if target else (None, "")
    if token is not None:
        columns += [f"p of {tokenizer.show(token)}", "rank"]
    table = Table(*columns, box=None, pad_edge=False)
    for block, log_p_V in zip(activations.blocks, activations.log_p_LxTxV[:, at], strict=True):
        best = int(log_p_V.argmax())
        cells = [block, tokenizer.show(best), number(float(np.exp(log_p_V[best])))]
        if token is not None:
            (rank,) = next_token.ranks(log_p_V[None], np.array([token]))
            cells += [number(float(np.exp(log_p_V[token]))), f"{rank:.0f}"]
        table.add_row(*cells)
    show(table)
    if note:
        print(f"note: {note}")
    name = "the last token" if is_last else activations.names[at]
    print(f"\nThe strongest attention from {name} (without attention to the first token):")
    table = Table("block", "head", "attends to", "weight", box=None, pad_edge=False)
    from_LxHxT = activations.weights_LxHxTxT[:, :, at, 1:]
    strongest = np.argsort(-from_LxHxT, axis=None)[:SHOWN_HEADS]
    for block, head, position in zip(*np.unravel_index(strongest, from_LxHxT.shape), strict=True):
        weight = number(float(from_LxHxT[block, head, position]))
        table.add_row(activations.blocks[block], str(head), activations.names[position + 1], weight)
    show(table)


def draw(activations: Look, tokenizer: Any, folder: Path, target: str) -> list[Path]:
    """Draws the logit lens by block and position, and the attention map of one head.

    The head is the one with the largest weight to a token after the first, from the token where the
    model predicts.

    Returns:
      The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lens_file, map_file = folder / "lens.png", folder / "attention.png"
    if target:
        token, _ = first_token(tokenizer, target)
        log_p_LxT, label = activations.log_p_LxTxV[..., token], f"p of {tokenizer.show(token)}"
    else:
        log_p_LxT, label = activations.log_p_LxTxV.max(-1), "p of the likeliest token"
    axes = activations.blocks, activations.names
    plots.heat(np.exp(log_p_LxT), *axes, "Logit lens", label, lens_file)
    from_LxHxT = activations.weights_LxHxTxT[:, :, activations.position, 1:]
    block, head, _ = np.unravel_index(from_LxHxT.argmax(), from_LxHxT.shape)
    title = f"{activations.blocks[block]}, head {head}"
    plots.attention(activations.weights_LxHxTxT[block, head], activations.names, title, map_file)
    return [lens_file, map_file]
