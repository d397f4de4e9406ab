"""Builds a tokenizer of the package `tokenizers` from the metadata of a GGUF file.

gpt2     byte-level BPE: the file has the merges, and names the rule that splits a text into words
llama    SentencePiece: spaces are "▁", and unknown characters become bytes. The file has no merges.
         Two tokens are merged if they form a third token. The merge whose result has the highest
         score comes first (in Gemma: the result with the smallest id)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.core.errors import UserError, check_choice, one_line

SPACE = "\u2581"
CONTROL, USER_DEFINED = 3, 4  # types of tokens
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2_RULES = ("default", "gpt-2")
# Llama 3: a word that is a token is not merged from parts, and each text has a start token.
LLAMA3_RULES = ("llama-bpe", "llama3", "llama-v3")
# {rule that splits a text, as GGUF files name it: its pattern}
SPLITS = {**dict.fromkeys(LLAMA3_RULES, LLAMA3_SPLIT), "qwen2": QWEN2_SPLIT}
DIGIT_RULES = ("smollm",)  # every digit is split off, then the rule of GPT-2 applies
RULES = (*GPT2_RULES, *SPLITS, *DIGIT_RULES)


def build(metadata: Mapping[str, Any], where: str) -> Any:
    """Returns a `tokenizers.Tokenizer`.

    Args:
      metadata: the metadata of the file.
      where: the name of the file in messages.
    """
    try:
        return _build({name.removeprefix("tokenizer.ggml."): x for name, x in metadata.items()})
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except ImportError:
        raise UserError("text needs pip install 'jaxformer[hf]' (tokenizers).") from None
    except Exception as error:  # the library raises Exception itself
        raise UserError(f"{where} has no usable tokenizer: {one_line(error, 120)}.") from None


def settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of tokenizer_config.json: the chat template and the special tokens."""
    content: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if "tokenizer.chat_template" in metadata:
        content["chat_template"] = metadata["tokenizer.chat_template"]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    for name, role in names.items():
        token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if isinstance(token_id, int) and token_id < len(tokens):
            content[name] = tokens[token_id]
    return content


def _build(fields: Mapping[str, Any]) -> Any:
    from tokenizers import AddedToken

    kind, tokens = fields.get("model"), fields.get("tokens")
    if not isinstance(tokens, list) or not isinstance(kind, str):
        raise UserError("it has no tokenizer; give prompts as token ids, such as '5 17 2'.")
    check_choice("tokenizer of a GGUF file", kind, ("gpt2", "llama"))
    tokenizer = _byte_level(fields) if kind == "gpt2" else _sentencepiece(fields)
    types, vocab = fields.get("token_type") or [], tokenizer.get_vocab()
    for token_type, special in ((CONTROL, True), (USER_DEFINED, False)):
        chosen = [token for token, t in zip(tokens, types) if t == token_type and token in vocab]
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(token, normalized=False, special=special) for token in chosen])
    adds_start = kind == "llama" or fields.get("pre") in LLAMA3_RULES
    _add_start_and_end(tokenizer, fields, adds_start)
    return tokenizer


def _byte_level(fields: Mapping[str, Any]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    rule = fields.get("pre") or "default"
    check_choice("rule that splits a text", rule, RULES)
    vocab = {token: index for index, token in enumerate(fields["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in fields["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=rule in LLAMA3_RULES))
    steps: list[Any] = []
    if rule in SPLITS:
        steps = [pre_tokenizers.Split(Regex(SPLITS[rule]), behavior="isolated")]
    elif rule in DIGIT_RULES:
        steps = [pre_tokenizers.Digits(individual_digits=True)]
    to_bytes: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule not in SPLITS)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, to_bytes]) if steps else to_bytes
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(fields: Mapping[str, Any]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    is_gemma = str(fields.get("general.architecture", "")).startswith("gemma")
    # Gemma's files write a token of several spaces with spaces, not with SPACE.
    tokens = [
        SPACE * len(token) if len(token) > 1 and not token.strip(" ") else token
        for token in fields["tokens"]
    ]
    # The scores of Gemma do not follow its merges; the order of its tokens does.
    scores = [-i for i in range(len(tokens))] if is_gemma else fields["scores"]
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = fields.get("unknown_token_id")
    model = models.BPE(
        vocab,
        _merges(tokens, scores, vocab),
        fuse_unk=True,
        byte_fallback=True,
        unk_token=None if unknown is None else tokens[unknown],
    )
    tokenizer = Tokenizer(model)
    has_prefix = fields.get("add_space_prefix", not is_gemma)
    add_prefix = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*add_prefix, normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(
    tokens: Sequence[str], scores: Sequence[float], vocab: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Returns all pairs of tokens that form a token, in the order in which they are merged.

    Pairs are sorted by the score of the token that they form, the highest first. Pairs with equal
    scores are sorted by the length of the left token, then of the right token, the longest first.
    """
    ranked = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                ranked.append((-score, -len(left), -len(right), left, right))
    ranked.sort(key=lambda entry: entry[:3])
    return [entry[3:] for entry in ranked]


def _add_start_and_end(tokenizer: Any, fields: Mapping[str, Any], adds_start: bool) -> None:
    """Makes the tokenizer add start and end tokens to each text, if the file says so."""
    from tokenizers import processors

    template, special = ["$A"], []
    for name, is_default in (("bos", adds_start), ("eos", False)):
        token_id = fields.get(f"{name}_token_id")
        if token_id is None or not fields.get(f"add_{name}_token", is_default):
            continue
        token = fields["tokens"][token_id]
        special.append((token, token_id))
        template = [token, *template] if name == "bos" else [*template, token]
    if special:
        single: Any = template
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=special
        )
