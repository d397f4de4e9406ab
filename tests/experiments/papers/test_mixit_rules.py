"""Rules of the MixiT items hold for a true sentence and reject a wrong alternative."""

import math

from experiments.ledger.item import Item
from experiments.ledger.rules import HELD, NOT_HELD, Rule
from experiments.papers import PAPERS
from jaxformer.stats.differences import Number

ITEMS = {item.name: item for name in ("mixit", "random_attention") for item in PAPERS[name].items}
ERROR = 0.002  # between seeds, and of the test set


def judged(item: Item, fragment: str, *numbers: float) -> str:
    """Returns the verdict of the only rule or check whose sentence contains the fragment.

    The numbers are those of the sides that name a cell, left side first.
    """
    rules = item.rules | item.checks
    (sentence,) = [sentence for sentence in rules if fragment in sentence]
    remaining = iter(numbers)

    def read(side):
        if not side.metric:
            return Number(side.value)
        value = next(remaining)
        return Number(value) if side.is_baseline else Number(value, ERROR, 3, ERROR)

    verdict = rules[sentence].judge(sentence, read).verdict
    assert not [*remaining], "more numbers than sides"
    return verdict


def failures(cases) -> list[str]:
    """Returns the cases (item, fragment, right, wrong) whose two verdicts are not held, failed."""
    verdicts = {
        (item.name, fragment): (judged(item, fragment, *right), judged(item, fragment, *wrong))
        for item, fragment, right, wrong in cases
    }
    return [f"{case}: {pair}" for case, pair in verdicts.items() if pair != (HELD, NOT_HELD)]


