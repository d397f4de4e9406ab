"""Do the results stand at other learning rates (Appendix B.6) and shares of noise (Section 3)?

A seed that diverges at one rate from .001 to .03 is enough to say no. That rule is older than its
record; that fine-tuning diverged was seen before in runs that were not kept. The rules on other
shares of noise were written before their runs.
"""

from experiments.ledger.item import Cell, Item, cell_of
from experiments.ledger.rules import above, lost, near, of, share_of

RATE = {"optim.learning_rate": "0.03"}
SHORT = {"recall.pretrain_steps": "1500", "train.steps": "3000"}
FINETUNE = "configs/associations/finetune.py:protocol=plateau"

STABLE = Item(
    "Appendix B.6, stability",
    "All results are stable at any learning rate from .001 to .03.",
    {
        "recall": cell_of("associations", "recall", "protocol=plateau"),
        "fine-tuning": Cell(FINETUNE, RATE | SHORT),
    },
    {
        "recall at .03: no seed diverges": near(lost("recall"), 0.0, 0.0),
        "fine-tuning at .03: no seed diverges": near(lost("fine-tuning"), 0.0, 0.0),
    },
    metric="p_noise",
    note="d = 64, N = 32, T = 64, batches of 64 sequences. Fine-tuning: 1,500 clean steps, then "
    "1,500 noisy ones, all at .03. The rows to the plateau fine-tune at .01.",
    late=True,
)

ALPHAS = ("0.3", "0.7")
OTHER_NOISE = Item(
    "Section 3, other shares of noise",
    "Any other constant alpha leads to similar observations: the full model says the noise as "
    "often as in training, and without F2 the answer.",
    {
        f"alpha = {alpha}": Cell(
            "configs/associations/recall.py", {"task.alpha": alpha}, scales=("small",)
        )
        for alpha in ALPHAS
    },
    {
        f"alpha = {alpha}: {text}": rule
        for alpha in ALPHAS
        for cell in (f"alpha = {alpha}",)
        for text, rule in {
            "the noise has this probability": near(of(cell, "p_noise"), float(alpha), 0.1),
            "without F2 the noise loses more than half of it": above(
                share_of(of(cell, "p_noise"), 0.5), of(cell, "p_noise_without_f2")
            ),
            "without F2 the answer is likelier": above(
                of(cell, "p_correct_without_f2"), of(cell, "p_correct")
            ),
        }.items()
    },
    metric="p_correct_without_f2",
    note="32 symbols, T = 64, d = 128, rate .1, 300 steps of 64 sequences.",
)
