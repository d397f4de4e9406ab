"""A claim of the MixiT paper about retrieval, tested by cutting heads of trained networks."""

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import Side, above, of
from experiments.papers.mixit.claims_common import LONGER, longer_mixit

FROZEN = "frozen_qk"


def accuracy(cut: str) -> Side:
    """Returns a side: the test accuracy of Frozen-QK with cut heads in its induction layer."""
    return of(FROZEN, f"accuracy/{cut}")


WITHOUT_HEAD = Item(
    "Section 4, without the induction head",
    "Retrieval requires an induction head, which Frozen-QK forms and MixiT cannot form.",
    {FROZEN: Cell("configs/mixit/induction_head.py:variant=frozen_qk")} | longer_mixit("retrieval"),
    {
        "Frozen-QK loses .2 without its strongest induction head": above(
            of(FROZEN), accuracy("strongest head cut"), 0.2
        ),
        "without its strongest induction head it is .1 below itself without the weakest head of "
        "the same layer": above(accuracy("weakest head cut"), accuracy("strongest head cut"), 0.1),
    },
    metric="accuracy/strongest head cut",
    note="In each seed the strongest induction head is the one of layer 2 that gives the answer "
    "most attention. A cut sets the output of a head to zero and changes nothing else. The rules "
    "were written before any head was cut. One head does not decide: the other heads of its layer "
    "take over. Only the layer as a whole is needed, as the checks show.",
    checks={
        "without its strongest induction head Frozen-QK is at most .05 above MixiT after 16,000 "
        "steps": above(of(LONGER), accuracy("strongest head cut"), -0.05),
        "without all heads of layer 2 Frozen-QK is at most .05 above MixiT after 16,000 steps": (
            above(of(LONGER), accuracy("all heads cut"), -0.05)
        ),
        "Frozen-QK is at most .05 better than without its weakest head": above(
            accuracy("weakest head cut"), of(FROZEN), -0.05
        ),
    },
)

OF_VERSION_A = (WITHOUT_HEAD,)
