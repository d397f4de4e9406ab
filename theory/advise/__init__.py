"""Predicts in a second whether a transformer will train, by signal propagation at initialisation.

    jaxformer advise path/to/config.json            GPT-2, Llama, BERT, ViT, Pythia, T5, ...
    jaxformer advise FOLDER                         of a published model, or of a run
    jaxformer advise gpt2                           a name on the hub, or package:NAME
    jaxformer advise config.json --solve init-std --target-cosine 0.5
    jaxformer advise --layers 60 --width 768 --heads 12 --length 512 --alpha 1.0
    jaxformer advise --run DIR                      a run of jaxformer, at its start and now
    jaxformer advise --model FOLDER --tokens FILE   a published model on your text

A config.json describes the network that Hugging Face initialises. Flags alone describe the
post-norm encoder of arXiv 2505.24333, without an output projection; --pre-norm, --causal, --gated,
--hidden and --output-projection change that. The network is trainable if three numbers are in
their ranges: the cosine of two tokens after the last layer, the number of keys that a query sees (e
to the entropy of its attention row), and the ratio of the gradients of the first and the last
block. The theory is exact at finite length in the limit of large width (theory.signal). --check
builds the network and measures it.

beta = standard deviation of the scores / sqrt(ln T). sigma_V^2, sigma_W^2 are variances x fan-in.
"""

import json
from collections.abc import Sequence
from typing import Any

from jaxformer.core.errors import NotFiniteError
from jaxformer.runtime.command_line import command
from theory.advise import report
from theory.advise.diagnosis import judge as judge
from theory.advise.question import Question as Question, parse
from theory.advise.solve import solve


@command
def main(argv: Sequence[str]) -> int:
    """Runs the command. It imports jax only to measure networks, because that takes a second."""
    args, question = parse(__doc__, argv)
    if question is None:
        comparison = _compare(args)
        text = report.comparison_json if args.json else report.comparison_text
        print(text(comparison))
        if args.plot:
            report.plot_comparison(comparison, args.plot, quiet=args.json)
        _check_finite(comparison)
        return 0
    answer = _answer(args, question)
    print(json.dumps(answer) if args.json else report.answer_text(answer))
    if args.plot:
        report.plot_answer(answer, args.plot, quiet=args.json)
    return 0


def _compare(args: Any) -> dict[str, Any]:
    from theory.advise import layer_comparison

    if args.run:
        return layer_comparison.compare_run(args.run)
    return layer_comparison.compare_model(args.model, args.tokens, args.length)


def _check_finite(comparison: dict[str, Any]) -> None:
    if not_finite := report.not_finite_quantities(comparison):
        raise NotFiniteError(
            f"expected finite activations and gradients, got nan or infinity: {not_finite[0]}. "
            "Check the weights for nan, infinity and values beyond their initial scale."
        )


def _answer(args: Any, question: Question) -> dict[str, Any]:
    answer, net = judge(question), question.architecture
    if args.solve:
        answer["solved"] = solve(question, args.solve, args.target_cosine, args.target_keys)
        net = answer["solved"].pop("architecture")
    if args.width_check or args.check:
        from theory.advise import simulation

        if args.check:
            answer["checked"] = simulation.check(question, net)
        if args.width_check:
            answer["widths"] = simulation.check_widths(question)
    return answer
