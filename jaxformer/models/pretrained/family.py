"""A family of published models: how files of others determine a network of ours.

`families/` has a file for each group of related families. Everything that distinguishes a family is
in its row, a `Family`: the fields of config.json, the names and layouts of tensors, and what
llama.cpp wrote into a GGUF file. A number of a network is an argument of `PretrainedSpec`, which
explains it. Defaults are those of transformers.

None of these modules imports jax, because `theory.advise` reads the rows too and should answer
sooner than JAX is imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Config = Mapping[str, Any]  # the content of config.json
Numbers = dict[str, Any]  # the arguments of a PretrainedSpec
# The length of the window (0: no window), and whether each block attends to the window. An empty
# tuple means that the length applies to all blocks.
Windows = tuple[int, tuple[bool, ...]]
Names = Mapping[str, str]  # {module of ours: its name on disk}, as in `tensor_names`

REQUIRED = object()  # the default of a field without which a config is incomplete


class GGUF(NamedTuple):
    """The form in which llama.cpp writes a family."""

    architecture: str  # the entry general.architecture
    class_name: str  # the class in transformers
    # (fields so far, function that returns a metadata value by its key) -> further fields of
    # config.json
    more_fields: Callable[[dict[str, Any], Callable[[str], Any]], dict[str, Any]]
    is_permuted: bool = False  # rows of query and key are permuted
    is_norm_shifted: bool = False  # norms are stored as 1 + w
    is_ungrouped: bool = False  # joined queries, keys and values are in three parts, not in groups
    has_implied_biases: bool = False  # biases of attention have no field, or another one
    epsilon: str = "attention.layer_norm_rms_epsilon"  # the key of the norms' eps
    # Further keys without which config.json would have a default that is not the model's.
    required: tuple[str, ...] = ("rope.freq_base",)


@dataclass(frozen=True)
class Family:
    """The row of a model_type.

    A field of config.json that no column names is refused, unless it is empty or has no effect
    (`config_fields.HARMLESS`): a setting that we ignored would give wrong logits in silence.
    """

    # {number of the network: (field of config.json, default)}
    fields: dict[str, tuple[str, Any]]
    # {number of the network: its value in this family}
    constants: dict[str, Any]
    names: Names
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # {field: supported values}
    # Reads which blocks attend to a window of tokens.
    windows: Callable[[Config, int], Windows] | None = None
    # The share of a head that rotates by default; None: no rotary positions, unless `finish` adds
    # them.
    rotary: float | None = 1.0
    partial: bool = False  # whether config.json may change this share
    base: float = 10_000.0  # the default base of the rotary positions
    rotary_kinds: Names = field(default_factory=dict)  # {name in this family: usual name}
    # Reads further fields and changes the numbers.
    finish: Callable[[Config, Numbers], None] | None = None
    further: tuple[str, ...] = ()  # what `finish` and `windows` read, except WINDOW_FIELDS
    # Names that replace some of `names` in parallel blocks with a norm for each branch.
    two_norms: Names = field(default_factory=dict)
    # Layouts (see `tensor_layouts`) of the kernels in blocks, and of tensors that join kernels.
    kernels: str = "transposed"
    joined: str = ""
    gguf: GGUF | None = None

    @property
    def prefix(self) -> str:
        """The start that names on disk may lack: the hub's GPT-2 is a stack without a head."""
        return self.names["embed"].split(".")[0] + "."


# Entries of the column `fields` that several families share.
SIZES = {
    "vocab_size": ("vocab_size", REQUIRED),
    "length": ("max_position_embeddings", REQUIRED),
    "width": ("hidden_size", REQUIRED),
    "layers": ("num_hidden_layers", REQUIRED),
    "heads": ("num_attention_heads", REQUIRED),
    "mlp_width": ("intermediate_size", REQUIRED),
    "init_std": ("initializer_range", 0.02),
}
UNTIED = {"tied": ("tie_word_embeddings", False)}
TIED = {"tied": ("tie_word_embeddings", True)}
GROUPED = {"kv_heads": ("num_key_value_heads", None), "head_width": ("head_dim", None)}
ATTENTION_BIAS = {"qkv_bias": ("attention_bias", False), "out_bias": ("attention_bias", False)}
MLP_BIAS = {"mlp_bias": ("mlp_bias", False)}
SILU = {"act": ("hidden_act", "silu")}
# An entry of the column `constants`.
ALL_BIASES = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
