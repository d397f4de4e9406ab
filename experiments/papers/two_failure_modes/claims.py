"""arXiv 2505.24333: rank collapse, entropy collapse and the theory of both at initialisation.

Numbers of most of these figures were seen while the theory was built, before the rules were
written (`late`). The rules are the paper's statements; the exact theory is a check beside them. The
trained networks have their rules in claims_trained.py and claims_longer.py.
"""

import functools
import itertools

from experiments.ledger.item import GROWS, MISPRINT, Item, Paper, cell_of, late
from experiments.ledger.rules import above, computed, near, of, trivial
from experiments.papers.two_failure_modes import claims_longer as longer
from experiments.papers.two_failure_modes.claims_text import SIX_CURVES
from experiments.papers.two_failure_modes.claims_trained import ENTROPY, LOSSES, LOW_RATE, line

figure = functools.partial(cell_of, "two_failure_modes")
EXACT_IS_CLOSER = above(trivial("", "limit_rms_error"), "exact_rms_error")

MAPS = Item(
    "Figure 1a, b",
    "Attention is uniform at beta = 0.1 and sees a small, random set of tokens at beta = 1.8.",
    {"maps": figure("fig1_maps")},
    {
        "rows are almost uniform at beta = 0.1": above("entropy_fraction_beta_0.1", 0.95),
        "rows have lost half of their entropy at 1.8": above(0.5, "entropy_fraction_beta_1.8"),
        "the limit's entropy (none) at beta = 1.8": near(
            "entropy_fraction_beta_1.8", trivial("", "limit_entropy_fraction_beta_1.8"), 0.05
        ),
    },
    metric="entropy_fraction_beta_1.8",
    note="Exact theory: the fraction at beta = 1.8 is still .144 at T = 1e8.",
    flags=(GROWS,),
)

ENCODER = Item(
    "Figure 2",
    "A drawing of the encoder: weighted residual branches of attention and MLP, L layers.",
    defines="`jaxformer/models/encoder.py`: alpha_SA and alpha_MLP are its residual weights.",
)

TRAINABILITY = Item(
    "Figure 1c",
    "Below a curve alpha_c(beta) the tokens of 60 layers become alike, above it they do not.",
    {"diagram": figure("fig1_trainability"), "depths": figure("critical_alpha")},
    {
        "networks collapse exactly below the paper's alpha_c": above(
            of("diagram", "limit_on_their_side"), 0.99
        ),
        "alpha_c of networks is the paper's within .05": near(
            of("depths", "alpha_c_60"), trivial("depths", "limit_alpha_c_60"), 0.05
        ),
    },
    metric="limit_on_their_side",
    note="With sigma_V^2 = sigma_w^2 = .2, which Section 2 says, beside alpha_SA^2; the algebra is "
    "printed for sigma_V = 1, where the paper's own trainable networks would collapse. It gives no "
    "threshold for collapse; here rho_L > 0.99. In the diagram networks within 5 % of the line "
    "belong to neither side; alpha_c itself is at beta = 0.02.",
    checks={
        "networks collapse exactly below the exact theory's alpha_c": above(
            of("diagram", "exact_on_their_side"), 0.99
        ),
    },
    flags=(MISPRINT,),
)

DEPTH = Item(
    "Figure 1d, e",
    "60 layers collapse with alpha_SA = 1 and not with 1.5 or 2; the theory follows networks.",
    {"depth": figure("fig1_depth")},
    {
        "alpha = 1 collapses": above("cosine_beta_0.02_alpha_1", 0.99),
        "alpha = 1.5 does not": above(0.99, "cosine_beta_0.02_alpha_1.5"),
        "alpha = 2 does not": above(0.99, "cosine_beta_0.02_alpha_2"),
        "12 layers with beta = 1.8 do not, at alpha = 1": above(0.99, "cosine_beta_1.8_alpha_1"),
        **{
            f"the limit is within .1 at every layer ({layers} layers, alpha = {alpha})": near(
                trivial("", f"limit_largest_error_beta_{beta}_alpha_{alpha}"), 0.0, 0.1
            )
            for layers, beta in ((60, "0.02"), (12, "1.8"))
            for alpha in ("1", "1.5", "2")
        },
    },
    metric="cosine_beta_0.02_alpha_1",
    note="sigma_V^2 = sigma_w^2 = .2 stands beside alpha_SA^2, as for Figure 1c.",
    checks={
        f"the exact theory is within .03 there ({layers} layers, alpha = 1)": near(
            f"third_{name}", trivial("", f"exact_third_{name}"), 0.03
        )
        for layers, name in ((60, "beta_0.02_alpha_1"), (12, "beta_1.8_alpha_1"))
    },
)

