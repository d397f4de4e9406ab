"""What one gradient step from zero learns (associations: Theorems 1 and 2, lemmas E, B.3).

`predict` and `measure` are the pair of Theorem 1, and `margins` gives both; `attention_logits` and
`measure_attention_logits` are the pair of Theorem 2, exact and by automatic differentiation. The
lemmas' `lemma_counts` and `first_step_table` are exact moments of the process that `sample` draws.
Nothing here is built from the models' lines: the theorems are about the simplified model (2), and
`gradient_step` writes it out. `bounds` has the errors that Lemmas D.1 and D.2 allow.
"""

from theory.one_step.attention_ordering import (
    Ordering as Ordering,
    Setting as Setting,
    attention_logits as attention_logits,
    attention_logits_limit as attention_logits_limit,
    measure_attention_logits as measure_attention_logits,
    noise_matrices as noise_matrices,
    noise_recursion as noise_recursion,
)
from theory.one_step.gradient_bounds import (
    Printed as Printed,
    allowed as allowed,
    lemma_d1 as lemma_d1,
    lemma_d2 as lemma_d2,
    margin_errors as margin_errors,
    measure_first_gradients as measure_first_gradients,
)
from theory.one_step.gradient_step import (
    INPUTS as INPUTS,
    Margins as Margins,
    loss as loss,
    margins as margins,
    measure as measure,
    negative_gradients as negative_gradients,
    predict as predict,
    theorem_1 as theorem_1,
)
from theory.one_step.trigger_process import (
    LEMMAS as LEMMAS,
    TABLE_3 as TABLE_3,
    first_step_table as first_step_table,
    first_step_table_limit as first_step_table_limit,
    lemma_counts as lemma_counts,
    lemma_counts_limit as lemma_counts_limit,
    pair_moments as pair_moments,
    sample as sample,
)
