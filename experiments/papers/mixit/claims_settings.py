"""How MixiT is set up decides what it can do: the scale of its mixing, the steps, the split.

Equation (2.3) gives W the variance 1/(nm); the authors' Llama code draws a deviation for each head
between 1/sqrt(n_h m) and 1/sqrt(m) ("spread"). "head", 1/sqrt(n_h m), is that of their GPT-2 file.
Which file made the tables of the algorithmic tasks is not said.
"""

from collections.abc import Callable

from experiments.cli.describe import label
from experiments.ledger.item import CODE_DIFFERS, OURS, Cell, Item
from experiments.ledger.rules import Rule, Side, above, near, of
from experiments.papers.mixit.claims_sweeps import FRESH, PATIENT, UNSEEN, fresh, small

# task -> the steps of its config at scale small
TASKS = {
    "retrieval": 4000,
    "dyck": 4000,
    "addition": 5000,
    "hops": 2000,
    "modular_addition": 6000,
}
LONGER = ("retrieval", "dyck", "hops")  # where MixiT was seen to learn still at the end
STEPS = (
    "MixiT still learns when its steps end: the rules read it with four times as many. What it "
    "would do with still more is not told."
)
ONE_HOP = "accuracy/hops=1"  # half of the questions of scale small ask for none: all answer them
OF_FEW_KINDS = ("retrieval", "dyck")  # whose shortest examples are in all sets
SEEN = ("retrieval", "dyck", "addition")  # of which numbers had been seen
NAMES = {
    "retrieval": "retrieval",
    "dyck": "Dyck-1",
    "addition": "decimal addition",
    "hops": "k-hop",
    "modular_addition": "modular addition",
}


def patient(task: str) -> dict[str, Cell]:
    """MixiT with four times the steps of its config; where seeds differ much, at the best rate."""
    rate = {"optim.learning_rate": "(1e-3,)"} if task == "retrieval" else {}
    return {PATIENT: small(task, "mixit", {"train.steps": str(4 * TASKS[task])} | rate)}


def score_of(task: str) -> Callable[[str], Side]:
    """A cell's accuracy, on unseen examples where the shortest ones are in all sets."""
    return fresh if task in OF_FEW_KINDS else of


def as_good_as(variant: str, other: str, by: float = 0.02, metric: str = "accuracy") -> Rule:
    """A variant loses at most `by` of the other's accuracy."""
    return above(of(variant, metric), of(other, metric), -by)


