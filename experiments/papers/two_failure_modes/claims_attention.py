"""arXiv 2505.24333, one layer of attention: figures 1a, b, 3, B.1, B.2, C.1, equations 10, 15.

Rows of attention are judged against the paper's limit of many tokens; the exact theory at finite
length is a check beside it.
"""

import functools
import itertools

from experiments.ledger.item import GROWS, MISPRINT, Item, cell_of
from experiments.ledger.rules import above, computed, near, trivial

figure = functools.partial(cell_of, "two_failure_modes")

MAPS = Item(
    "Figure 1a, b",
    "Attention is uniform at beta = 0.1 and sees few tokens at beta = 1.8.",
    {"maps": figure("fig1_maps")},
    {
        "rows are almost uniform at beta = 0.1": above("entropy_fraction_beta_0.1", 0.95),
        "rows have lost half of their entropy at 1.8": above(0.5, "entropy_fraction_beta_1.8"),
    },
    checks={
        "the limit's entropy (none) at beta = 1.8": near(
            "entropy_fraction_beta_1.8", trivial("", "limit_entropy_fraction_beta_1.8"), 0.05
        ),
    },
    metric="entropy_fraction_beta_1.8",
    note="An illustration of the limit, where nothing is left of the entropy at beta = 1.8: in the "
    "exact theory the fraction is still .144 at T = 1e8.",
    late=True,
)

SCORES = Item(
    "Equation 10",
    "Scores that share both tokens, one or none have covariances in the ratio 1, rho, rho^2.",
    {"heads": figure("eq10_scores")},
    {
        f"{who} at rho = {rho}: {power:g}": near(f"{name}_rho_{rho}", power, 0.05)
        for rho in (0.3, 0.6, 0.9)
        for who, name, power in (
            ("one token", "one", rho),
            ("no token", "none", round(rho**2, 2)),
        )
    },
    metric="one_rho_0.6",
)

EXPONENTS = Item(
    "Equation 15",
    "Below the transition the overlap of a row vanishes as T^(-1 + (beta/beta_c)^2).",
    {"rows": figure("eq15_exponents")},
    {
        f"the exponent is {-1 + beta**2 / 2:.2f} at beta = {beta}": near(
            f"exponent_beta_{beta}", trivial("", f"paper_exponent_beta_{beta}"), 0.05
        )
        for beta in (0.57, 0.85, 1.13)
    },
    metric="exponent_beta_0.85",
    note="It is e^(-entropy), another Renyi order. Corrected: -1 + 2 b^2 for b = beta/beta_c below "
    "1/sqrt 3, then -(1-b^2)^2/(4b^2).",
    checks={
        f"the exact theory's exponent at beta = {beta}": near(
            f"exponent_beta_{beta}", trivial("", f"exact_exponent_beta_{beta}"), 0.05
        )
        for beta in (0.57, 0.85, 1.13)
    },
    flags=(MISPRINT,),
)

PHASE = Item(
    "Figure 3",
    "Networks follow the limit, in which one layer of attention makes all tokens alike below "
    "beta_c(rho) and not above; we ask: within .05.",
    {"phase": figure("fig3_phase")},
    {"the limit describes networks": near(trivial("", "limit_rms_error"), 0.0, 0.05)},
    metric="exact_rms_error_of_one_network",
    note="Near rho = 0 one layer does not collapse: SA(0) = 1/(T Y_q). The paper says that "
    "networks are qualitatively as in the limit; by how much they differ is judged here.",
    checks={
        "at T = 1e8 the exact theory is within .05 of the limit": near(
            trivial("", "limit_rms_error_of_theory_at_1e8"), 0.0, 0.05
        ),
        "the exact theory is closer to networks than the limit": above(
            trivial("", "limit_rms_error"), trivial("", "exact_rms_error")
        ),
    },
    flags=(GROWS,),
)

