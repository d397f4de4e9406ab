"""Linear associative memory with noise (the associations paper: Theorem 3 and Figure 18).

The pair is `predict`, from three logits, and `measure`, from the whole matrix W; both give a
`Memory` along the flow. `random_embedding` measures Figure 18, for which there is no formula. The
memory is one matrix and is not built from the models' lines. The equations are in `flow`.
"""

from theory.associative_memory.flow import (
    KINDS as KINDS,
    Flow as Flow,
    Memory as Memory,
    asymptotic_constant as asymptotic_constant,
    cross_entropy as cross_entropy,
    gradient_flow as gradient_flow,
    measure as measure,
    predict as predict,
    probabilities as probabilities,
    singular_values as singular_values,
    truncated as truncated,
)
from theory.associative_memory.random_embedding import random_embedding as random_embedding
