"""Version B: Is random attention sufficient for sequence modeling?

What both versions claim stands once, in `claims`, with both table numbers; here is what only B has,
and the theorem that it builds on.
"""

import functools

from experiments.ledger.item import OURS, Cell, Item, Paper
from experiments.ledger.rules import above, near, of
from experiments.papers.mixit import claims_theory
from experiments.papers.mixit.claims_settings import (
    LONGER,
    ONE_HOP,
    PATIENT,
    STEPS,
    patient,
    score_of,
)
from experiments.papers.mixit.claims_sweeps import FRESH, fresh

UNIVERSAL = Item(
    "Theorem 5.1",
    "One layer of attention with enough frozen random heads, and an MLP, fits any causal function, "
    "as (B.1) has it without positions; MixiT stays behind.",
    {"heads": Cell("configs/mixit/universality.py")},
    {
        "with the MLP 64 heads look up better than any linear mixing: the error is .1 below": above(
            of("heads", "error/linear/mixit/lookup/H=128"),
            of("heads", "error/mlp/frozen_qk/lookup/H=64"),
            by=0.1,
        ),
        "MixiT's stays above it, with the MLP": above(
            of("heads", "error/mlp/mixit/lookup/H=64"),
            of("heads", "error/mlp/frozen_qk/lookup/H=64"),
            by=0.1,
        ),
        "without positions the token before is found too, with the MLP": above(
            0.1, of("heads", "error/mlp/frozen_qk/previous/H=64")
        ),
    },
    checks={
        "the error of a look-up with 64 heads and the MLP is below .1": above(
            0.1, of("heads", "error/mlp/frozen_qk/lookup/H=64")
        ),
        "the error of a look-up falls with the heads, with the MLP": above(
            of("heads", "error/mlp/frozen_qk/lookup/H=1"),
            of("heads", "error/mlp/frozen_qk/lookup/H=64"),
            by=0.1,
        ),
        "MixiT's falls too": above(
            of("heads", "error/mlp/mixit/lookup/H=1"),
            of("heads", "error/mlp/mixit/lookup/H=64"),
            by=0.1,
        ),
        "with rotary positions it falls for the token before, from 16 heads to 64": above(
            of("heads", "error/mlp/frozen_qk_rotary/previous/H=16"),
            of("heads", "error/mlp/frozen_qk_rotary/previous/H=64"),
        ),
        "with rotary positions and 64 heads the token before is found": above(
            0.1, of("heads", "error/mlp/frozen_qk_rotary/previous/H=64")
        ),
        "MixiT finds the token before with 64 heads": above(
            0.1, of("heads", "error/mlp/mixit/previous/H=64")
        ),
    },
    metric="error/mlp/frozen_qk/lookup/H=64",
    note="An existence statement without a rate: falling errors support it, standing ones alone do "
    "not refute it. But (B.1) has no positions: its features do not change when earlier tokens "
    "change places, so the token before is out of reach for any number of heads and any MLP. With "
    "rotary positions the argument does not hold; the error falls, slowly. From 32 heads on the "
    "matrices of MixiT span all causal linear maps: that is the error of any linear mixing.",
    late=True,
)

SCALE = Item(
    "Section 3, the scale of frozen queries and keys",
    "Are queries and keys that stay at a standard initialisation enough for Frozen-QK?",
    {
        f"std={std}": Cell(f"configs/mixit/qk_scale.py:std={std}", scales=("small",))
        for std in ("0.02", "fan_in")
    },
    {
        "Frozen-QK retrieves with 1/sqrt(n)": near(of("std=fan_in"), 1.0, 0.05),
        "and with .02": near(of("std=0.02"), 1.0, 0.05),
    },
    baseline="in_context_guess",
    note="The authors' code draws with 0.02. The logits of frozen attention then have a deviation "
    "of .10 to .41 at its n = 256 to 1024, where 1/sqrt(n) gives 1 at any n. At n = 64 they have "
    ".026 and attention is almost uniform, so our small configs have 1/sqrt(n). Both are read on "
    "all examples after 1,000 steps; whether more would help 0.02 is not told.",
    flags=(OURS,),
    late=True,
)

