"""ICLR 2025: feed-forward layers store distributional associations, attention reasons in context.

Numbers of recall, random embeddings and the theory were seen before their rules were written.
"""

from experiments.papers.item import Cell, Item, Paper
from experiments.papers.rules import REFUTED, Rule, above, near, of

WEIGHTS = "pretrained weights"


def config(file: str, arguments: str = "") -> Cell:
    return Cell(f"configs/associations/{file}.py" + (f":{arguments}" if arguments else ""))


RECALL = {"recall": config("recall")}
SURGERY = Item(
    "Figure 3",
    "The full model says the noise half of the time on clean data; without F2 it is right (0.98).",
    RECALL,
    (
        above(
            "without F2 the answer is likelier",
            of("recall", "p_correct_without_f2"),
            of("recall", "p_correct"),
            by=0.2,
        ),
        above("without F2 the noise is gone", 0.1, of("recall", "p_noise_without_f2")),
        above(
            "without F1 the noise stays",
            of("recall", "p_noise_without_f1"),
            of("recall", "p_noise"),
        ),
        above("the noise is learned first", of("recall", "noise_first"), 0.5),
        near("without F2 correct with 0.98", of("recall", "p_correct_without_f2"), 0.98, 0.02),
    ),
    metric="p_correct_without_f2",
    note="Small scale: 32 symbols, T = 64, d = 128 instead of 65, 256, 256.",
    late=True,
)

ATTENTION = Item(
    "Figure 4",
    "Attention of the second layer looks at what follows the trigger and avoids the noise.",
    RECALL | {"finetune": config("finetune")},
    (
        above(
            "trained with noise: target above noise",
            of("recall", "attention_target"),
            of("recall", "attention_noise"),
            by=0.3,
        ),
        above(
            "fine-tuned: target above noise",
            of("finetune", "attention_target"),
            of("finetune", "attention_noise"),
            by=0.3,
        ),
    ),
    metric="attention_target",
    late=True,
)

MEMORIES = Item(
    "Figure 7",
    "F2 maps the trigger to the noise; values copy; the first layer attends to the previous token.",
    RECALL,
    (
        above("F2 says the noise for the trigger", of("recall", "margin_f2"), 0.0),
        above("layer 1 looks at the previous token", of("recall", "attention_previous"), 0.5),
    ),
    metric="margin_f2",
    late=True,
)

FINETUNE = Item(
    "Figure 8",
    "The noise is near 1 within steps and then nearly one half, from scratch and in fine-tuning.",
    RECALL | {"finetune": config("finetune")},
    (
        near("from scratch: one half at the end", of("recall", "p_noise"), 0.5, 0.1),
        near("fine-tuned: one half at the end", of("finetune", "p_noise"), 0.5, 0.1),
        above(
            "fine-tuned: without F2 the answer is likelier",
            of("finetune", "p_correct_without_f2"),
            of("finetune", "p_correct"),
            by=0.2,
        ),
    ),
    metric="p_noise",
)

TRIGGERS = Item(
    "Figure 9",
    "With several triggers each finds its own target: the memory is diagonal.",
    {"triggers": config("triggers")},
    (
        above(
            "attention finds the targets",
            of("triggers", "attention_target"),
            of("triggers", "attention_noise"),
            by=0.2,
        ),
        above(
            "without F2 the answer is likelier",
            of("triggers", "p_correct_without_f2"),
            of("triggers", "p_correct"),
            by=0.1,
        ),
    ),
    metric="attention_target",
)


def architecture(name: str, layers: str, claim: str, rules: tuple[Rule, ...]) -> Item:
    cells = {"run": config("architectures", f"layers={layers}")}
    return Item(name, claim, cells, rules, metric="p_correct")


FULL, NO_F1, NO_F2 = (
    of("run", f"p_correct{ending}") for ending in ("", "_without_f1", "_without_f2")
)
ARCHITECTURES = (
    architecture(
        "Figure 10",
        "mlp_mlp",
        "F1, F2 both MLPs: without F2 correct near 1, without F1 the noise.",
        (
            above("without F2 correct", NO_F2, FULL, by=0.2),
            above("without F1 the noise", of("run", "p_noise_without_f1"), of("run", "p_noise")),
        ),
    ),
    architecture(
        "Figure 11",
        "mlp_linear",
        "F1 an MLP, F2 linear: both cuts help, and that of F1 has the lower test loss.",
        (
            above("without F2 better", NO_F2, FULL),
            above("without F1 better", NO_F1, FULL),
            above(
                "without F1 the lower loss",
                of("run", "loss_without_f2"),
                of("run", "loss_without_f1"),
            ),
        ),
    ),
    architecture(
        "Figure 12",
        "linear_mlp",
        "F1 linear, F2 an MLP: only the cut of F2 helps.",
        (
            above("without F2 better", NO_F2, FULL, by=0.1),
            above("without F1 the noise", of("run", "p_noise_without_f1"), of("run", "p_noise")),
        ),
    ),
    Item(
        "Figure 13",
        "No feed-forward layers: Wo of layer 1 at 5 % of its rank helps a little, 1 % destroys.",
        {"run": config("architectures", "layers=none_none")},
        metric="p_correct",
        note="The figure of the run shows p(correct) against the rank kept.",
    ),
)

