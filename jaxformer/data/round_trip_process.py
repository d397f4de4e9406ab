"""The separate process of `round_trip`: encodes and decodes words with a tokenizer.json.

It reads {"tokenizer": text of tokenizer.json, "words": [..], "memory_bytes": limit} from stdin and
writes {"decoded": [..], "tokens": number} to stdout. It runs as a script that does not import
jaxformer, because a tokenizer may take forever, take all memory or abort the process.
"""

import json
import resource
import sys

from tokenizers import Tokenizer


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no core file
    trial = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (trial["memory_bytes"], trial["memory_bytes"]))
    tokenizer = Tokenizer.from_str(trial["tokenizer"])
    tokenizer.encode_special_tokens = True  # names of special tokens are ordinary text
    encodings = tokenizer.encode_batch_fast(trial["words"], add_special_tokens=False)
    unknown = unknown_token(json.loads(trial["tokenizer"])["model"], tokenizer)
    ids = [[token for token in encoding.ids if token != unknown] for encoding in encodings]
    decoded = tokenizer.decode_batch(ids, skip_special_tokens=True)
    json.dump({"decoded": decoded, "tokens": sum(map(len, ids))}, sys.stdout)


def unknown_token(model: dict, tokenizer: Tokenizer) -> int | None:
    """Returns the id of the token that stands for unknown text; None if there is none."""
    if model.get("unk_id") is not None:  # Unigram
        return model["unk_id"]
    name = model.get("unk_token")
    return tokenizer.token_to_id(name) if name else None


if __name__ == "__main__":
    main()
