"""Rules of two papers hold for a true sentence and reject a known wrong alternative."""

import math

import numpy as np
import pytest

from experiments.ledger.rules import HELD, NOT_HELD, OPEN
from experiments.papers import PAPERS
from experiments.papers.associations import recall_summary
from experiments.papers.attention_paths import resemblance as shared
from jaxformer.stats.differences import Number, mean_of
from jaxformer.tasks.task import Batch


def judged(paper, name, text, value, sem=0.001):
    """Returns the verdict of a rule or check with one measured number."""
    (item,) = (item for item in PAPERS[paper].items if item.name == name)
    rule = (item.rules | item.checks)[text]

    def read(side):
        return Number(value, sem, 30) if side.metric else Number(side.value)

    return rule.judge(text, read).verdict


CASES = [
    # The margin of the statement's inputs is twice the printed one: no trial is within the error.
    (
        "associations",
        "Theorem 1",
        "as stated, the margin of attention is within the error in more than 95 % of the trials",
        1.0,
        0.0,
    ),
    (
        "associations",
        "Theorem 1",
        "as stated, the feed-forward margin is within the error in more than 95 % of the trials",
        1.0,
        0.5,
    ),
    ("associations", "Theorem 2", "(4) is positive with the exact W_V", 0.29, -1.7),
    ("associations", "Theorem 2", "(4) is positive with the paper's W_V, beta = 2, 1", 0.1, -0.04),
    (
        "associations",
        "Lemma D.1",
        "the gradient is within the bound in more than 95 % of the trials",
        1.0,
        0.0,
    ),
    # A third of the printed variance of row 6 is .41/3 of what is true.
    ("associations", "Lemma D.2", "every printed variance is above .98 of the exact one", 1.0, 0.8),
    ("associations", "Table 3", "sigma^2 (q,k) is the printed one, within 2 %", 1.0, 2.44),
    ("associations", "Assumption F.1", "(4) the diagonal is positive at alpha = .37", 0.03, -0.02),
    (
        "associations",
        "Equations 25 and 26",
        "(26) B_token is of order N^-3, within .3 of the power",
        2.97,
        2.0,
    ),
    ("associations", "Equations 25 and 26", "(26) B is positive on a token", 0.018, -0.018),
    # A gap that does not shrink with the samples.
    (
        "associations",
        "Theorem 1",
        "as proved, the gap of attention is wider with 16 times fewer samples",
        4.0,
        0.9,
    ),
    (
        "associations",
        "Appendix B.3",
        "at 0.25 of the largest eta the logit ends at its limit and never exceeds it",
        1e-15,
        0.17,
    ),
    # -(alpha^2 + 3 alpha - 1), as printed, has another sign.
    (
        "associations",
        "Equations 25 and 26",
        "(25) all ten projections have the printed sign",
        10,
        9,
    ),
    (
        "associations",
        "Appendix G.1",
        "n = 4, t = 1e6, alpha = .3: the noise has the smallest singular value",
        0.8,
        1.225,
    ),
    ("associations", "Lemma H.2", "the closed form is the sum, up to rounding", 1e-15, 0.1),
    # A network that always predicts the noise; a network that is cut to guessing.
    (
        "associations",
        "Figure 3, to the plateau",
        "without F2 the answer has a probability of .98, within .02",
        0.98,
        0.92,
    ),
    (
        "associations",
        "Figure 7, to the plateau",
        "layer 1 scores the previous token highest at more than 90 % of positions",
        0.95,
        0.53,
    ),
    ("associations", "Figure 11, to the plateau", "without F1 the answer is likelier", 0.1, -0.127),
    (
        "associations",
        "Figure 4, to the plateau",
        "after clean training attention on the answer and on the noise agree within .1",
        0.05,
        0.85,
    ),
    (
        "associations",
        "Beside Figure 19, guessing",
        "3 layers: without the last MLP the accuracy beats a guess",
        0.94,
        0.47,
    ),
    (
        "attention_paths",
        "Figure 2c, top",
        "samples agree with the theory at N = 10, data set by data set, within .005",
        0.0005,
        0.02,
    ),
    # The identity in place of the theory's order parameter.
    (
        "attention_paths",
        "Figure 2c, bottom",
        "the entry of good grows by more than 1 from N = 1000 to N = 10",
        10.7,
        0.0,
    ),
    (
        "attention_paths",
        "Figure 2c, the boost",
        "N = 10 beats good + denoising of the GP limit",
        0.004,
        -0.0043,
    ),
    (
        "attention_paths",
        "Figure 2c, adversarial paths",
        "the entry of a1 at N = 10 is below that at N = 1000",
        -0.7,
        0.1,
    ),
    (
        "attention_paths",
        "Figure 2c, adversarial paths",
        "the entry of a1 at N = 10 is below its prior mean, 1",
        0.28,
        1.14,
    ),
    (
        "attention_paths",
        "Figure 2e, every noise",
        "noise 1: N = 10 beats the GP limit",
        0.01,
        -0.01,
    ),
    (
        "attention_paths",
        "Figure 3c, structure",
        "the theory correlates better with the trained U than the identity does",
        0.1,
        -0.1,
    ),
    (
        "attention_paths",
        "Figure 3f, two heads",
        "pruning the two heads of lowest score costs less than .02",
        0.01,
        0.04,
    ),
    (
        "attention_paths",
        "Appendix, pruning a wider network",
        "pruning four heads costs less than .02",
        0.01,
        0.05,
    ),
    (
        "attention_paths",
        "Appendix, temperatures",
        "the best temperature of N = 10 is above that of the GP limit",
        0.3,
        -0.3,
    ),
]


