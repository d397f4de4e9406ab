"""Generates text from a trained language model.

    python experiments/generate.py RUN --prompt "To be"

  RUN                a folder of experiments/run.py that trained on prepared text
  --prompt=TEXT      the text before; an empty one is the beginning of a document
  --tokens=N         tokens to draw (default: 200, or as many as the context allows)
  --temperature=1.0  0 takes the likeliest token each time
  --top-p=1.0        draws among the fewest likeliest tokens that have this probability together
  --seed=0           the seed of the draws
  --samples=1        the number of texts
  --member=I         a member of the population (default: the first seed of the chosen rate)

Keys and values of earlier tokens are cached, so that each token costs one position.
"""

try:
    import experiments  # noqa: F401 (first: Ctrl-C during the other imports prints one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (exits with a line that names the right Python)

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

DEFAULT_TOKENS = 200


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
    arguments = parser.parse_args(argv)
    check_range("--seed", arguments.seed, 0, MAX_SEED)
    processes.cache_compiled_programs()
    model, params, config = load_run(arguments.run, arguments.member)[:3]
    task = build.task(config)
    if not isinstance(task, NextToken):
        raise UserError(
            f"{arguments.run} was trained on {type(task).__name__}, which predicts no next "
            "token of a text; configs/text/lm.py does."
        )
    tokenizer = task.prepared.tokenizer
    if tokenizer.vocab_size != model.spec.vocab_size:
        raise UserError(
            f"the tokens in {task.prepared.folder} have a vocabulary of "
            f"{tokenizer.vocab_size:,}, the model was trained with {model.spec.vocab_size:,}: they "
            "were prepared again with other settings."
        )
    prompt = tokenizer.encode([arguments.prompt])[0].tolist() or [tokenizer.end]
    remaining = model.spec.length - len(prompt)
    new_tokens = arguments.tokens or max(min(DEFAULT_TOKENS, remaining), 1)
    prompts = jnp.tile(jnp.array([prompt], jnp.int32), (arguments.samples, 1))
    texts = generate(
        model,
        params,
        prompts,
        new_tokens,
        jax.random.key(arguments.seed),
        temperature=arguments.temperature,
        top_p=arguments.top_p,
    )
    for i, tokens in enumerate(texts.tolist()):
        if arguments.samples > 1:
            print(f"--- {i + 1}")
        print(tokenizer.decode(tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
