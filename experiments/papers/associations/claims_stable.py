"""Are the results stable at every learning rate from .001 to .03, as Appendix B.6 says?

A seed that diverges at one of these rates is enough to say no. The rule is older than its record;
that fine-tuning diverged was seen before in runs that were not kept.
"""

from experiments.ledger.item import Cell, Item, cell_of
from experiments.ledger.rules import lost, near

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
