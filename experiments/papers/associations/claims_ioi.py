"""Claims on synthetic indirect object identification: Figures 19 and 20, and guessing beside them.

At the end of a sequence two tokens have followed the trigger: one once, the other twice.
"""

import functools

from experiments.ledger.item import OURS, Item, cell_of
from experiments.ledger.rules import above, of, trivial

config = functools.partial(cell_of, "associations", "ioi")
DEPTHS = {f"{n} layers, rarer": n for n in (3, 4, 5, 6, 7)}
SGD = {name: config(f"layers={n},reading=rarer") for name, n in DEPTHS.items()}
MORE = "3 layers, more"
READINGS = DEPTHS | {MORE: 3}
ADAM = {f"{n} layers": config(f"layers={n},optimizer=adam,reading=rarer") for n in (3, 4, 5)}
READINGS_NOTE = (
    "The answer is the rarer successor in the paper's construction, the more frequent one in its "
    "prose."
)
GUESS = "Two tokens follow the trigger, so that a guess among them is right half of the time."
CLIP = "Gradients are clipped at 1, which the paper does not mention; the rate is {}."
DIVERGED = (
    f"{CLIP.format('.03')} Its Appendix B.6 calls all results stable at rates from .001 to .03; at "
    ".03 without the clip these runs diverged (not recorded)."
)

IOI_SGD = Item(
    "Figure 19",
    "Synthetic IOI with SGD: dropping the last MLP improves the accuracy at 3 to 7 layers.",
    SGD | {MORE: config("layers=3,reading=more")},
    {
        f"{name}: dropping the last MLP raises the accuracy": above(
            of(name, f"accuracy_clean_gain_without_f{n}"), 0.0
        )
        for name, n in READINGS.items()
    },
    metric="p_correct",
    note=f"{READINGS_NOTE} {DIVERGED}",
    checks={
        f"{name}: dropping the last MLP makes the answer likelier": above(
            of(name, f"p_correct_gain_without_f{n}"), 0.0
        )
        for name, n in READINGS.items()
    },
)
IOI_ADAM_RULES = {}
for cell in ("3 layers", "4 layers"):
    IOI_ADAM_RULES |= {
        f"{cell}: the last MLP at 1 % of its rank raises the accuracy": above(
            of(cell, "accuracy_clean_at_0.01"), of(cell, "accuracy_clean")
        ),
        f"{cell}: the last MLP at 1 % of its rank lowers the loss": above(
            of(cell, "loss"), of(cell, "loss_at_0.01")
        ),
    }
IOI_ADAM = Item(
    "Figure 20",
    "With Adam: the first matrix of the last MLP at 1 % of its rank improves test loss and "
    "accuracy with 3 and 4 layers; 5 layers fail to converge.",
    ADAM,
    IOI_ADAM_RULES
    | {
        "the loss of 5 layers ends above that of 4 layers": above(
            of("5 layers", "loss"), of("4 layers", "loss")
        )
    },
    metric="p_correct",
    note=f"{READINGS_NOTE} {CLIP.format('.001')} The clip may prevent the failure of 5 layers that "
    "the paper saw.",
    checks={
        f"{n} layers: the last MLP at 1 % of its rank makes the answer likelier": above(
            of(f"{n} layers", f"p_correct_gain/block_{n - 1}/mlp/in@0.01"), 0.0
        )
        for n in (3, 4)
    },
)
IOI_KNOWN = Item(
    "Beside Figure 19, guessing",
    "Does a network of 3 to 7 layers without its last MLP beat a guess among the two tokens that "
    "followed the trigger?",
    SGD,
    {
        f"{n} layers: without the last MLP the accuracy beats a guess": above(
            of(name, f"accuracy_clean_without_f{n}"), 0.5
        )
        for name, n in DEPTHS.items()
    },
    metric="p_correct",
    note=f"{GUESS} All seeds share 512 clean examples, whose error, .02, no rule includes; 3 "
    "layers beat a guess by .08, which may be chance. On the noisy set, always predicting the "
    f"noise is right in .48. {DIVERGED}",
    checks={
        f"{n} layers: on noisy data the whole network beats always predicting the noise": above(
            of(name, "accuracy"), trivial(name, "best_constant")
        )
        for name, n in DEPTHS.items()
    },
    flags=(OURS,),
)
IOI_ADAM_KNOWN = Item(
    "Beside Figure 20, guessing",
    "With Adam and the last MLP at 1 % of its rank, do 3 and 4 layers beat a guess among the two "
    "tokens that followed the trigger?",
    ADAM,
    {
        f"{n} layers: with the last MLP at 1 % of its rank the accuracy beats a guess": above(
            of(f"{n} layers", "accuracy_clean_at_0.01"), 0.5
        )
        for n in (3, 4)
    },
    metric="accuracy_clean_at_0.01",
    note=f"{GUESS} {CLIP.format('.001')}",
    flags=(OURS,),
)
BEYOND_GUESSING = (IOI_KNOWN, IOI_ADAM_KNOWN)
