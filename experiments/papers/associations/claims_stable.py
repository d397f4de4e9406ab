"""Claims that results hold at other learning rates (Appendix B.6) and shares of noise (Section 3).

One seed that diverges at a rate from .001 to .03 refutes the claim. This rule is older than its
record, but we had seen fine-tuning diverge in runs that were not kept. By our notes, the rules on
other shares of noise were written before their runs. The commits cannot show it, so that row has
late=True, which marks rules that were written after numbers were known.
"""

from experiments.ledger.item import OUTSIDE, Cell, Item, cell_of
from experiments.ledger.rules import Rule, above, lost, near, of, share_of

RATE = {"optim.learning_rate": "0.03"}
FEWER_STEPS = {"recall.pretrain_steps": "1500", "train.steps": "3000"}
FINETUNE = "configs/associations/finetune.py:protocol=plateau"

STABLE = Item(
    "Appendix B.6, stability",
    "All results are stable at any learning rate from .001 to .03.",
    {
        "recall": cell_of("associations", "recall", "protocol=plateau"),
        "fine-tuning": Cell(FINETUNE, RATE | FEWER_STEPS),
    },
    {
        f"at rate .03 no seed of {cell} diverges": near(lost(cell), 0.0, 0.0)
        for cell in ("recall", "fine-tuning")
    },
    metric="p_noise",
    note="d = 64, N = 32, T = 64, batches of 64 sequences. Fine-tuning has 1,500 clean steps, then "
    "1,500 noisy ones, all at .03. The rows to the plateau fine-tune at .01. One seed that "
    "diverges refutes the claim; seeds that do not diverge cannot prove it.",
    late=True,
)


def at_alpha(alpha: str) -> dict[str, Rule]:
    """Returns the rules that the full model predicts noise as often as alpha, by means of F2."""
    cell = f"alpha = {alpha}"
    return {
        f"{cell}: the noise has a probability of alpha, within .1": near(
            of(cell, "p_noise"), float(alpha), 0.1
        ),
        f"{cell}: without F2 the noise is less than half as likely": above(
            share_of(of(cell, "p_noise"), 0.5), of(cell, "p_noise_without_f2")
        ),
        f"{cell}: without F2 the answer is likelier": above(
            of(cell, "p_correct_without_f2"), of(cell, "p_correct")
        ),
    }


ALPHAS = ("0.3", "0.7")
OTHER_NOISE = Item(
    "Section 3, other shares of noise",
    "Any other constant alpha leads to similar observations: the full model predicts the noise as "
    "often as in training, and without F2 it predicts the answer.",
    {
        f"alpha = {alpha}": Cell(
            "configs/associations/recall.py", {"task.alpha": alpha}, scales=("small",)
        )
        for alpha in ALPHAS
    },
    at_alpha(ALPHAS[0]) | at_alpha(ALPHAS[1]),
    metric="p_correct_without_f2",
    note="32 symbols, T = 64, d = 128, rate .1, 300 steps of 64 sequences.",
    late=True,
    flags=(OUTSIDE,),
)
