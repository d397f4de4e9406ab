"""Fields of config.json: those without effect, those refused, and readers that families share."""

import re
from collections.abc import Callable, Iterable

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained.family import Config, Numbers

# Patterns of fields that do not change the function of a network in inference.
HARMLESS = re.compile(
    "|".join(
        (
            r"_(?!remove_final_layer_norm).*",
            r".*(dropout|pdrop|layerdrop)(_prob)?",
            r".*_token(_id|_ids|_index)?",
            r"model_type|architectures|auto_map|(torch_)?dtype|transformers(_js)?_version|use_cache",
            r"(name_or|model)_(path|name)|language|finetuning_task|problem_type|task_specific_params",
            r"id2label|label2id|num_labels|summary_.*|classifier_.*|tokenizer_class|prefix|is_decoder",
            r"initializer_.*|init_.*|gradient_checkpointing|attn_implementation|cache_implementation",
            r"output_(attentions|hidden_states|scores)|return_dict(_in_generate)?|torchscript",
            r"use_bfloat16|pretraining_tp|chunk_size_feed_forward|reorder_and_upcast_attn|is_llama_config",
            # Settings of generation, which older versions of transformers wrote to config.json.
            r"(min|max)(_new)?_(tokens|length)|num_beam(s|_groups)|num_return_sequences|temperature|top_[kp]",
            r"typical_p|do_sample|early_stopping|(length|repetition|diversity|exponential_decay_length)_.*",
            r"(encoder_)?no_repeat_ngram_size|remove_invalid_values|(begin_)?suppress_tokens",
        )
    )
)
# The pattern of the names of factors, which have no effect if they are 1.
NEUTRAL_AT_ONE = re.compile(r".*(multiplier|scale|scaling|scalar|factor)")
EMPTY = (None, False, "", [], {}, ())  # values of a field that turn nothing on


def check_fields(config: Config, known: Iterable[str]) -> None:
    """Raises for a field that is unknown and may change the function of the network."""
    known = set(known)
    for field, value in config.items():
        # The comparison of types keeps 0, which equals False, from counting as empty.
        is_empty = any(type(value) is type(empty) and value == empty for empty in EMPTY)
        is_neutral = value == 1 and NEUTRAL_AT_ONE.fullmatch(field)
        if field in known or is_empty or is_neutral or HARMLESS.fullmatch(field):
            continue
        raise UserError(
            f"{field}: {one_line(repr(value), 60)} is not supported for {config['model_type']}."
        )


def refuse_head_dim(config: Config, numbers: Numbers) -> None:
    """Raises a UserError unless all heads together are as wide as the model."""
    # The rows of some families do not read head_dim into the numbers.
    head_width = config.get("head_dim") or numbers["head_width"]
    if head_width * numbers["heads"] != numbers["width"]:
        raise UserError(
            f"head_dim: {config['head_dim']} is not supported; a {config['model_type']} model has "
            f"heads of {numbers['width'] // numbers['heads']}."
        )


def per_head_norm(norm: str) -> Callable[[Config, Numbers], None]:
    """A reader of the field qk_layernorm, which turns this `qk_norm` on."""

    def read(config: Config, numbers: Numbers) -> None:
        if config.get("qk_layernorm"):
            numbers["qk_norm"] = norm

    return read
