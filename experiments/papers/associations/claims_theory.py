"""The theorems, lemmas and tables of the associations paper: how many of their rows hold."""

from experiments.ledger.item import MISPRINT, Cell, Item
from experiments.ledger.rules import computed, near

OVERSHOOT = "measured/B.3, alpha = 0.3: overshoot at eta = 1/(alpha(1-alpha))"
THEORY = {"theory": Cell("configs/associations/theory.py")}


def statement(name: str, claim: str, note: str, group: str = "") -> Item:
    group = group or name
    rules = {
        "no row fails": near(computed(f"fails/{group}"), 0.0, 0.0),
        "no row needs another constant": near(
            computed(f"holds, corrected constant/{group}"), 0.0, 0.0
        ),
    }
    return Item(name, claim, THEORY, rules, f"holds/{group}", note=note)


# The theorem's own error, sqrt(ln(2(N+1)/delta)/m), at the recorded N and m.
OWN_ERROR = 0.044
THEOREM_1 = Item(
    "Theorem 1",
    "After one step the feed-forward margin is eta alpha and that of attention eta alpha_hat / N, "
    "up to O(sqrt(ln(2(N+1)/delta)/m)).",
    THEORY,
    {
        "the feed-forward margin is alpha": near(
            computed("measured/Theorem 1, as stated: feed_forward margin"), 0.3, OWN_ERROR
        ),
        "N times the attention margin is alpha_hat, with the inputs of the statement": near(
            computed("measured/Theorem 1, as stated: attention margin x N"), 0.299, OWN_ERROR
        ),
    },
    metric="measured/Theorem 1, as stated: attention margin x N",
    note="With the inputs of the statement (current and previous token) attention's margin is "
    "twice that; with those of the proof it is as printed. alpha = 0.3.",
    checks={
        "with the inputs of the proof it is alpha_hat": near(
            computed("measured/Theorem 1, as proved: attention margin x N"), 0.299, OWN_ERROR
        ),
    },
    flags=(MISPRINT,),
)
FLOW_B = "measured/Theorem 3, the flow of W: b"
TRUNCATED = "measured/Theorem 3: rank 1, P(noise) sqrt(t)"
THEOREM_3 = Item(
    "Theorem 3",
    "The noise of a full memory stays at alpha; that of a truncated one decays as t^(-1/2).",
    THEORY,
    {
        "the full memory keeps ln(alpha/(1-alpha))": near(computed(FLOW_B), -0.8473, 0.001),
        "sqrt(t) P(noise) of the truncated one is its constant, 1.380": near(
            computed(TRUNCATED), (4 / (3 * 0.7)) ** 0.5, 0.03
        ),
    },
    metric=TRUNCATED,
    note="The theorem states the rate; the constant is ours, sqrt(4/(3(1-alpha))). alpha = 0.3.",
)
LEMMA_H_3 = Item(
    "Lemma H.3",
    "Along the flow, t e^a tends to 1/((1-alpha)(4-2 alpha)).",
    THEORY,
    {
        "t e^a of the printed equation (45) is the printed constant": near(
            computed("measured/Theorem 3, the ODE as printed (45): t e^a"), 0.4202, 0.004
        ),
    },
    metric="measured/Theorem 3, the ODE as printed (45): t e^a",
    note="It is 5/(18(1-alpha)) for (45), and 4/(3(1-alpha)) for the flow of W.",
    flags=(MISPRINT,),
)

STATEMENTS = (
    THEOREM_1,
    statement(
        "Theorem 2",
        "Attention prefers what follows the trigger (3), and the answer to the noise (4).",
        "(4) has the wrong sign if ybar may be the trigger.",
    ),
    THEOREM_3,
    LEMMA_H_3,
    statement(
        "Table 3",
        "Means and variances of the first gradient step.",
        "Rows 4 to 10 of sigma^2 use 1/(N+1) for 1/(N+1)^2; mu(j,j) has a sign.",
    ),
    statement(
        "Table 4",
        "Lemmas E.1 to E.7: moments of the counts.",
        "E.1's second moment lost a factor alpha.",
        group="Lemma",
    ),
    Item(
        "Appendix B.3",
        "The noise logit converges without overshoot for eta <= 1/(alpha(1-alpha)).",
        THEORY,
        {"no overshoot at alpha = 0.3": near(computed(OVERSHOOT), 0.0, 1e-6)},
        metric=OVERSHOOT,
        note="For alpha <= 1/2 only, as the text implies: at 0.7 it overshoots.",
    ),
)