# item, fragment of its rule's sentence, numbers that make the sentence true, and false
CASES = [
    ("Equation (2.3), retrieval", "text's scale is as good", (0.36, 0.36), (0.03, 0.36)),
    ("Equation (2.3), retrieval", "is no better than with spread", (0.36, 0.03), (0.03, 0.36)),
    ("Equation (2.3), retrieval", "within .02 of MixiT after 16,000", (0.41, 0.41), (0.60, 0.41)),
    ("Equation (2.3), k-hop", "within .02 of MixiT after 2,000", (0.70, 0.70), (0.66, 0.70)),
    ("Equation (2.3), memorisation", "stores as much", (1.30, 1.33), (1.0, 1.33)),
    ("Table 1, Dyck-1, with the authors' split", "Frozen-QK stays below", (0.965,), (0.9995,)),
    ("Table 1, Dyck-1, with the authors' split", "sets Frozen-QK reaches", (1.0,), (0.965,)),
    ("Table 1, Dyck-1, with the authors' split", "sets Standard reaches", (1.0,), (0.965,)),
    ("Table 1, Dyck-1", "Standard reaches 95 %", (0.99,), (0.6,)),
    ("Table 1, Dyck-1", "strings MixiT is as good", (0.995, 1.0), (0.945, 1.0)),
    ("Table 1, Dyck-1, with the authors' split", "one and two symbols", (0.5,), (0.99,)),
    ("Table 1, Dyck-1", "Frozen-QK is as good", (0.995, 1.0), (0.965, 1.0)),
    ("Table 1, modular addition, from few pairs", "MixiT generalises from the", (0.99,), (0.94,)),
    ("Table 1, modular addition, from few pairs", "MixiT generalises from 11", (0.99,), (0.94,)),
    ("Table 1, memorisation, of a table of half the capacity", "MixiT", (0.995,), (0.9,)),
    ("Table 1, decimal addition, more digits", "MixiT is as good", (0.99, 1.0), (0.93, 1.0)),
    ("Table 2, k-hop, composed", "on four hops Frozen-QK", (0.95,), (0.6,)),
    (
        "Table 2, k-hop, composed",
        "MixiT is at most .02 above the predictor",
        (0.60, 0.60),
        (0.60, 0.75),
    ),
    ("Table 2, k-hop, composed", "24,000 steps MixiT is .2 below", (0.95, 0.6), (0.95, 0.85)),
    ("Table 2, k-hop", "Frozen-QK is on par", (0.99, 1.0), (0.9, 1.0)),
    ("Table 2, k-hop", "Frozen-MLP is on par", (0.99, 1.0), (0.9, 1.0)),
    ("Table 2, k-hop", "on one-hop questions, after 8,000 steps MixiT", (0.99, 0.72), (0.99, 0.85)),
    (
        "Table 2, k-hop",
        "over all questions, after 8,000 steps MixiT",
        (0.99, 0.72),
        (0.99, 0.85),
    ),
    ("Table 2, retrieval", "16,000 steps MixiT is .2", (0.99, 0.6), (0.99, 0.85)),
    ("Table 2, k-hop, composed", "on two hops MixiT", (0.54,), (0.8,)),
    ("Table 2, k-hop, composed", "on one hop MixiT", (0.54,), (0.76,)),
    ("Table 2, retrieval", "Frozen-QK reaches", (0.97,), (0.58,)),
    ("Table 2, looking up by the key itself", "MixiT is .2 below", (0.97, 0.4), (0.58, 0.4)),
    ("Table 2, looking up by the key itself", "4,000 steps Frozen-QK reaches", (0.97,), (0.92,)),
    ("Table 2, looking up by the key itself", "4,000 steps Frozen-QK is on", (0.97, 1), (0.92, 1)),
    ("Table 2, retrieval", "Frozen-MLP is on par", (0.99, 1.0), (0.9, 1.0)),
    ("Table 1, decimal addition", "Standard reaches 95 %", (0.99,), (0.6,)),
    ("Table 1, decimal addition", "on sums that carry four times in a row MixiT", (0.99,), (0.6,)),
    ("Table 1, Dyck-1", "16,000 steps MixiT reaches", (0.96,), (0.93,)),
    ("Table 1, Dyck-1, with the authors' split", "Standard stays below", (0.96,), (0.9995,)),
    ("Table 3, on tiny Shakespeare", "closer to Standard", (0.3, 0.1), (0.1, 0.3)),
    ("Table 3, on tiny Shakespeare", "bfloat16", (2.32, 2.32), (2.36, 2.32)),
    ("Table 4", "Standard stores more than MixiT", (2.98, 2.18), (2.1, 2.18)),
    ("Table 4", "Frozen-QK and MixiT store alike", (2.25, 2.18), (2.25, 1.7)),
    # the numbers that Table 2 prints for M=30 are not below what fails here
    ("Figure 2", "24,000 steps Frozen-QK is .1 below Standard", (1.0, 0.65), (1.0, 0.97)),
    ("Figure 2", "24,000 steps Frozen-QK is .1 below Frozen-MLP", (1.0, 0.65), (1.0, 0.97)),
    ("Figure 2", "24,000 steps Standard reaches", (0.99,), (0.13,)),
    ("Figure 2", "after 6,000 steps Frozen-QK is .1 below Standard", (1.0, 0.65), (0.12, 0.18)),
    ("Figure 2", "Standard is at most .02 above a guess", (0.11, 0.12), (0.11, 0.5)),
    ("Figure 2", "1,500 steps Frozen-QK is .1 below", (1.0, 0.65), (1.0, 0.97)),
    ("Figure 2", "6,000 steps Frozen-QK reaches", (0.99,), (0.42,)),
    ("Figure 2", "Frozen-MLP is on par", (1.0, 1.0), (0.9, 1.0)),
    ("Figure 2", ".2 below Frozen-QK", (0.95, 0.2), (0.3, 0.2)),
    ("Figure 2", ".2 below Frozen-MLP", (0.95, 0.2), (0.3, 0.2)),
    # the copying plateau of too few steps is no verdict on frozen queries and keys
    ("Figure 2", "6,000 steps Standard reaches", (0.999,), (0.214,)),
    ("Figure 2", "6,000 steps MixiT loses more than", (0.9, 0.4), (0.9, 0.85)),
    ("Figure 2", "1,500 steps MixiT loses more than", (0.9, 0.4), (0.9, 0.85)),
    ("Equation (2.3)", "with the printed variance", (0.0,), (9.0,)),
    ("Equation (2.3)", "with variance 1/(nm)", (0.02,), (9.0,)),
    ("Table 5, addition", "64 heads beat 4", (0.99, 0.6), (0.58, 0.6)),
    ("Table 5, addition", "64 heads beat 16", (0.99, 0.6), (0.58, 0.6)),
    # Table 4's own bits pass; more than half of Standard's is not a third.
    ("Section 1, thirds of the capacity", "Frozen-MLP keeps 1", (1.13, 2.98), (1.16, 2.09)),
    ("Section 1, thirds of the capacity", "MixiT keeps 2", (2.18, 2.98), (1.71, 2.09)),
    ("Appendix C, throughput at n = 256", "MixiT trains faster", (1.2, 1.1), (1.1, 1.2)),
    ("Appendix C, throughput at n = 256", "Frozen-QK trains 1.24", (1.25,), (1.05,)),
    ("Section 5, litmus test", "as good as Standard in Dyck-1", (0.99, 1.0), (0.93, 1.0)),
    (
        "Section 5, litmus test",
        "in k-hop, on one-hop questions",
        (1.0, 0.72),
        (1.0, 0.9),
    ),
    ("Section 5, litmus test", "in k-hop, over all questions", (1.0, 0.72), (1.0, 0.9)),
    ("Section 5, litmus test", "in retrieval MixiT is .2 below", (1.0, 0.6), (1.0, 0.9)),
    # MixiT with the same MLP, .51, is no better than the best linear mixing, .52
    ("Theorem 5.1", "below that of any linear mixing", (0.52, 0.35), (0.52, 0.51)),
    ("Theorem 5.1", "MLP is .1 below MixiT's", (0.51, 0.35), (0.40, 0.35)),
    ("Theorem 5.1", "without positions 64 frozen heads", (0.05,), (0.70,)),
    # a bigram model
    ("Section 5, MixiT's perplexity", "half of the way", (0.05,), (0.316,)),
    # tokens that stay as they are, and tokens on one line
    ("Section 2, rank collapse", "10 two tokens of the equation", (0.5,), (1.0,)),
    ("Section 2, rank collapse", "10 two tokens of networks", (0.5,), (1.0,)),
    ("Section 2, rank collapse", "= 1 the gradient at the input", (-0.1,), (-2.0,)),
    ("Section 3, the scale of frozen queries and keys", "deviation .02", (0.98,), (0.40,)),
    ("Section 5, subspace selection", "training the embeddings reduces", (20.0, 4.0), (4.0, 20.0)),
    (
        "Section 5, subspace selection",
        "in trained networks tokens fill fewer",
        (-1.0,),
        (0.5,),
    ),
    # few dimensions with and without collapse: something else selects them
    ("Section 5, subspace selection", "fill more dimensions", (15.0, 4.0), (4.0, 4.5)),
    ("Section 5, subspace selection", "cosine at L = 32 is lower", (0.9, 0.2), (0.2, 0.9)),
]
DEPTH_CASES = [
    ("MixiT of 8 layers is within", (0.99, 1.0), (0.6, 1.0)),
    ("the random transformer of 2 layers reaches", (0.99,), (0.504,)),
    ("8 layers is .1 below", (0.99, 0.4), (0.504, 0.489)),
]
TABLE_6_CASES = [
    ("trained whole: MixiT's grows by less", (0.1,), (math.log(11),)),
    ("trained whole: MixiT's is below", (1.0,), (-2.0,)),
    ("trained whole, branches 4/L: MixiT's grows", (0.1,), (math.log(11),)),
    ("trained whole: MixiT of 32", (3.31, 2.8), (3.31, 3.7)),
    ("trained whole: MixiT's cosine grows by less", (0.1,), (math.log(3),)),
    ("trained whole: MixiT's cosine is below", (1.0,), (-0.2,)),
]


