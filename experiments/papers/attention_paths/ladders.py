"""Ladders of the attention-paths paper: finite width against its limit over N, one-shot images."""

from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import Side, of

WIDTHS = (25, 50, 100, 200, 400, 800)
ACCURACY = Ladder(
    "paths-width",
    "attention_paths: Figure 2c, top",
    "A network beats its limit of infinite width because it learns which paths to use. It learns "
    "less the wider it is, so the gain must vanish; the paper goes up to N = 1000.",
    "accuracy at width N minus that of the Gaussian process limit",
    "N, width",
    {
        "paths": Cell(
            "configs/attention_paths/accuracy.py:scale=small",
            {"figure.widths": f"{WIDTHS}", "figure.sampled_widths": "(100,)"},
        )
    },
    of("paths", "accuracy/N={size}"),
    of("paths", "accuracy/GP limit"),
    Trend("vanishes", 0.03),
    over({N: 0.5 for N in WIDTHS}),
    paper_size=1000,
    limits=(-1.0, 1.0),
    seen=WIDTHS,
)
IMAGES = "('runs/data/images_background_small1.zip', 'runs/data/images_background_small2.zip')"
ONE_SHOT = Cell("configs/attention_paths/oneshot.py:scale=small", {"data.paths": IMAGES})
CLASSES = over({40: 16, 80: 16, 160: 16}, {"data.classes": "({size}, 20, 62)"})
ONE_SHOT_GAIN = Ladder(
    "oneshot-classes-gain",
    "attention_paths: Figure 3b",
    "On new classes a finite network beats its limit of infinite width, so it must do so however "
    "many classes it has learned from; the paper has 1028.",
    "accuracy at width 10 minus that of the Gaussian process limit",
    "training classes",
    {"images": ONE_SHOT},
    of("images", "test/N=10_minus_GP"),
    Side("", "", 0.0),
    Trend("stays above", 0.0),
    CLASSES,
    paper_size=1028,
    limits=(-1.0, 1.0),
    seen=(160,),
)
ONE_SHOT_KERNEL = Ladder(
    "oneshot-classes-kernel",
    "attention_paths: Figure 3d",
    "A finite width aligns the kernel with the labels, so more of them must lie in its five "
    "leading components than in those of the limit, however many classes were learned.",
    "share of the labels in the five leading components, width 10 minus limit",
    "training classes",
    {"images": ONE_SHOT},
    of("images", "top5_overlap/N=10_minus_GP"),
    Side("", "", 0.0),
    Trend("stays above", 0.05),
    CLASSES,
    paper_size=1028,
    limits=(-1.0, 1.0),
    seen=(160,),
)

LADDERS = (ACCURACY, ONE_SHOT_GAIN, ONE_SHOT_KERNEL)
