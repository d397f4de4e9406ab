"""Finds changes with which a network that would not train does.

Each change is applied to the network, which is then judged again, and only changes that help are
printed. A network whose queries and keys are too large may have exploding gradients for this reason
alone: then smaller queries and keys are all that it needs.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from jaxformer.core.text_format import counted
from theory.advise.boundaries import critical_alpha, critical_beta
from theory.advise.faults import Start, examine
from theory.advise.question import Question, with_beta
from theory.signal.architecture import Architecture

NO_CHANGE = "nothing: the signal reaches the output and the gradient the input"
MAX_CHANGES = 3  # that a network may need together
MARGIN = 0.99  # a network exactly on a boundary may be judged as on either side
ALPHA_MARGIN = 1.2
MAX_HALVINGS = 10


class Change(NamedTuple):
    """A change of a network."""

    text: str
    question: Question  # about the changed network


def advice(question: Question, start: Start) -> list[str]:
    """The changes that make a network trainable, the most direct first.

    Lines that begin with "or" are alternatives, each of which suffices. If no change suffices
    alone, the one that helps most comes first and "then" what is still needed.
    """
    if not start.faults:
        return [NO_CHANGE]
    if "no signal" in start.faults:
        return ["increase the standard deviation of the weights: no signal passes"]
    lines: list[str] = []
    for _ in range(MAX_CHANGES):
        then = "then " if lines else ""
        judged = [(change, examine(change.question)) for change in _changes(question, start)]
        judged = [(change, after) for change, after in judged if after.is_finite]
        if sufficient := [change.text for change, after in judged if not after.faults]:
            first, *others = sufficient
            return [*lines, then + first, *(f"or {text}" for text in others)]
        partial = [(c, after) for c, after in judged if {*after.faults} < {*start.faults}]
        if not partial:
            break
        change, start = min(partial, key=lambda pair: len(pair[1].faults))
        question = change.question
        lines.append(then + change.text)
    return [*lines, _why_nothing_helps(question, start)]


def _changes(question: Question, start: Start) -> Iterator[Change]:
    """Yields what might help against the faults of a network; whether it does is judged later."""
    net = question.architecture
    if "entropy collapse" in start.faults and (limit := critical_beta(question)) > 0:
        lower = with_beta(net, MARGIN * limit, question.length)
        factor = limit / net.beta(question.length)
        text = f"multiply the query and key weights by less than {factor**0.5:.3f} each"
        if net.qk_norm:  # their norm undoes a scale of the weights
            text = f"multiply the scale of the scores by less than {factor:.3f}"
        yield Change(text, _with(question, lower))
    if "rank collapse" in start.faults:
        yield from _against_rank_collapse(question, start)
    if {"vanishing gradients", "exploding gradients"} & {*start.faults}:
        if (net.alpha_sa, net.alpha_mlp) != (1, 1):
            residual = net.replace(alpha_sa=1.0, alpha_mlp=1.0)
            text = "set both residual weights to 1 (--alpha 1 --alpha-mlp 1)"
            yield Change(text, _with(question, residual))
        if not net.pre_norm:
            yield Change("use pre-norm", _with(question, net.replace(pre_norm=True)))
    if "entropy collapse" not in start.faults:  # which begins in front of the last matrices
        yield from _smaller_branches(question)


def _against_rank_collapse(question: Question, start: Start) -> Iterator[Change]:
    net = question.architecture
    alpha, limit = net.alpha_sa, critical_alpha(question)
    if alpha < limit < math.inf:
        yield Change(
            f"raise alpha from {alpha:g} to above {limit:.3f} (better {ALPHA_MARGIN} times that)",
            _with(question, net.replace(alpha_sa=ALPHA_MARGIN * limit)),
        )
        if alpha > 0:  # only the ratio of the branch to the residual matters
            factor = (alpha / limit) ** 2
            smaller = net.replace(std_v=net.std_v * (MARGIN * factor) ** 0.5)
            yield Change(f"multiply the value variance by {factor:#.3g}", _with(question, smaller))
    if net.alpha_mlp == 0:
        changed = _with(question, net.replace(alpha_mlp=1.0))
        text = "" if limit < math.inf else "no alpha helps: "
        text += "give the MLP a residual (--alpha-mlp 1)"
        if (limit := critical_alpha(changed)) > alpha:
            changed = _with(changed, changed.architecture.replace(alpha_sa=ALPHA_MARGIN * limit))
            text += f" and raise alpha to above {limit:.3f} (better {ALPHA_MARGIN} times that)"
        if limit < math.inf:
            yield Change(text, changed)
    collapsed = start.layers.cosine[1:] > 1 - question.epsilon
    n_good = int(collapsed.argmax())  # the layers before the first collapsed one
    if n_good > 0:
        text = f"use at most {counted(n_good, 'layer')}"
        yield Change(text, _with(question, net.replace(layers=n_good)))


def _smaller_branches(question: Question) -> Iterator[Change]:
    """Yields the largest power of 1/2 for the last matrices that leaves no fault, if one does."""
    net = question.architecture
    last = ("std_o" if net.has_output_projection else "std_v", "std_2")
    names = "W_O and W_2" if net.has_output_projection else "W_V and W_2"
    for k in range(1, MAX_HALVINGS + 1):
        factor = 0.5**k
        scaled = net.replace(**{name: factor * getattr(net, name) for name in last})
        after = examine(changed := _with(question, scaled))
        if after.is_finite and not after.faults:
            yield Change(f"multiply {names} of each layer by {factor:.2g}", changed)
            return


def _with(question: Question, architecture: Architecture) -> Question:
    return replace(question, architecture=architecture)


def _why_nothing_helps(question: Question, start: Start) -> str:
    if start.layers.cosine[0] > 1 - question.epsilon:
        return "no change of the weights helps: the tokens are alike before the first layer"
    if "entropy collapse" in start.faults and critical_beta(question) == 0:
        return "no scale of the scores helps: there are too few tokens"
    return (
        f"no change that was tried removes {' and '.join(start.faults)}: --solve searches further"
    )