EMBEDDINGS, SMALL_BRANCHES = "trained embeddings", "trained embeddings, branches 4/L"
filled = functools.partial(of, EMBEDDINGS)
COLLAPSE = Item(
    "Section 5, subspace selection",
    "Rank collapse with depth explains why a random transformer, of which the embeddings alone are "
    "trained, works in a subspace.",
    {name: claims_theory.COVARIANCE.cells[name] for name in (EMBEDDINGS, SMALL_BRANCHES)},
    {
        "training the embeddings selects a subspace: at L = 32 tokens fill fewer dimensions": above(
            filled("before/dimensions/random/L=32"), filled("dimensions/random/L=32")
        ),
        "tokens fill fewer dimensions at L = 32 than at L = 2": above(
            0.0, filled("log_growth/dimensions/random")
        ),
        "tokens collapse: their cosine grows from L = 2 to 32": above(
            filled("log_growth/cosine/random"), 0.0
        ),
        "branches of 4/L collapse less: their cosine at L = 32 is lower": above(
            filled("cosine/random/L=32"), of(SMALL_BRANCHES, "cosine/random/L=32")
        ),
        "and they leave more dimensions at L = 32": above(
            of(SMALL_BRANCHES, "dimensions/random/L=32"), filled("dimensions/random/L=32")
        ),
    },
    checks={
        "the collapse of untrained networks leaves fewer dimensions too": above(
            0.0, filled("before/log_growth/dimensions/random")
        ),
    },
    metric="dimensions/random/L=32",
    note="The paper infers it from Table 6 and measures no subspace. Here the dimensions that the "
    "states of tokens fill are measured (participation ratio of their variance), and the collapse "
    "is weakened by smaller branches and nothing else: what collapse explains must go with it.",
)

TASKS = {
    "addition": "decimal addition",
    "modular_addition": "modular addition",
    "memorization": "memorisation",
    "dyck": "Dyck-1",
    "retrieval": "retrieval",
    "hops": "k-hop",
}
IN_CONTEXT = ("retrieval", "hops")


LITMUS = Item(
    "Section 5, litmus test",
    "MixiT is as good as Standard where a task needs no in-context reasoning, and fails in "
    "retrieval and k-hop, which need it.",
    {
        f"{variant}, {name}": Cell(f"configs/mixit/{task}.py:variant={variant}")
        for task, name in TASKS.items()
        for variant in ("standard", "mixit")
    }
    | {f"mixit, {TASKS[task]}": patient(task)[PATIENT] for task in LONGER},
    {
        f"MixiT is as good as Standard in {name}": above(
            score_of(task)(f"mixit, {name}"), score_of(task)(f"standard, {name}"), -0.02
        )
        for task, name in TASKS.items()
        if task not in IN_CONTEXT
    }
    | {
        "MixiT is .2 below Standard in retrieval": above(
            fresh("standard, retrieval"), fresh("mixit, retrieval"), 0.2
        ),
        "MixiT is .2 below Standard in k-hop, asked for one hop": above(
            of("standard, k-hop", ONE_HOP), of("mixit, k-hop", ONE_HOP), 0.2
        ),
    },
    checks={
        "MixiT is .2 below Standard over all of k-hop, half of which asks for no hop": above(
            of("standard, k-hop"), of("mixit, k-hop"), 0.2
        )
    },
    note="Which task needs it is the paper's judgement. `experiments/litmus.py` is this test for a "
    "task of one's own. The sentiment of reviews, its third example, needs the Yelp data. "
    f"{STEPS} {FRESH}",
    late=True,
)

PAPER = Paper(
    "random_attention",
    "Is random attention sufficient for sequence modeling?",
    "version B of arXiv 2506.01115, anonymous",
    (claims_theory.SDE, claims_theory.COVARIANCE, COLLAPSE, LITMUS, UNIVERSAL, SCALE),
)
