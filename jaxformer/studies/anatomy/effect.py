"""The measured effect of one part of a transformer on a score: a row of every anatomy table."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Effect:
    """The change of a score that one method attributes to one part, with its error over samples.

    Attributes:
        part: the address of the part, such as "block_1/mlp", "block_0/attn",
            "block_0/attn/head_2", or a group such as "queries and keys".
        method: the intervention, such as "mean ablation", "resampling", "patching",
            "path patching", "attribution", "rank 1 %", "rank 10 %", "direct".
        value: the change in the unit of the score; a positive value means that the part helps.
        half_width: the half width of the 95 % interval over samples (Student's t); nan for one.
        samples: the number of prompts or seeds.
        p_value: two-sided, of the hypothesis "no effect"; nan for one sample.
    """

    part: str
    method: str
    value: float
    half_width: float
    samples: int
    p_value: float