RATIO = "observed_over_predicted/rho="
FINITE = Item(
    "Figure 3, finite size",
    "In networks the transition is at a lower beta than in the limit, above all where tokens are "
    "little alike.",
    {"phase": figure("fig3_phase")._replace(scales=("paper",))},
    {
        **{
            f"rho = {rho}: below the predicted beta": above(1.0, f"{RATIO}{rho}")
            for rho in ("0.11", "0.37", "0.58", "0.84")
        },
        "further below at rho = 0.11 than at 0.58": above(f"{RATIO}0.58", f"{RATIO}0.11"),
    },
    metric=f"{RATIO}0.11",
    note="Measured is where the cosine has come a tenth of the way from 1 down to rho, over where "
    "that of the limit has.",
)

OVERLAP = Item(
    "Figure B.1",
    "Simulated overlaps Y_q(beta) of rows of 100,000 tokens follow the limit's transition.",
    {"rows": figure("figB1_overlap")},
    {
        "the limit is within .05 of rows at T = 100,000": near(
            trivial("", "limit_rms_error_100000"), 0.0, 0.05
        ),
    },
    metric="exact_rms_error",
    note="The paper sees finite-size effects around the transition. Equation 15, which the figure "
    "quotes below it, has a row of its own.",
    checks={
        "rows follow the exact theory": above(4.0, computed("exact_worst_z")),
        "at T = 1e8 the exact theory is within .05 of the limit": near(
            trivial("", "limit_rms_error_of_theory_at_1e8"), 0.0, 0.05
        ),
    },
    flags=(GROWS,),
)

MOMENTS = Item(
    "Figure B.2",
    "Y_p is sub-leading for long sequences, so that attention maps p to SA(p) as with Y_p = 0.",
    {"moments": figure("figB2_moments")},
    {
        **{
            f"Y_p is a smaller share of Y_q at T = 1e8 than at the run's T (rho = {rho})": above(
                computed(f"Y_p/Y_q/rho={rho}"), computed(f"Y_p/Y_q/rho={rho}, T=1e8")
            )
            for rho in ("0.3", "0.6")
        },
        "at T = 1e8 it is below a tenth (rho = 0.6, beta = 1)": above(
            0.1, computed("Y_p/Y_q/rho=0.6, T=1e8")
        ),
        "Y_p = 0 describes networks within .02 (rho = 0.6)": near(
            trivial("", "limit_rms_error_p_rho_0.6"), 0.0, 0.02
        ),
    },
    metric="exact_rms_error_p_rho_0.6",
    note="Shares are the exact theory's at beta = 1.",
    checks={
        "the exact SA(p) is closer than that of the limit (rho = 0.6)": above(
            trivial("", "limit_rms_error_p_rho_0.6"), "exact_rms_error_p_rho_0.6"
        ),
        "SA(q) is that of the limit within .05 (rho = 0.6)": near(
            trivial("", "limit_rms_error_q_rho_0.6"), 0.0, 0.05
        ),
    },
)

SPECTRUM = Item(
    "Figure C.1",
    "The eigenvalues of a random attention matrix fill a disc that grows with beta.",
    {"spectrum": figure("figC1_spectrum")},
    {
        f"the disc of beta = {more} is larger than that of {less}": above(
            f"radius_beta_{more}", f"radius_beta_{less}"
        )
        for less, more in itertools.pairwise(("0.2", "0.5", "1", "1.8", "3"))
    },
    metric="radius_beta_1.8",
    note="The paper's statement is of orders in T: no radius of T^(-1/2). Here T is one.",
    checks={
        "its radius is sqrt(Y_q - Y_p) at beta = 1.8, which the paper does not say": near(
            "radius_beta_1.8", trivial("", "theory_radius_beta_1.8"), 0.05
        ),
    },
)

BETA_EFF = Item(
    "Appendix B.1",
    "A usual initialisation of standard deviation 0.02 is beta_eff = 0.016 for BERT.",
    {"maps": figure("fig1_maps")},
    {
        "a random head of BERT has the beta of the paper's formula": near(
            "bert_beta", trivial("", "paper_bert_beta"), 0.005
        )
    },
    metric="bert_beta",
    note="The fan-in is d, not d_head: beta_eff = 0.123. Printed 0.016 belongs to another width. "
    "`python -m theory.advise --layers 12 --width 768 --heads 12 --length 512 --init-std 0.02` "
    "prints both.",
    flags=(MISPRINT,),
)
