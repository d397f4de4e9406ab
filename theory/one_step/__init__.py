"""One gradient step from zero in the simplified model: Theorems 1 and 2 and their lemmas.

The paper is "Distributional associations vs in-context reasoning" (arXiv 2406.03068). Equation,
table and lemma numbers in this package are the paper's. Nothing here uses the library's models:
the theorems are about the paper's simplified model (2), which `gradient_step` states.

Three pairs compare a formula with a measurement. `predict` and `measure` are the margins of
Theorem 1; `margins` returns both. `attention_logits` and `measure_attention_logits` are the
gradient of Theorem 2, exact and by automatic differentiation. `lemma_counts` and
`first_step_table` are exact moments of the process that `sample` draws from.

`allowed` and `margin_errors` evaluate the error bounds of Lemmas D.1 and D.2.

Letters of the paper:

    N         number of ordinary tokens 0 .. N-1; the trigger is token 0, the noise is token N
    T         length of a sequence z_1 .. z_T; the last token z_T is the trigger
    q, tau    the trigger and the noise token
    ybar      the token that follows the trigger in this sequence, unless the noise does
    alpha     probability of the noise after a trigger
    y         the target: tau with probability alpha, else ybar
    E, E~     embeddings of the current and of the previous token
    W_V, W_F, W_QK    value, feed-forward and query-key matrix
    V, V~     the value matrix in token coordinates: V = U^T W_V E and V~ = U^T W_V E~
    n_k, n~_k how often token k occurs among z_1 .. z_T and among z_1 .. z_{T-1}
    xi        logits (Theorem 1) or attention logits (Theorem 2)

Shape letters: B sequences, T tokens, D width of an embedded token, S = N + 1 tokens.
"""

from theory.one_step.attention_ordering import (
    Ordering as Ordering,
    Setting as Setting,
    attention_logits as attention_logits,
    attention_logits_limit as attention_logits_limit,
    measure_attention_logits as measure_attention_logits,
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
    Features as Features,
    Margins as Margins,
    Weights as Weights,
    loss as loss,
    margins as margins,
    measure as measure,
    negative_gradients as negative_gradients,
    predict as predict,
    sequence_features as sequence_features,
    theorem_1 as theorem_1,
)
from theory.one_step.noise_learning import (
    NoiseMatrices as NoiseMatrices,
    noise_matrices as noise_matrices,
    noise_recursion as noise_recursion,
)
from theory.one_step.trigger_process import (
    LEMMAS as LEMMAS,
    TABLE_3 as TABLE_3,
    CountMoments as CountMoments,
    GradientMoments as GradientMoments,
    PairMoments as PairMoments,
    Sequences as Sequences,
    first_step_table as first_step_table,
    first_step_table_limit as first_step_table_limit,
    lemma_counts as lemma_counts,
    lemma_counts_limit as lemma_counts_limit,
    pair_moments as pair_moments,
    sample as sample,
)
