"""arXiv 2505.24333: rank collapse, entropy collapse and the theory of both at initialisation.

Numbers of most of these figures were seen while the theory was built, before the rules were
written (`late`). The rules are the paper's statements, and its limit against the exact theory.
"""

import functools

from experiments.ledger.item import GROWS, MISPRINT, Item, Paper, cell_of, late
from experiments.ledger.rules import above, computed, near, of, trivial
from experiments.papers.two_failure_modes.claims_text import SIX_CURVES

figure = functools.partial(cell_of, "two_failure_modes")
loss = functools.partial(of, metric="loss")
EXACT_IS_CLOSER = above(trivial("", "limit_rms_error"), "exact_rms_error")

MAPS = Item(
    "Figure 1a, b",
    "Attention is uniform at beta = 0.1 and locks onto single tokens at beta = 1.8.",
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

TRAINABILITY = Item(
    "Figure 1c",
    "A line beta_c = sqrt 2 and a curve alpha_c(beta) bound the trainable region.",
    {"diagram": figure("fig1_trainability")},
    {"networks lie closer to the exact diagram than to the limit": EXACT_IS_CLOSER},
    metric="exact_rms_error",
    note="The paper gives no threshold for collapse; here rho_L > 0.99.",
)

ENCODER = Item(
    "Figure 2",
    "A drawing of the encoder: weighted residual branches of attention and MLP, L layers.",
    defines="`jaxformer/models/encoder.py`: alpha_SA and alpha_MLP are its residual weights.",
)

DEPTH = Item(
    "Figure 1d, e",
    "60 layers collapse with alpha_SA = 1 and not with 1.5 or 2; the theory follows networks.",
    {"depth": figure("fig1_depth")},
    {
        "alpha = 1 collapses": above("cosine_beta_0.02_alpha_1", 0.99),
        "alpha = 1.5 does not": above(0.99, "cosine_beta_0.02_alpha_1.5"),
        "alpha = 2 does not": above(0.99, "cosine_beta_0.02_alpha_2"),
    },
    metric="cosine_beta_0.02_alpha_1",
    checks={
        "the exact theory is closer than the limit at alpha = 1": above(
            trivial("", "limit_largest_error_beta_0.02_alpha_1"),
            "exact_largest_error_beta_0.02_alpha_1",
        ),
    },
)

LOSSES = Item(
    "Figure 1f",
    "Networks that start in rank or entropy collapse train worse than those that start between.",
    {
        regime: figure("fig1_losses", f"variant={regime}")
        for regime in ("trainable", "rank_collapse", "entropy_collapse")
    },
    {
        "rank collapse costs loss": above(loss("rank_collapse"), loss("trainable"), by=0.02),
        "entropy collapse costs loss": above(loss("entropy_collapse"), loss("trainable"), by=0.02),
    },
    metric="loss",
    baseline="unigram_loss",
    note="Small scale: 8 layers on a chain of characters, beta = 4 for entropy collapse.",
)

PHASE = Item(
    "Figure 3",
    "Below beta_c(rho) one layer of attention makes all tokens alike; above it does not.",
    {"phase": figure("fig3_phase")},
    {"the limit describes networks": near(trivial("", "limit_rms_error"), 0.0, 0.05)},
    metric="exact_rms_error_of_one_network",
    note="Near rho = 0 one layer does not collapse: SA(0) = 1/(T Y_q). The limit is .106 from the "
    "exact theory at T = 256 and still .058 at T = 1e8.",
    checks={
        "the exact theory is closer to networks than the limit": above(
            trivial("", "limit_rms_error"), trivial("", "exact_rms_error")
        ),
    },
    flags=(GROWS,),
)


def by_beta(file: str, name: str, claim: str, note: str) -> Item:
    cells = {f"beta={b}": figure(file, f"variant=beta_{b.replace('.', '_')}") for b in BETAS}
    half, one, beyond, four = (loss(f"beta={b}") for b in ("0.5", "1.0", "1.8", "4.0"))
    rules = {
        "beta = 4 trains worse than 0.5": above(four, half),
        "beta = 1.8, beyond the transition, trains worse than 1.0": above(beyond, one),
        "below the transition (0.5 and 1.0) losses agree": near(one, half, 0.03),
    }
    return Item(name, claim, cells, rules, "loss", "unigram_loss", note)


BETAS = ("0.5", "1.0", "1.4", "1.8", "3.0", "4.0")
ENTROPY = by_beta(
    "fig4_entropy",
    "Figure 4",
    "The initial entropy of attention has a transition at beta = sqrt 2; beyond it losses rise.",
    "The entropy at step 0 is the exact theory's; at finite T it falls smoothly.",
)
LOW_RATE = by_beta(
    "figC2_low_rate",
    "Figure C.2",
    "A smaller learning rate mitigates entropy collapse.",
    "Compare the gaps of Figure 4.",
)

TANH = Item(
    "Figure 5",
    "With tanh and large weights tokens stay apart at any depth.",
    {"equal": figure("fig5_tanh", "variant=equal"), "one": figure("fig5_tanh", "variant=one")},
    {
        "sigma_w = 1 collapses": above(of("equal", "measured_sigma_w_1"), 0.95),
        "sigma_w = 2.5 does not": above(0.95, of("equal", "measured_sigma_w_2.5")),
        "networks reach the predicted fixed point": near(
            of("equal", "measured_sigma_w_2.5"), of("equal", "fixed_point_sigma_w_2.5"), 0.03
        ),
    },
    metric="measured_sigma_w_2.5",
    note="The paper does not state sigma_V, and the fixed point depends on it (0.353 or 0.176).",
)

OVERLAP = Item(
    "Figure B.1",
    "Y_q(beta) of simulated rows follows the theory; below beta_c it is T^(-1 + (beta/beta_c)^2).",
    {"rows": figure("figB1_overlap")},
    {
        "rows follow the exact theory": above(4.0, computed("exact_worst_z")),
        "rows follow the limit": near(trivial("", "limit_rms_error"), 0.0, 0.05),
    },
    metric="exact_rms_error",
    note="The exponent is -1 + 2 (beta/beta_c)^2 below beta_c / sqrt 3.",
    flags=(GROWS,),
)

MOMENTS = Item(
    "Figure B.2",
    "Attention maps q and p to SA(q) and SA(p) with Y_p = 0.",
    {"moments": figure("figB2_moments")},
    {
        "Y_p = 0 describes networks (rho = 0.6)": near(
            trivial("", "limit_rms_error_p_rho_0.6"), 0.0, 0.02
        ),
    },
    metric="exact_rms_error_p_rho_0.6",
    note="At T = 1e5 the theory's own distance is .0041.",
    checks={
        "the exact SA(p) is closer than that of the limit (rho = 0.6)": above(
            trivial("", "limit_rms_error_p_rho_0.6"), "exact_rms_error_p_rho_0.6"
        ),
    },
)

SPECTRUM = Item(
    "Figure C.1",
    "The eigenvalues of a random attention matrix fill a disc that grows with beta.",
    {"spectrum": figure("figC1_spectrum")},
    {
        "the disc grows": above("radius_beta_1.8", "radius_beta_0.5"),
        "its radius is sqrt(Y_q - Y_p) at beta = 1.8": near(
            "radius_beta_1.8", trivial("", "theory_radius_beta_1.8"), 0.05
        ),
    },
    metric="radius_beta_1.8",
)

NO_RESIDUAL = Item(
    "Figure C.3",
    "Without residuals a signal reaches the second block only beyond the transition.",
    {"chain": figure("figC3_no_residual")},
    {
        "below the transition all tokens are alike after one block (beta = 0.5)": near(
            "cosine_1_beta_0.5", 1.0, 0.02
        ),
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
        *late(MAPS, TRAINABILITY, DEPTH, LOSSES),
        SIX_CURVES,
        ENCODER,
        *late(PHASE, ENTROPY, TANH),
        *late(OVERLAP, MOMENTS, SPECTRUM, LOW_RATE, NO_RESIDUAL, BETA_EFF),
    ),
)
