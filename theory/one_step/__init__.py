"""What one gradient step from zero learns; see `gradient_step` for the equations."""

from theory.one_step.attention_ordering import (
    Setting,
    attention_logits,
    attention_logits_limit,
    measure_attention_logits,
    noise_matrices,
    noise_recursion,
)
from theory.one_step.gradient_step import (
    INPUTS,
    loss,
    margins,
    measure,
    negative_gradients,
    predict,
    theorem_1,
)
from theory.one_step.trigger_process import (
    first_step_table,
    first_step_table_limit,
    lemma_counts,
    lemma_counts_limit,
)

__all__ = [
    "INPUTS",
    "Setting",
    "attention_logits",
    "attention_logits_limit",
    "first_step_table",
    "first_step_table_limit",
    "lemma_counts",
    "lemma_counts_limit",
    "loss",
    "margins",
    "measure",
    "measure_attention_logits",
    "negative_gradients",
    "noise_matrices",
    "noise_recursion",
    "predict",
    "theorem_1",
]
