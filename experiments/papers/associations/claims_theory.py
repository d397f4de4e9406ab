"""The theorems, lemmas and tables of the associations paper: how many of their rows hold."""

from experiments.ledger.item import Cell, Item
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


STATEMENTS = (
    statement(
        "Theorem 1",
        "After one step the feed-forward margin is eta alpha and that of attention eta "
        "alpha_hat / N.",
        "As stated, attention's is twice that; FF's is alpha - (1 - alpha)/N.",
    ),
    statement(
        "Theorem 2",
        "Attention prefers what follows the trigger (3), and the answer to the noise (4).",
        "(4) has the wrong sign if ybar may be the trigger.",
    ),
    statement(
        "Theorem 3",
        "The noise of a full memory stays; of a truncated one it decays as t^(-1/2).",
        "The rate is right; the constant is 5/(18(1-alpha)) for (45), 4/(3(1-alpha)) for W.",
    ),
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
