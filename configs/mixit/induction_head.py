"""Do frozen random queries and keys form an induction head? (MixiT papers, Figure 3)

    python experiments/run.py --config=configs/mixit/induction_head.py:variant=frozen_qk,scale=small

variant  frozen_qk | standard | frozen_mlp | random

scale  what                                  time              expected
tiny   retrieval, n=64, M=6, one seed        20 CPU seconds    it runs
small  n=64, M=8, 3 seeds, 2 rates           40 CPU seconds    the strongest heads of Frozen-QK:
                                                               .58 +- .02 and .923 +- .010 (8 seeds)
paper  n=1024, M=30, V=256                   hours on a GPU    the claim

Trains on retrieval as in configs/mixit/retrieval.py, then measures the attention of the chosen
members on the test set. An induction head has two numbers, each of the strongest head of a layer:
`pairing/layer 1`, attention from the answer in the context to its key, and `induction/layer 2`,
from the query to the answer. Uniform attention has `pairing_by_chance` and `induction_by_chance`.
`accuracy/strongest head cut`, `weakest head cut` and `all heads cut` are the accuracies without
heads in the layer of the strongest induction head: .989, .999 and .072 with Frozen-QK.
The figure shows the maps of one sequence. look.py shows the same for any finished decoder run.
"""

from configs import common
from configs.mixit import retrieval

SECONDS = {"tiny": 20, "small": 40, "paper": 3 * 3600}


def get_config(arg: str = ""):
    variants = ("frozen_qk", "standard", "frozen_mlp", "random")
    arguments = common.parse(arg, variant=variants, scale=common.SCALES)
    words = ",".join(f"{name}={value}" for name, value in arguments.items())
    config = retrieval.get_config(words)
    config.name, config.recipe = "mixit/induction_head", "look"
    return config
