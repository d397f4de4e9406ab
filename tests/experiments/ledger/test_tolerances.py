"""Verdicts that change with a rule's tolerance are listed, and others are not."""

from experiments.ledger import ledger as ledger_module
from experiments.ledger.item import Item, Paper
from experiments.ledger.rules import HELD, NOT_HELD, near
from experiments.site import tolerances


def test_a_verdict_that_needs_its_tolerance_is_listed(monkeypatch):
    def verdict_of(papers, records):
        """Judges the distance .03 by each item's tolerance."""
        (paper,) = papers.values()
        return [
            ledger_module.Row(paper, item, {}, [], HELD if by >= 0.03 else NOT_HELD, [])
            for item in paper.items
            for by in [item.rules["agree"].by]
        ]

    monkeypatch.setattr(tolerances, "ledger", verdict_of)
    items = tuple(
        Item(name, "", rules={"agree": near("x", "y", by)})
        for name, by in (("fragile", 0.05), ("strict", 0.02), ("sure", 0.3))
    )
    changed = tolerances.rows_that_change({"p": Paper("p", "", "", items)}, [])
    assert changed == {
        "p fragile": (HELD, NOT_HELD, HELD),
        "p strict": (NOT_HELD, NOT_HELD, HELD),
    }
