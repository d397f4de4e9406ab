"""Synthetic indirect object identification: Figures 19 and 20, and whether the task is known."""

import functools

from experiments.ledger.item import OURS, Item, cell_of
from experiments.ledger.rules import above, of, trivial

config = functools.partial(cell_of, "associations", "ioi")
DEPTHS = (3, 4, 5, 6, 7)
RARER = {n: f"{n} layers, rarer" for n in DEPTHS}
SGD = {name: config(f"layers={n},reading=rarer") for n, name in RARER.items()}
MORE = "3 layers, more"
READINGS = {**{name: n for n, name in RARER.items()}, MORE: 3}
ADAM = {f"{n} layers": config(f"layers={n},optimizer=adam,reading=rarer") for n in (3, 4, 5)}
CONSTRUCTED = "The construction makes ybar the rarer successor, the prose the more frequent one."
GUESS = "Two tokens follow the trigger: a guess among them is right half of the time."
CLIP = "Gradients are clipped at 1, which the paper does not name. The rate is {}."
DIVERGED = (
    f"{CLIP.format('.03')} B.6 says that all results are stable at rates from .001 to .03; at "
    ".03 without the clip these runs diverged (not recorded)."
)

IOI_SGD = Item(
    "Figure 19",
    "Synthetic IOI with SGD: dropping the last MLP improves the accuracy at 3 to 7 layers.",
    SGD | {MORE: config("layers=3,reading=more")},
    {
        f"{name}: without the last MLP the accuracy is higher": above(
            of(name, f"accuracy_clean_gain_without_f{n}"), 0.0
        )
        for name, n in READINGS.items()
    },
    metric="p_correct",
    note=f"{CONSTRUCTED} {DIVERGED}",
    checks={
        f"{name}: without the last MLP the answer is likelier": above(
            of(name, f"p_correct_gain_without_f{n}"), 0.0
        )
        for name, n in READINGS.items()
    },
)
IOI_ADAM = Item(
    "Figure 20",
    "With Adam: the first matrix of the last MLP at 1 % of its rank improves test loss and "
    "accuracy with 3 and 4 layers; 5 layers fail to converge.",
    ADAM,
    {
        f"{n} layers: {text} at 1 % of the rank": rule
        for n in (3, 4)
        for text, rule in {
            "more often right": above(
                of(f"{n} layers", "accuracy_clean_at_0.01"), of(f"{n} layers", "accuracy_clean")
            ),
            "a lower loss": above(of(f"{n} layers", "loss"), of(f"{n} layers", "loss_at_0.01")),
        }.items()
    }
    | {
        "5 layers: the loss ends above that of 4": above(
            of("5 layers", "loss"), of("4 layers", "loss")
        )
    },
    metric="p_correct",
    note=f"{CONSTRUCTED} {CLIP.format('.001')} The clip may prevent the failure of 5 layers that "
    "the paper saw.",
    checks={
        f"{n} layers: the answer is likelier at 1 % of the rank": above(
            of(f"{n} layers", f"p_correct_gain/block_{n - 1}/mlp/in@0.01"), 0.0
        )
        for n in (3, 4)
    },
)
IOI_KNOWN = Item(
    "Beside Figure 19, guessing",
    "Does a network of 3 to 7 layers without its last MLP know more than which two tokens followed "
    "the trigger?",
    SGD,
    {
        f"{n} layers: without the last MLP it beats guessing a successor": above(
            of(name, f"accuracy_clean_without_f{n}"), 0.5
        )
        for n, name in RARER.items()
    },
    metric="p_correct",
    note=f"{GUESS} All seeds share 512 clean examples, whose own error, .02, no rule counts: "
    "that 3 layers hold, by .08, may be luck. Of the noisy set, who always says the noise is right "
    f"in .48. {DIVERGED}",
    checks={
        f"{n} layers, whole, noisy data: above always saying the noise": above(
            of(name, "accuracy"), trivial(name, "best_constant")
        )
        for n, name in RARER.items()
    },
    flags=(OURS,),
)
IOI_ADAM_KNOWN = Item(
    "Beside Figure 20, guessing",
    "With Adam, and the last MLP cut to 1 %: do 3 and 4 layers know more than that?",
    ADAM,
    {
        f"{n} layers: at 1 % it beats guessing a successor": above(
            of(f"{n} layers", "accuracy_clean_at_0.01"), 0.5
        )
        for n in (3, 4)
    },
    metric="accuracy_clean_at_0.01",
    note=f"{GUESS} {CLIP.format('.001')}",
    flags=(OURS,),
)
BEYOND_GUESSING = (IOI_KNOWN, IOI_ADAM_KNOWN)