def test_rules_reject_wrong_alternatives():
    assert not failures((ITEMS[name], *case) for name, *case in CASES)


def test_rules_of_both_tables_6_reject_wrong_alternatives():
    for paper, cases in (("mixit", DEPTH_CASES), ("random_attention", TABLE_6_CASES)):
        (item,) = [item for item in PAPERS[paper].items if item.name == "Table 6"]
        assert not failures((item, *case) for case in cases)


def verdict_at(rule: Rule, gap: float) -> str:
    """Returns the verdict of a rule whose left side is `gap` above its right side."""
    right = 0.4 if rule.right.metric else rule.right.value
    left = (right * rule.right.times + gap) / rule.left.times
    if not rule.left.metric:  # a given number on the left, the measured one on the right
        left = rule.left.value
        right = (left * rule.left.times - gap) / rule.right.times
    numbers = iter((Number(left), Number(right)))
    return rule.judge("", lambda side: next(numbers)).verdict


def test_every_rule_of_every_paper_can_hold_and_can_fail():
    wrong = []
    for paper in PAPERS.values():
        for item in paper.items:
            for sentence, rule in (item.rules | item.checks).items():
                holds = verdict_at(rule, 0.0 if rule.within else rule.by + 0.3)
                fails = verdict_at(rule, rule.by + 0.3 if rule.within else rule.by - 0.3)
                if (holds, fails) != (HELD, NOT_HELD):
                    wrong.append(f"{paper.key} {item.name}: {sentence}: {holds}, {fails}")
    assert not wrong
