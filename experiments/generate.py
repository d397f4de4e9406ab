"""Text from a trained language model, token by token.

    python experiments/generate.py RUN --prompt "To be"

  RUN                a folder of experiments/run.py that trained on prepared text
  --prompt=TEXT      what comes before; nothing is the beginning of a document
  --tokens=N         how many to draw (default: 200, or what the context leaves)
  --temperature=1.0  0 takes the likeliest token each time
  --top-p=1.0        keeps the fewest of the likeliest tokens that have this probability together
  --seed=0           of the draws
  --samples=1        texts to draw, one after the other
  --member=I         of the population (default: the first seed of the chosen learning rate)

Keys, values and positions of earlier tokens are kept, so that a token costs one row.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxformer import build
from jaxformer.core.errors import UserError, check_range
from jaxformer.core.settings import MAX_SEED
from jaxformer.loading import load_run
from jaxformer.models.generate import generate
from jaxformer.runtime import processes
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.tasks.language import NextToken

DRAWN = 200


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("run")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--tokens", type=count, default=0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=count, default=1)
    parser.add_argument("--member", type=int, default=None)
    asked = parser.parse_args(argv)
    check_range("--seed", asked.seed, 0, MAX_SEED)
    processes.cache_compiled_programs()
    model, params, config = load_run(asked.run, asked.member)[:3]
    task = build.task(config)
    if not isinstance(task, NextToken):
        raise UserError(
            f"{asked.run} was trained on {type(task).__name__}, which names no next token of a "
            "text; configs/text/lm.py does."
        )
    coder = task.prepared.tokenizer
    if coder.vocab_size != model.spec.vocab_size:
        raise UserError(
            f"the tokens in {task.prepared.folder} have a vocabulary of {coder.vocab_size:,}, the "
            f"model was trained with {model.spec.vocab_size:,}: they were prepared again otherwise."
        )
    prompt = coder.encode([asked.prompt])[0].tolist() or [coder.end]
    left = model.spec.length - len(prompt)
    drawn = asked.tokens or max(min(DRAWN, left), 1)
    prompts = jnp.tile(jnp.array([prompt], jnp.int32), (asked.samples, 1))
    found = generate(
        model,
        params,
        prompts,
        drawn,
        jax.random.key(asked.seed),
        temperature=asked.temperature,
        top_p=asked.top_p,
    )
    for i, tokens in enumerate(found.tolist()):
        if asked.samples > 1:
            print(f"--- {i + 1}")
        print(coder.decode(tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
