"""Linear associative memory with noisy labels: Theorem 3 and Figure 18.

The paper is "Distributional associations vs in-context reasoning" (arXiv 2406.03068, Section 4.3
and Appendices G and H). `predict` integrates the three logits that differ: those of the right
label, the noise and any other label. `measure` integrates the whole matrix W. Both return a
`Memory` along the gradient flow. `KINDS` names the two forms in which W is integrated.
`random_embedding` simulates Figure 18, which has no formula. The memory is one matrix, so nothing
here uses the library's models.

Letters of the paper: n inputs, labels 1 .. n and the noise label n + 1; alpha the probability of
the noise; e and u input and output embeddings; W the memory. Shape letters: N inputs, J = N + 1
labels, D embedding dimension.
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
