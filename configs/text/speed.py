r"""Do frozen parts make training faster? (MixiT papers, version A, Appendix C)

    python experiments/run.py --config=configs/text/speed.py:scale=small

scale  sizes                                    time                expected tokens per second,
                                                                    relative to Standard
tiny   width 16, vocabulary 128, 2 rounds       20 CPU seconds      none: a test run
small  4 layers, width 256, 256 tokens,         4 CPU minutes       Frozen-QK 1.02, MixiT 1.29
       vocabulary 8,192, 5 rounds
paper  12 layers, width 512, 256 tokens,        half an hour        published: Frozen-QK 1.24,
       vocabulary 128,256, 5 rounds             on a GPU            MixiT 1.32

Every variant runs once in each round. `speed` is its number of tokens per second divided by that of
Standard in the same round. The first step, which compiles, is not counted. `products` is Standard's
FLOPs of matrix products divided by the variant's: the speed if a step did nothing else. MixiT also
saves the softmax. The machine must be idle. The text is the packaged bigram chain, so that neither
reading nor a tokenizer takes time; the chain uses few symbols of the vocabulary.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 240, "paper": 1800}
VARIANTS = ("standard", "frozen_qk", "frozen_mlp", "mixit", "random")
SIZES = dict(
    tiny=dict(width=16, layers=1, heads=2),
    small=dict(width=256, layers=4, heads=8),
    paper=dict(width=512, layers=12, heads=8),
)
ROUNDS = dict(
    tiny=dict(vocab=128, length=16, batch_size=4, steps=8, rounds=2, loss_chunk=0),
    small=dict(vocab=8192, length=256, batch_size=4, steps=20, rounds=5, loss_chunk=0),
    paper=dict(vocab=128_256, length=256, batch_size=512, steps=40, rounds=5, loss_chunk=4096),
)


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    scale = arguments["scale"]
    sizes = SIZES[scale] | dict(mlp_width=4 * SIZES[scale]["width"])
    models, rules = {}, {}
    for name in VARIANTS:
        mixer, rules[name] = common.VARIANTS[name]
        models[name] = dict(sizes, mixer=mixer, learned_positions=mixer == "mixit")
    return common.figure(
        "text/speed", arguments, name="speed", models=models, rules=rules, **ROUNDS[scale]
    )
