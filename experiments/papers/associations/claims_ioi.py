"""Claims on synthetic indirect object identification (IOI): Figures 19 and 20, and guessing.

At the end of a sequence two tokens have followed the trigger: one once, the other twice. In names
of cells, "rarer" and "more" say which of them is the answer. `checks` are further rules that decide
nothing.
"""

import functools

from experiments.ledger.item import OURS, Item, cell_of
from experiments.ledger.rules import above, of, trivial

config = functools.partial(cell_of, "associations", "ioi")
DEPTHS = {f"{n} layers, rarer": n for n in (3, 4, 5, 6, 7)}
SGD = {name: config(f"layers={n},reading=rarer") for name, n in DEPTHS.items()}
MORE_FREQUENT = "3 layers, more"
ALL_DEPTHS = DEPTHS | {MORE_FREQUENT: 3}
ADAM = {f"{n} layers": config(f"layers={n},optimizer=adam,reading=rarer") for n in (3, 4, 5)}
READINGS_NOTE = (
    "The answer is the trigger's rarer successor in the paper's construction, and the more "
    "frequent one in its prose."
)
GUESS = "Two tokens follow the trigger, so a guess among them is right half of the time."
CLIPPING_NOTE = "Gradients are clipped at 1, which the paper does not mention; the rate is {}."
SGD_NOTE = (
    f"{CLIPPING_NOTE.format('.03')} Its Appendix B.6 calls all results stable at rates from .001 "
    "to .03. Without clipping, these runs diverged at .03 (not recorded)."
)

IOI_SGD = Item(
    "Figure 19",
    "Synthetic IOI with SGD: dropping the last MLP improves the accuracy at 3 to 7 layers.",
    SGD | {MORE_FREQUENT: config("layers=3,reading=more")},
    {
        f"{name}: dropping the last MLP raises the accuracy": above(
            of(name, f"accuracy_clean_gain_without_f{n}"), 0.0
        )
        for name, n in ALL_DEPTHS.items()
    },
    metric="p_correct",
    note=f"{READINGS_NOTE} {SGD_NOTE}",
    checks={
        f"{name}: dropping the last MLP makes the answer likelier": above(
            of(name, f"p_correct_gain_without_f{n}"), 0.0
        )
        for name, n in ALL_DEPTHS.items()
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
    "With Adam and 3 or 4 layers, keeping 1 % of the rank of the last MLP's first matrix improves "
    "test loss and accuracy; 5 layers fail to converge.",
    ADAM,
    IOI_ADAM_RULES
    | {
        "the loss of 5 layers ends above that of 4 layers": above(
            of("5 layers", "loss"), of("4 layers", "loss")
        )
    },
    metric="p_correct",
    note=f"{READINGS_NOTE} {CLIPPING_NOTE.format('.001')} Clipping may prevent the failure of 5 "
    "layers that the paper reports.",
    checks={
        f"{n} layers: the last MLP at 1 % of its rank makes the answer likelier": above(
            of(f"{n} layers", f"p_correct_gain/block_{n - 1}/mlp/in@0.01"), 0.0
        )
        for n in (3, 4)
    },
)
IOI_SGD_GUESS = Item(
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
    note=f"{GUESS} All seeds share 512 clean examples. Their standard error, .02, is in no rule. 3 "
    "layers beat a guess by .08, which may be chance. On the noisy set, always predicting the "
    f"noise is right in .48. {SGD_NOTE}",
    checks={
        f"{n} layers: on noisy data the whole network beats always predicting the noise": above(
            of(name, "accuracy"), trivial(name, "best_constant")
        )
        for name, n in DEPTHS.items()
    },
    flags=(OURS,),
)
IOI_ADAM_GUESS = Item(
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
    note=f"{GUESS} {CLIPPING_NOTE.format('.001')}",
    flags=(OURS,),
)
BEYOND_GUESSING = (IOI_SGD_GUESS, IOI_ADAM_GUESS)