def test_rules_reject_known_wrong_alternatives():
    failures = []
    for *rule, right, wrong in CASES:
        # The last verdict: an unknown error decides nothing.
        verdicts = [
            judged(*rule, v, sem) for v, sem in ((right, 1e-17), (wrong, 1e-17), (wrong, math.nan))
        ]
        if verdicts != [HELD, NOT_HELD, OPEN]:
            failures.append((*rule, verdicts))
    assert not failures


def test_a_sampled_entry_is_compared_with_the_theory_of_its_width():
    (item,) = (x for x in PAPERS["attention_paths"].items if x.name == "Figure 2c, bottom")
    text = "entry good,good of the first data set is that of its samples, within .6"
    rule = item.checks[f"N = 10: the theory's {text}"]

    def verdict(theory):
        sides = {"sampled": Number(12.4, 0.03, 12_000), "U": Number(theory)}
        return rule.judge("", lambda side: sides[side.cell]).verdict

    assert verdict(12.0) == HELD  # and the theory of N = 30 and of the GP limit are not
    assert verdict(6.21) == verdict(1.0) == NOT_HELD


def test_a_mean_over_splits_has_the_error_between_them():
    cells = [Number(x, 0.001, 2) for x in (0.01, 0.03, 0.02)]
    result = mean_of(cells)
    assert (result.mean, result.n) == (pytest.approx(0.02), 3)
    assert result.sem == pytest.approx(0.01 / 3**0.5)  # and not .001 / sqrt(3)
    assert math.isnan(mean_of(cells[:1]).sem)


def test_what_order_parameters_share_beyond_their_diagonal():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4, 4))
    blocks = np.kron(np.eye(2), np.ones((2, 2))) * 3  # pairs that share the first head
    theory = np.stack([np.eye(4) * 2 + r @ r.T / 8 + blocks for r in root])
    learned = theory + 0.05 * rng.standard_normal((4, 4, 4))
    learned = (learned + learned.swapaxes(1, 2)) / 2
    result = shared.resemblance(learned[0], theory[0], (2, 2))
    assert all(result[name] > 0 for name in result), result
    assert result["U_off_diagonal"] > 0.95 and result["U_signs"] >= 0.3
    trivial = shared.resemblance(np.eye(4) + 0.1 * root[1], np.eye(4), (2, 2))
    assert trivial["U_over_identity"] == pytest.approx(0)
    matched = shared.matched_minus_others(learned, theory)
    assert (matched > 0).all() and (
        shared.matched_minus_others(learned[::-1], theory) < 0
    ).sum() > 1
    assert shared.blocks(np.eye(4) + 0.5 * (blocks == 0), (2, 2)) < 0


def test_trivial_predictors_of_clean_data():
    """Two tokens follow the trigger 0, one of them twice: a guess has probability 1/2 for both."""
    inputs = np.array([[0, 1, 0, 2, 0, 1, 0]])
    batch = Batch(inputs, np.full((1, 7), 2), np.array([[0, 0, 0, 0, 0, 0, 1.0]]))
    task = type("Task", (), {"noise_token": 3, "vocab_size": 4})
    assert recall_summary.trivial_predictors(task, batch) == {
        "p_correct_always_noise": 0.0,
        "p_correct_uniform": 0.25,
        "p_correct_guess_a_successor": 0.5,
    }


def test_late_changes_are_positive_for_a_rising_curve_and_zero_for_a_flat_one():
    steps = np.arange(0, 1001, 50)
    flat = np.full((len(steps), 2), 0.7)
    rising = np.linspace(0, 1, len(steps))[:, None] * np.ones((1, 2))
    curves = {"previous_token": rising, "p_correct": flat, "p_correct_without_f1": flat + 0.1}
    changes = recall_summary.late_changes(steps, curves, 0)
    np.testing.assert_allclose(changes["late_change/previous_token"], 0.25, atol=0.01)
    np.testing.assert_allclose(changes["late_change/p_correct_gain_without_f1"], 0, atol=1e-12)
    assert recall_summary.late_changes(steps[:4], {n: c[:4] for n, c in curves.items()}, 0) == {}
