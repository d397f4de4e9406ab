"""arXiv 2505.24333: rank collapse, entropy collapse and the theory of both at initialisation.

Numbers of most of these figures were seen while the theory was built, before the rules were
written (`late`). The rules are the paper's statements; the exact theory is a check beside them. One
layer of attention has its rules in claims_attention.py, and trained networks in claims_trained.py,
claims_longer.py and claims_text.py.
"""

import functools

from experiments.ledger.item import GROWS, MISPRINT, Item, Paper, cell_of, late
from experiments.ledger.rules import above, computed, near, of, trivial
from experiments.papers.two_failure_modes import claims_attention as attention
from experiments.papers.two_failure_modes import claims_longer as longer
from experiments.papers.two_failure_modes.claims_text import SIX_CURVES
from experiments.papers.two_failure_modes.claims_trained import ENTROPY, LOSSES, LOW_RATE, line

figure = functools.partial(cell_of, "two_failure_modes")
EXACT_IS_CLOSER = above(trivial("", "limit_rms_error"), "exact_rms_error")

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

PAPER = Paper(
    "two_failure_modes",
    "Two failure modes of deep transformers and how to avoid them",
    "arXiv 2505.24333",
    (
        *late(attention.MAPS),
        *late(TRAINABILITY, line(longer.HIGH), DEPTH, LOSSES),
        SIX_CURVES,
        longer.LOSSES,
        DEPTH_OF_COLLAPSE,
        ENCODER,
        attention.SCORES,
        *late(attention.PHASE, attention.FINITE, ENTROPY),
        longer.ENTROPY,
        longer.BLOCKED,
        *late(
            attention.EXPONENTS,
            TANH,
            attention.OVERLAP,
            attention.MOMENTS,
            attention.SPECTRUM,
            LOW_RATE,
        ),
        longer.LOW_RATE,
        *late(NO_RESIDUAL, attention.BETA_EFF),
    ),
)
