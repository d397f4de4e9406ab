r"""Tokens a second of each variant as a language model (MixiT papers, Appendix C of version A).

    python experiments/run.py --config=configs/text/speed.py:scale=small

scale  what                                           time                expected
tiny   n=16, a vocabulary of 128, 2 rounds            20 CPU seconds      it runs
small  4 layers, n=256, m=256, vocabulary 8,192       4 CPU minutes       Frozen-QK 1.02, MixiT 1.29
paper  12 layers, n=512, m=256, vocabulary 128,256    half an hour on GPU  1.24 and 1.32 claimed

Every variant runs once in each of five rounds. The training loop measures tokens per second without
the first dispatch, which compiles. `speed` is that over Standard's of the same round, `products`
the ratio of matrix products, which bounds it. Times need an idle machine. The text is the packaged
chain, of which few symbols of the vocabulary occur, so that neither reading nor a tokenizer plays a
part.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 240, "paper": 1800}
VARIANTS = ("standard", "frozen_qk", "frozen_mlp", "mixit", "random")
SIZES = dict(
    tiny=dict(width=16, layers=1, heads=2),
    small=dict(width=256, layers=4, heads=8),
    paper=dict(width=512, layers=12, heads=8),
)
TURNS = dict(
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
        "text/speed", arguments, name="speed", models=models, rules=rules, **TURNS[scale]
    )
