"""A trial of a loaded tokenizer: encoding and decoding a text must preserve its characters.

The trial runs in a separate process (`round_trip_process.py`), because a foreign tokenizer may
abort its process, exhaust the memory or never end.
"""

import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jaxformer.core.errors import UserError, one_line
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.io.huggingface_tokenizer import HuggingFace

MAX_LOST_SHARE = 1e-3  # share of the characters that a tokenizer may lose
MAX_TOKENS_PER_BYTE = 16
MAX_TRIAL_SECONDS = 60
MAX_TRIAL_BYTES = 2**32  # of memory
PROCESS = Path(__file__).with_name("round_trip_process.py")


def check_round_trip(tokenizer: Tokenizer, name: str, words: Sequence[str]) -> None:
    """Raises UserError if a tokenizer loses text, makes too many tokens, fails or does not end.

    White space, case, accents and the order of characters may change: many published tokenizers
    normalise them. `bytes` and a BPE trained by `tokenizer.make` lose nothing and are not tried.

    Args:
        name: how the user named it, for errors.
        words: a sample of the text.
    """
    if not isinstance(tokenizer, HuggingFace) or name.startswith("bpe:"):
        return
    decoded, n_tokens = _run_trial(tokenizer.as_json(), name, words)
    size = sum(len(word.encode()) for word in words)
    if n_tokens > MAX_TOKENS_PER_BYTE * max(size, 1):
        raise UserError(
            f"the tokenizer {name} makes {n_tokens:,} tokens of {size:,} bytes; at most "
            f"{MAX_TOKENS_PER_BYTE} a byte are possible."
        )
    lost = {  # {word: number of its characters that are lost}
        word: sum((_characters(word) - _characters(text)).values())
        for word, text in zip(words, decoded, strict=True)
    }
    n_lost, total = sum(lost[word] for word in words), sum(map(len, words))
    if n_lost > MAX_LOST_SHARE * total:
        first = next(word for word in words if lost[word])
        returned = decoded[words.index(first)]
        raise UserError(
            f"the tokenizer {name} loses text: {n_lost:,} of the first {total:,} characters do not "
            f"come back. The first lost piece is {first[:40]!r}, which becomes {returned[:40]!r}."
        )


def _characters(text: str) -> Counter[str]:
    """Counts the characters without case, accents and white space."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return Counter(c for c in parts if not (c.isspace() or unicodedata.combining(c)))


def _run_trial(tokenizer_json: str, name: str, words: Sequence[str]) -> tuple[list[str], int]:
    """Returns the decoded words and the number of their tokens."""
    # -P keeps this folder off the path, since modules such as tokenizer.py could hide packages.
    command = [sys.executable, "-P", str(PROCESS)]
    task = {"tokenizer": tokenizer_json, "words": [*words], "memory_bytes": MAX_TRIAL_BYTES}
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=MAX_TRIAL_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the tokenizer {name} does not end within {MAX_TRIAL_SECONDS} seconds on the first "
            f"{sum(map(len, words)):,} characters: is there a pattern in it that backtracks?"
        ) from None
    if done.returncode:
        raise UserError(
            f"the tokenizer {name} fails on the first {sum(map(len, words)):,} characters: "
            f"{_reason(done.stderr, done.returncode)}."
        )
    result = json.loads(done.stdout)
    return result["decoded"], result["tokens"]


def _reason(stderr: str, code: int) -> str:
    """Returns the last line that a failed process wrote, without Rust's advice on backtraces."""
    lines = [line.strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith("note: ")]
    return one_line(lines[-1].rstrip(".") if lines else f"signal {-code}", 120)