EMBEDDINGS = Item(
    "Figure 18",
    "Random embeddings: a memory cut to rank 2 has a lower loss on pure labels than the full one.",
    {"memory": config("random_embeddings")},
    (
        above(
            "d = 12: rank 2 below full",
            of("memory", "loss/d=12/full"),
            of("memory", "loss/d=12/rank 2"),
        ),
        above(
            "d = 8: rank 2 below full",
            of("memory", "loss/d=8/full"),
            of("memory", "loss/d=8/rank 2"),
        ),
    ),
    metric="loss/d=12/rank 2",
    note="Rate and steps are not given. G.1 calls it Figure 5.",
    late=True,
)


def ioi(name: str, claim: str, optimiser: str, layers: tuple[str, ...]) -> Item:
    cells = {
        f"{n} layers, {reading}": config("ioi", f"layers={n},reading={reading}")
        for n in layers
        for reading in ("rarer", "more")
    }
    rules = tuple(
        above(
            f"{cell}: without the last MLP the answer is likelier",
            of(cell, f"p_correct_without_f{cell[0]}"),
            of(cell, "p_correct"),
        )
        for cell in cells
    )
    note = (
        "The construction makes ybar the rarer successor, the prose the more frequent one. "
        + optimiser
    )
    return Item(name, claim, cells, rules, metric="p_correct", note=note)


IOI = ioi(
    "Figure 19",
    "Synthetic IOI with SGD: dropping the last MLP improves the accuracy at 3 to 7 layers.",
    "Both readings are run.",
    ("3", "4"),
)

THEORY = {"theory": config("theory")}


def statement(name: str, claim: str, group: str, note: str) -> Item:
    rules = (
        near("rows that fail", of("theory", f"fail/{group}"), 0.0, 0.0, no=REFUTED),
        near(
            "rows that need another constant",
            of("theory", f"corrected/{group}"),
            0.0,
            0.0,
            no=REFUTED,
        ),
    )
    return Item(name, claim, THEORY, rules, f"hold/{group}", note=note, late=True)


STATEMENTS = (
    statement(
        "Theorem 1",
        "After one step the feed-forward margin is eta alpha and that of attention eta "
        "alpha_hat / N.",
        "Theorem 1",
        "As stated, attention's is twice that; FF's is alpha - (1 - alpha)/N.",
    ),
    statement(
        "Theorem 2",
        "Attention prefers what follows the trigger (3), and the answer to the noise (4).",
        "Theorem 2",
        "(4) has the wrong sign if ybar may be the trigger.",
    ),
    statement(
        "Theorem 3",
        "The noise of a full memory stays; of a truncated one it decays as t^(-1/2).",
        "Theorem 3",
        "The rate is right; the constant is 5/(18(1-alpha)) for (45), 4/(3(1-alpha)) for W.",
    ),
    statement(
        "Table 3",
        "Means and variances of the first gradient step.",
        "Table 3",
        "Rows 4 to 10 of sigma^2 use 1/(N+1) for 1/(N+1)^2; mu(j,j) has a sign.",
    ),
    statement(
        "Table 4",
        "Lemmas E.1 to E.7: moments of the counts.",
        "Lemma",
        "E.1's second moment lost a factor alpha.",
    ),
    statement(
        "Appendix B.3",
        "The noise logit converges without overshoot for eta <= 1/(alpha(1-alpha)).",
        "B.3",
        "For alpha <= 1/2 only, as the text implies.",
    ),
)

PRETRAINED = tuple(
    Item(name, claim, needs=WEIGHTS)
    for name, claim in {
        "Table 1": "LASER on Pythia-1B: the .499 -> .027, Spain .079 -> .300 after "
        '"Madrid is located in".',
        "Table 2": "GSM8K: LASER helps with one and two shots (Phi-3 56.0 -> 66.1) and costs at "
        "eight.",
        "Figure 5": "Pythia-1B learns the generic word first; LASER raises IO over the from 2.3 "
        "to 12.3.",
        "Figure 14": "Pythia ranks the among its first words after about 10 steps.",
        "Figure 15": "Pythia-410M and 1B: LASER lowers the and keeps IO.",
        "Figure 16": "Pythia-1B to 2.8B: the same on 20 facts of Table 5.",
        "Figure 17": "GPT-2 small: truncating the MLP input of layers 9 to 11 makes Mary first.",
    }.items()
)

PAPER = Paper(
    "associations",
    "Distributional Associations vs In-Context Reasoning",
    "ICLR 2025",
    (
        SURGERY,
        ATTENTION,
        MEMORIES,
        FINETUNE,
        TRIGGERS,
        *ARCHITECTURES,
        EMBEDDINGS,
        IOI,
        *STATEMENTS,
        *PRETRAINED,
    ),
)
