"""Claims of arXiv 2505.24333: rank collapse, entropy collapse and the theory of both.

The rules of items in `late(..)` were written after numbers were known. Rules test the paper's
statements, which are about the limit of many tokens T ("limit"). Checks test the exact theory at
finite T ("exact"); they do not decide the verdict. `flags=(GROWS,)` marks claims that hold only as
T grows without bound. Claims on one layer of attention are in claims_attention.py, those on trained
networks in claims_trained.py, claims_longer.py and claims_text.py.

beta is the strength of the scores, with the transition of attention at beta_c. alpha_SA is the
residual weight of attention, with rank collapse below alpha_c.
"""

import functools

from experiments.ledger.item import GROWS, MISPRINT, Item, Paper, cell_of, late
from experiments.ledger.rules import above, computed, near, of, trivial
from experiments.papers.two_failure_modes import claims_attention as attention
from experiments.papers.two_failure_modes import claims_longer as longer
from experiments.papers.two_failure_modes.claims_text import SIX_CURVES
from experiments.papers.two_failure_modes.claims_trained import ENTROPY, LOSSES, LOW_RATE, line

figure = functools.partial(cell_of, "two_failure_modes")
COLLAPSED_COSINE = 0.99  # tokens of a deep network count as alike above this cosine

ENCODER = Item(
    "Figure 2",
    "A drawing of the encoder: weighted residual branches of attention and MLP, L layers.",
    defines="`jaxformer/models/encoder.py`: alpha_SA and alpha_MLP are its residual weights.",
)

TRAINABILITY = Item(
    "Figure 1c",
    "Below a curve alpha_c(beta) 60 layers make all tokens alike. Above it they do not.",
    {"diagram": figure("fig1_trainability"), "depths": figure("critical_alpha")},
    {
        "more than 99 % of networks collapse exactly below the paper's alpha_c(beta)": above(
            of("diagram", "limit_on_their_side"), 0.99
        ),
        "at 60 layers alpha_c of networks is the paper's, within .05": near(
            of("depths", "alpha_c_60"), trivial("depths", "limit_alpha_c_60"), 0.05
        ),
    },
    metric="limit_on_their_side",
    note="We multiply alpha_SA^2 by sigma_V^2 = sigma_w^2 = .2, as in Section 2. The paper's "
    "algebra is printed for sigma_V = 1, with which its own trainable networks would collapse. The "
    "paper gives no threshold for collapse; ours is a cosine above 0.99 after the last layer. In "
    "the diagram networks within 5 % of alpha_c are not counted. alpha_c itself is measured at "
    "beta = 0.02.",
    checks={
        "more than 99 % of networks collapse exactly below the exact theory's alpha_c(beta)": above(
            of("diagram", "exact_on_their_side"), 0.99
        ),
    },
    flags=(MISPRINT,),
)

PANELS = ((60, "0.02"), (12, "1.8"))  # layers, beta
DEPTH = Item(
    "Figure 1d, e",
    "60 layers collapse with alpha_SA = 1 and not with 1.5 or 2. The theory agrees with networks.",
    {"depth": figure("fig1_depth")},
    {
        "60 layers collapse at alpha_SA = 1: the cosine is above .99": above(
            "cosine_beta_0.02_alpha_1", COLLAPSED_COSINE
        ),
    }
    | {
        f"{layers} layers do not collapse at alpha_SA = {alpha}: the cosine is below .99": above(
            COLLAPSED_COSINE, f"cosine_beta_{beta}_alpha_{alpha}"
        )
        for layers, beta, alpha in ((60, "0.02", "1.5"), (60, "0.02", "2"), (12, "1.8", "1"))
    }
    | {
        f"{layers} layers, alpha_SA = {alpha}: the limit is within .1 at every layer": near(
            f"limit_largest_error_beta_{beta}_alpha_{alpha}", 0.0, 0.1
        )
        for layers, beta in PANELS
        for alpha in ("1", "1.5", "2")
    },
    metric="cosine_beta_0.02_alpha_1",
    note="60 layers have beta = 0.02, 12 layers beta = 1.8. We multiply alpha_SA^2 by sigma_V^2 = "
    "sigma_w^2 = .2, as for Figure 1c.",
    checks={
        f"{layers} layers, alpha_SA = 1: the exact theory is within .03 after a third of them": (
            near(
                f"third_beta_{beta}_alpha_1", trivial("", f"exact_third_beta_{beta}_alpha_1"), 0.03
            )
        )
        for layers, beta in PANELS
    },
)

DEPTH_OF_COLLAPSE = Item(
    "Section 1, alpha_c and depth",
    "The concentration of attention hardly depends on the width of the network. alpha_c grows with "
    "its depth.",
    {"depths": figure("critical_alpha")},
    {
        f"alpha_c of {more} layers is .1 above that of {fewer}": above(
            f"alpha_c_{more}", f"alpha_c_{fewer}", by=0.1
        )
        for fewer, more in ((12, 60), (60, 120))
    }
    | {
        f"at beta = {beta} Y_q of widths 128 and 512 agree within {f'{by:g}'[1:]}": near(
            f"overlap_beta_{beta}_width_128", f"overlap_beta_{beta}_width_512", by
        )
        for beta, by in ((1, 0.02), (2, 0.05))
    },
    metric="alpha_c_60",
    note="Y_q, the overlap of a row with itself, measures the concentration of attention.",
    checks={
        f"alpha_c of {layers} layers is that of the exact theory, within .05": near(
            f"alpha_c_{layers}", trivial("", f"exact_alpha_c_{layers}"), 0.05
        )
        for layers in (60, 12)
    },
)

TANH = Item(
    "Figure 5",
    "With tanh and large weights tokens stay apart at any depth.",
    {"equal": figure("fig5_tanh", "variant=equal"), "one": figure("fig5_tanh", "variant=one")},
    {
        "sigma_w = 1: the cosine of networks is above .95": above(
            of("equal", "measured_sigma_w_1"), 0.95
        ),
        "sigma_w = 2.5: the cosine of networks is below .95": above(
            0.95, of("equal", "measured_sigma_w_2.5")
        ),
        "sigma_w = 2.5: the cosine of networks is the predicted fixed point, within .03": near(
            of("equal", "measured_sigma_w_2.5"), computed("equal", "fixed_point_sigma_w_2.5"), 0.03
        ),
    },
    metric="measured_sigma_w_2.5",
    note="The rules are about the run with sigma_V = sigma_w, as in Section 2. The other run has "
    "sigma_V = 1. Its fixed point is 0.176 in place of 0.353.",
)

NO_RESIDUAL = Item(
    "Figure C.3",
    "In a network without residual connections a signal reaches the second block only beyond the "
    "transition.",
    {"chain": figure("figC3_no_residual")},
    {
        f"below the transition, at beta = {beta}, one block makes all tokens alike, within .02": (
            near(f"cosine_1_beta_{beta}", 1.0, 0.02)
        )
        for beta in (0.5, 1.2)
    }
    | {
        "beyond the transition, at beta = 1.8, the cosine after one block is below .95": above(
            0.95, "cosine_1_beta_1.8"
        ),
    },
    metric="cosine_1_beta_0.5",
    note="At finite T one block does not make orthogonal tokens alike.",
    checks={
        "the exact theory is closer to networks than the limit": above(
            "limit_rms_error", "exact_rms_error"
        )
    },
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
