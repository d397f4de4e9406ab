"""Do frozen random queries and keys form an induction head? (MixiT papers, Figure 3)

    python experiments/run.py --config=configs/mixit/induction_head.py:variant=frozen_qk,scale=small

variant  frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) | standard |
         random (only embeddings are trained)

scale  sizes                                 time              expected attention of Frozen-QK
tiny   width 64, up to 6 pairs, one seed     20 CPU seconds    none: a test run
small  width 64, up to 8 pairs, 3 seeds,     40 CPU seconds    pairing .58 ± .02, induction
       2 learning rates                                        .923 ± .010 (over 8 seeds)
paper  width 1024, up to 30 pairs,           hours on a GPU    the paper claims that one forms
       256 symbols

The run trains on retrieval (configs/mixit/retrieval.py) and measures the attention of the chosen
networks on the test set. `pairing/layer 1` is the attention from a value in the context to its key;
`induction/layer 2` is the attention from the query to the answer. Both are those of the strongest
head of the layer. `pairing_by_chance` and `induction_by_chance` are their values for uniform
attention.

Four metrics give the accuracy when heads are cut in the layer of the strongest induction head:
`accuracy/strongest head cut` (.989 for Frozen-QK), `accuracy/answering heads cut` (.072), of all
heads that attend to the answer, `accuracy/weakest head cut` (.999) and `accuracy/all heads cut`
(.072). The figure shows the attention maps for one sequence.
experiments/look.py draws the same for any finished run of a decoder.
"""

from configs import common
from configs.mixit import retrieval

SECONDS = {"tiny": 20, "small": 40, "paper": 3 * 3600}


def get_config(arg: str = ""):
    variants = ("frozen_qk", "standard", "frozen_mlp", "random")
    arguments = common.parse(arg, variant=variants, scale=common.SCALES)
    retrieval_arguments = ",".join(f"{name}={value}" for name, value in arguments.items())
    config = retrieval.get_config(retrieval_arguments)
    config.name, config.recipe = "mixit/induction_head", "look"
    return config
