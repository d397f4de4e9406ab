"""Will this transformer train? The answer of signal propagation at initialisation, in a second.

    python -m theory.advise path/to/config.json            GPT-2, Llama, BERT, ViT, Pythia, T5, ...
    python -m theory.advise config.json --solve init-std --target-cosine 0.5
    python -m theory.advise --layers 60 --width 768 --heads 12 --length 512 --alpha 1.0
    python -m theory.advise --run DIR                      a run of ours, at its start and now
    python -m theory.advise --model FOLDER --tokens FILE   a published model on your text

A config.json is judged as Hugging Face initialises it. Flags alone describe the post-norm encoder
of arXiv 2505.24333, without an output projection; --pre-norm, --causal, --gated, --hidden and
--output-projection change that. Three numbers decide, each with its range: how alike tokens are
after the last layer, how many keys a query sees (e to the entropy of its row of attention), and how
the gradient of the first block compares with that of the last. The theory is exact at finite length
in the limit of large width (theory.signal); --check builds the network and measures it.

beta = deviation of the scores / sqrt(ln T). sigma_V^2, sigma_W^2 are variances x fan-in.
"""

import json
from collections.abc import Sequence

from jaxformer.core.errors import NotFiniteError
from jaxformer.runtime.command_line import command
from theory.advise.diagnosis import judge as judge
from theory.advise.question import Question as Question, parse
from theory.advise.report import text
from theory.advise.solve import solve


@command
def main(argv: Sequence[str]) -> int:
    """The command. Only what measures networks needs jax, which takes longer than the answer."""
    args, question = parse(__doc__, argv)
    if question is None:
        from theory.advise import layer_comparison, table

        found = (
            layer_comparison.of_run(args.run)
            if args.run
            else layer_comparison.of_model(args.model, args.tokens, args.length)
        )
        broken = layer_comparison.not_finite(found)
        print(layer_comparison.as_json(found, broken) if args.json else table.text(found))
        if args.plot:
            table.draw(found, args.plot, quiet=args.json)
        if broken:
            raise NotFiniteError(
                f"expected finite activations and gradients, got nan or infinity: {broken[0]}. "
                "Check the weights for nan, infinity and values beyond their initial scale."
            )
        return 0
    answer = judge(question)
    if args.solve:
        answer["solved"] = solve(question, args.solve, args.target_cosine, args.target_keys)
    if args.width_check or args.check:
        from theory.advise import simulation

        if args.check:
            net = answer["solved"]["architecture"] if args.solve else question.architecture
            answer["checked"] = simulation.measured(question, net)
        if args.width_check:
            answer["widths"] = simulation.widths(question)
    for place in (answer, answer.get("solved", {})):
        place.pop("architecture", None)
    print(json.dumps(answer) if args.json else text(answer))
    if args.plot:
        from theory.advise.draw import draw

        draw(answer, args.plot, quiet=args.json)
    return 0
