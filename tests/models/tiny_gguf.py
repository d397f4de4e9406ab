"""Small random GGUF files, as llama.cpp writes them, for the reader and for transformers."""

import string
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, LENGTH = 32, 4, 2, 64, 2, 64
SPACE = "\u2581"
WORDS = ("the", "in", "an", "on")  # tokens that merges must find
KINDS = gguf.GGMLQuantizationType
SHAPES = {  # (outputs, inputs) of a block's matrices, and how they are stored
    "attn_q": ("query", WIDTH, KINDS.Q8_0),
    "attn_k": ("key", WIDTH, KINDS.Q4_1),
    "attn_v": ("key", WIDTH, KINDS.F16),
    "ffn_gate": (HIDDEN, WIDTH, KINDS.Q5_0),
    "ffn_up": (HIDDEN, WIDTH, KINDS.Q4_0),
    "ffn_down": (WIDTH, HIDDEN, KINDS.BF16),
}
TWO = ("attn_norm", "ffn_norm")
FOUR = (*TWO, "post_attention_norm", "post_ffw_norm")
NORMS = {"llama": TWO, "qwen2": TWO, "qwen3": TWO, "gemma2": FOUR, "gemma3": FOUR}
BYTE_LEVEL = {"llama": "smollm", "qwen2": "qwen2", "qwen3": "qwen2"}  # rules that split a text
HEAD_WIDTHS = {"qwen3": 128, "gemma2": 256, "gemma3": 256}  # transformers assumes these
HAVE_HEAD_NORMS = ("qwen3", "gemma3")


def byte_tokens() -> tuple[list[str], list[str]]:
    """Returns the tokens and the merges of a byte-level vocabulary."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    merges = ["t h", "th e", "i n", "a n", "o n", "\u0120 \u0120"]
    joined = [merge.replace(" ", "") for merge in merges]
    return ["<|end|>", *letters, *joined], merges


def sentence_tokens() -> list[str]:
    """Returns the tokens of a SentencePiece vocabulary: special, bytes, letters, words."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    spaces = ["  ", "   "]
    return [*special, *byte_pieces, *spaces, *WORDS, "th", SPACE, *string.ascii_letters, ".", ","]


def write(file: Path, architecture: str, seed: int = 0, **metadata) -> None:
    """Writes a random model.

    Args:
      architecture: a key of NORMS.
      metadata: further values after the architecture, with "__" for ".".
    """
    source = np.random.RandomState(seed)
    writer = gguf.GGUFWriter(file, architecture)
    head_width = HEAD_WIDTHS.get(architecture, WIDTH // HEADS)
    layers = 7 if architecture == "gemma3" else LAYERS
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    if architecture in HEAD_WIDTHS:
        writer.add_key_length(head_width)
        writer.add_value_length(head_width)
    else:
        writer.add_rope_dimension_count(head_width)
    if architecture.startswith("gemma"):
        writer.add_sliding_window(3)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    adders = {bool: writer.add_bool, int: writer.add_uint32}
    adders |= {float: writer.add_float32, str: writer.add_string}
    for name, value in metadata.items():
        adders[type(value)](f"{architecture}.{name.replace('__', '.')}", value)
    vocab = _add_tokenizer(writer, architecture)

    def add(name: str, shape: tuple[int, ...], kind=KINDS.F32) -> None:
        size = 1.0 if name.startswith("token") else shape[-1] ** -0.5
        values = source.standard_normal(shape).astype(np.float32) * size
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * source.standard_normal(shape).astype(np.float32)
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", (vocab, WIDTH), KINDS.Q8_0)
    add("output_norm.weight", (WIDTH,))
    outputs = {"query": HEADS * head_width, "key": KV_HEADS * head_width}
    for i in range(layers):
        for name, (n_outputs, n_inputs, kind) in SHAPES.items():
            add(f"blk.{i}.{name}.weight", (outputs.get(n_outputs, n_outputs), n_inputs), kind)
        add(f"blk.{i}.attn_output.weight", (WIDTH, outputs["query"]), KINDS.Q8_0)
        if architecture == "qwen2":
            for name in ("attn_q", "attn_k", "attn_v"):
                add(f"blk.{i}.{name}.bias", (outputs[SHAPES[name][0]],))
        for name in NORMS[architecture]:
            add(f"blk.{i}.{name}.weight", (WIDTH,))
        if architecture in HAVE_HEAD_NORMS:
            add(f"blk.{i}.attn_q_norm.weight", (head_width,))
            add(f"blk.{i}.attn_k_norm.weight", (head_width,))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, architecture: str) -> int:
    normal, control, byte = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.BYTE
    if architecture in BYTE_LEVEL:
        tokens, merges = byte_tokens()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(BYTE_LEVEL[architecture])
        writer.add_token_merges(merges)
        types = [control] + [normal] * (len(tokens) - 1)
        writer.add_eos_token_id(0)
        writer.add_chat_template("{% for m in messages %}[{{ m['content'] }}]{% endfor %}<|end|>")
    else:
        tokens = sentence_tokens()
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([0.0] * len(tokens))
        types = [control] * 4 + [byte] * 256 + [normal] * (len(tokens) - 260)
        for add, token in (
            (writer.add_pad_token_id, 0),
            (writer.add_eos_token_id, 1),
            (writer.add_bos_token_id, 2),
            (writer.add_unk_token_id, 3),
        ):
            add(token)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    return len(tokens)