DEPTH_OF_COLLAPSE = Item(
    "Section 1, alpha_c and depth",
    "How much attention concentrates hardly depends on the network's width; alpha_c grows with its "
    "depth.",
    {"depths": figure("critical_alpha")},
    {
        "alpha_c of 60 layers is above that of 12": above("alpha_c_60", "alpha_c_12", by=0.1),
        "alpha_c of 120 layers is above that of 60": above("alpha_c_120", "alpha_c_60", by=0.1),
        "Y_q is that of a network four times as wide (beta = 1)": near(
            "overlap_beta_1_width_128", "overlap_beta_1_width_512", 0.02
        ),
        "Y_q is that of a network four times as wide (beta = 2)": near(
            "overlap_beta_2_width_128", "overlap_beta_2_width_512", 0.05
        ),
    },
    metric="alpha_c_60",
    checks={
        "the exact theory has alpha_c of 60 layers": near(
            "alpha_c_60", trivial("", "exact_alpha_c_60"), 0.05
        ),
        "the exact theory has alpha_c of 12 layers": near(
            "alpha_c_12", trivial("", "exact_alpha_c_12"), 0.05
        ),
    },
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
    "Below beta_c(rho) one layer of attention makes all tokens alike; above it does not.",
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

TANH = Item(
    "Figure 5",
    "With tanh and large weights tokens stay apart at any depth.",
    {"equal": figure("fig5_tanh", "variant=equal"), "one": figure("fig5_tanh", "variant=one")},
    {
        "sigma_w = 1 collapses": above(of("equal", "measured_sigma_w_1"), 0.95),
        "sigma_w = 2.5 does not": above(0.95, of("equal", "measured_sigma_w_2.5")),
        "networks reach the predicted fixed point": near(
            of("equal", "measured_sigma_w_2.5"), computed("fixed_point_sigma_w_2.5", "equal"), 0.03
        ),
    },
    metric="measured_sigma_w_2.5",
    note="sigma_V = sigma_w, as Section 2 says. With sigma_V = 1, the other run, the fixed point "
    "is 0.176 in place of 0.353.",
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

NO_RESIDUAL = Item(
    "Figure C.3",
    "Without residuals a signal reaches the second block only beyond the transition.",
    {"chain": figure("figC3_no_residual")},
    {
        "below the transition all tokens are alike after one block (beta = 0.5)": near(
            "cosine_1_beta_0.5", 1.0, 0.02
        ),
        "so they are nearer to it (beta = 1.2)": near("cosine_1_beta_1.2", 1.0, 0.02),
        "beyond it they are not (beta = 1.8)": above(0.95, "cosine_1_beta_1.8"),
    },
    metric="cosine_1_beta_0.5",
    note="At finite T one block does not collapse orthogonal tokens.",
    checks={"the exact theory is closer to networks than the limit": EXACT_IS_CLOSER},
    flags=(GROWS,),
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

PAPER = Paper(
    "two_failure_modes",
    "Two failure modes of deep transformers and how to avoid them",
    "arXiv 2505.24333",
    (
        *late(MAPS),
        *late(TRAINABILITY, line(longer.HIGH), DEPTH, LOSSES),
        SIX_CURVES,
        longer.LOSSES,
        DEPTH_OF_COLLAPSE,
        ENCODER,
        SCORES,
        *late(PHASE, FINITE, ENTROPY),
        longer.ENTROPY,
        longer.BLOCKED,
        *late(EXPONENTS, TANH, OVERLAP, MOMENTS, SPECTRUM, LOW_RATE),
        longer.LOW_RATE,
        *late(NO_RESIDUAL, BETA_EFF),
    ),
)