def study(task: str, steps: int) -> Item:
    """MixiT at three scales of mixing, and at a quarter or four times of the steps."""
    score = score_of(task)
    budgets = {"spread, steps / 4": steps // 4}
    enough = {
        f"{steps // 4} steps are enough": near(score("spread, steps / 4"), score("spread"), 0.02)
    }
    if task in LONGER:
        budgets["spread, steps x 4"] = 4 * steps
        longer = near(score("spread, steps x 4"), score("spread"), 0.02)
        enough[f"{steps} steps are enough: four times as many change at most .02"] = longer
    return Item(
        f"Equation (2.3), {NAMES[task]}",
        "Does mixing with the text's variance 1/(nm) train MixiT as well, in the steps of the "
        "config, as the mixing of the authors' Llama code?",
        {
            "spread": small(task, "mixit", {}),
            "theory": small(task, "mixit", {"model.mixing_scale": "theory"}),
            "head": small(task, "mixit", {"model.mixing_scale": "head"}),
        }
        | {name: small(task, "mixit", {"train.steps": str(n)}) for name, n in budgets.items()},
        {
            "the text's scale is as good as the code's": above(
                score("theory"), score("spread"), -0.02
            )
        },
        checks={
            "head, 1/sqrt(n_h m), is no better than it": above(
                score("spread"), score("head"), -0.02
            )
        }
        | enough,
        note="Three learning rates each; the row says so if an outer one is the best by more than "
        ".01 and below 99 %. What the text's scale would do with more steps is not told."
        + " Numbers of head and spread had been seen."
        * (task in SEEN),
        flags=(CODE_DIFFERS, OURS),
        late=task in SEEN,
    )


BITS = Item(
    "Equation (2.3), memorisation",
    "Does MixiT store as much with the text's variance 1/(nm) as with the mixing of the authors' "
    "Llama code?",
    {
        "spread": small("capacity", "mixit", {}),
        "theory": small("capacity", "mixit", {"model.mixing_scale": "theory"}),
        "head": small("capacity", "mixit", {"model.mixing_scale": "head"}),
    },
    {
        "the text's scale stores as much as the code's": above(
            of("theory", "bits_per_parameter"), of("spread", "bits_per_parameter"), -0.1
        )
    },
    checks={
        "head, 1/sqrt(n_h m), stores no more than it": above(
            of("spread", "bits_per_parameter"), of("head", "bits_per_parameter"), -0.1
        )
    },
    metric="bits_per_parameter",
    flags=(CODE_DIFFERS, OURS),
)

# The question itself: the key, or a symbol of its own.
ENOUGH = "frozen_qk, 4,000 steps"
AS_WRITTEN = Item(
    "Table 2, looking up by the key itself",
    "Frozen-QK retrieves on par with Standard; MixiT is far behind.",
    {
        name: small("retrieval", name, {"task.format": "paper"})
        for name in ("standard", "frozen_qk", "mixit")
    }
    | {
        ENOUGH: small(
            "retrieval",
            "frozen_qk",
            {"task.format": "paper", "train.steps": "4000", "optim.learning_rate": "(1e-2,)"},
        )
    },
    {
        "with 4,000 steps Frozen-QK retrieves": above(fresh(ENOUGH), 0.95),
        "with 4,000 steps Frozen-QK is on par with Standard": as_good_as(
            ENOUGH, "standard", 0.05, UNSEEN
        ),
        "with 4,000 steps MixiT stays .2 below Frozen-QK": above(
            fresh(ENOUGH), fresh("mixit"), by=0.2
        ),
    },
    checks={
        "with 1,000 steps Frozen-QK retrieves": above(fresh("frozen_qk"), 0.95),
        "with 1,000 steps Frozen-QK is on par with Standard": as_good_as(
            "frozen_qk", "standard", 0.05, UNSEEN
        ),
    },
    baseline="in_context_guess",
    note="So the text says. In the code that made the numbers a query has its own symbol, as in "
    "the row above, where MixiT has four times the steps. With a rate that falls to zero within "
    "1,000 steps Frozen-QK does not get there; the rules read it with the 4,000 of MixiT, at the "
    "better of its two rates, and each seed is at 99 % within 1,100 of them. Standard stops when "
    f"it knows the task. {FRESH}",
    late=True,
    flags=(CODE_DIFFERS,),
    also="version B, Table 1",
)

STUDY = (*(study(task, steps) for task, steps in TASKS.items()), BITS)

REDRAW = {"data.split": "redraw"}
DYCK_SPLIT = Item(
    "Table 1, Dyck-1, with the authors' split",
    "The paper's models stay at 95.8 to 97.4 % on Dyck-1. Does the authors' split keep models "
    "below 99 % that one law for all sets does not?",
    {
        name: Cell(f"configs/mixit/dyck.py:variant={variant}", changed, scales=("small",))
        for variant in ("standard", "frozen_qk", "mixit")
        for name, changed in ((variant, {}), (f"{variant}, authors' split", REDRAW))
    },
    {
        f"with {whose} {label(name)} {does} 99 %": rule
        for name in ("standard", "frozen_qk")
        for whose, does, rule in (
            ("one law for all sets", "reaches", above(of(name), 0.99)),
            ("their split", "stays below", above(0.99, of(f"{name}, authors' split"))),
        )
    },
    checks={
        "with their split Frozen-QK fails on strings of one and two symbols": above(
            0.9, of("frozen_qk, authors' split", "accuracy/length=1-2")
        ),
        "and is right on those of 33 and more": above(
            of("frozen_qk, authors' split", "accuracy/length=33-40"), 0.99
        ),
        "with one law MixiT gains .05": above(of("mixit"), of("mixit, authors' split"), 0.05),
    },
    note="Their generator redraws each training string that equals one of the 4,000 test strings. "
    "There are 6 strings of one or two symbols and 30 of up to four, so training has none of them, "
    "and what short strings it has are hardly ever balanced. A hash of the string says here which "
    "set it belongs to, and strings of which there are too few are in all. MixiT is below 99 % "
    "with both splits.",
    late=True,
    flags=(OURS,),
)
