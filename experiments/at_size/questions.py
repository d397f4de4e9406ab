"""The three experiments as data: questions, cells, controls, and the order of the runs.

A run is named EXPERIMENT/CELL/ROLE. Everything that decides a verdict stands here in words with
numbers, because the plan was fixed before `jaxformer.stats` could test its controls. The rules of
the first experiment are those of its rows at small batches, `claims_sizes`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments.at_size.due import (
    DIVERGED,
    HIGHEST,
    LEARNS,
    LONGER_HELPS,
    LOWEST,
    NEVER_LEARNS,
    UNSOLVED,
    When,
)
from experiments.ledger.rules import Rule
from experiments.papers.associations import claims_recall, claims_sizes
from experiments.papers.associations.claims_recall import GAIN_WITHOUT_F2, plateau


class Asked(NamedTuple):
    """A run before its seeds are drawn."""

    name: str
    config: str
    overrides: Mapping[str, str]
    seeds: int
    seconds: float  # CPU seconds on one core of a busy machine, measured over a few steps
    replica: int = 0  # runs of different replicas have different seeds and held-out sets
    when: When = When()
    rate_from: tuple[str, ...] = ()  # the runs whose best learning rate this one takes


ORDER = (
    "Runs are made in the order of `runs`, the first that is due first. With them go the rows of "
    "the second confirmation that have not run, by their own plan: `jaxformer confirm run "
    "--plan=confirmation/second/PLAN.json`, about 3 core hours."
)
CONTROLS = {
    "trained": "A network counts as trained if its best learning rate lies inside its grid and "
    "it has ended: it solved the task, or a run of twice the steps, from the start and with its "
    "own schedule, scores the same within the paired 95 % interval over its seeds.",
    "does not learn": "A network does not learn if with three learning rates (of which an inner "
    "one is best, or none does better than a guess), four times the steps with which the network "
    "of comparison learned, and five seeds it stays at or below a guess. A guess is the best "
    "trivial predictor; a loss counts as below that of token frequencies from .1 nats on.",
    "only the loser": "Only the network that does worse must be trained in this sense. A "
    "comparison whose loser is not trained reads 'not trained', never 'worse'.",
    "ceiling": "If both sides are above .995 they are at a ceiling: 'not needed at this size' may "
    "be said, a cost or a trend may not.",
    "two modes": "Seeds in two modes, such as seeds that solve a task and seeds that do not, are "
    "counted and not averaged.",
    "best rate": "The best rate has the best mean validation score of its seeds, the test set has "
    "no part in it. A rate at which a seed diverged counts only if one diverged at every rate. "
    "Accuracies that differ by less than .02 are equal: then the rate nearest to the middle of the "
    "grid is taken, the lower one of two.",
    "two more rates": "Two more rates are run only for a cell that learns and whose best rate is "
    "at an edge of its grid. If the best is at an edge of the wider grid too, the cell is not "
    "trained.",
    "learns": "A cell learns at a rate if every seed beats a guess on the test set there: a loss "
    "by .1 nats below token frequencies, an accuracy above all trivial predictors of its task.",
}

# 1. Associations at the paper's exact setting.

RECALL_CONFIG = "configs/associations/recall.py:scale=paper"
FINETUNE_CONFIG = "configs/associations/finetune.py:scale=paper"
RECALL = {
    "task.n_symbols": "65",
    "task.context": "256",
    "task.alpha": "0.5",
    "model.width": "256",
    "optim.learning_rate": "(0.03,)",
    "train.batch_size": "512",
    "train.steps": "2000",
    "train.accumulate": "64",  # the same gradient in less memory, and a third faster on a CPU
    "train.log_every": "5",
    "train.eval_every": "100",
    "recall.probe_every": "50",
    "recall.early": "20",
    "data.test_size": "512",
    "data.validation_size": "256",
}
FINETUNE = RECALL | {"train.steps": "3000", "recall.pretrain_steps": "1000"}
RECALL_SECONDS = 33_000.0  # 2,000 steps of 15.5 s and 50 probes of 33 s


def recall_seed(number: int) -> Asked:
    return Asked(
        f"associations/recall/seed-{number}",
        RECALL_CONFIG,
        RECALL,
        seeds=1,
        seconds=RECALL_SECONDS,
        replica=number,
    )


def recall_seed_slower(number: int) -> Asked:
    """The same seed at a third of the rate, if it diverges at the paper's largest."""
    return recall_seed(number)._replace(
        name=f"associations/recall/seed-{number}-slower",
        overrides=RECALL | {"optim.learning_rate": "(0.01,)"},
        when=When(DIVERGED, (f"associations/recall/seed-{number}",)),
    )


def finetune_seed(number: int) -> Asked:
    return Asked(
        f"associations/finetune/seed-{number}",
        FINETUNE_CONFIG,
        FINETUNE,
        seeds=1,
        seconds=1.5 * RECALL_SECONDS,
        replica=number,
    )


RECALL_NOISE_SYMBOL = Asked(
    "associations/recall-noise-symbol/seed-1",
    RECALL_CONFIG,
    RECALL | {"task.noise": "!"},
    seeds=1,
    seconds=RECALL_SECONDS,
    replica=1,
)
RECALL_RATE = Asked(
    "associations/recall-rate/seed-1",
    RECALL_CONFIG,
    RECALL | {"optim.learning_rate": "(0.01,)"},
    seeds=1,
    seconds=RECALL_SECONDS,
    replica=1,
)

RECALL_CLAIMS = {
    "Figure 3": (claims_recall.SURGERY, plateau(GAIN_WITHOUT_F2)),
    "Figure 4, left": (claims_sizes.ATTENTION, {}),
    "Figure 7": (claims_recall.memories(65), plateau("previous_token")),
    "Figure 8, left": (claims_sizes.PEAK, {}),
    "Figure 10": (claims_recall.BOTH_MLPS, plateau(GAIN_WITHOUT_F2)),
    "Figures 4 and 8, fine-tuning": (
        claims_recall.Claim(
            "After clean training attention does not prefer the answer to the noise; in "
            "fine-tuning the noise is learned first, and attention then avoids it.",
            {
                text: rule
                for text, rule in (
                    *claims_recall.ATTENTION.rules.items(),
                    *claims_recall.PEAK.rules.items(),
                )
                if any("finetune" in side.cells for side in rule.sides)
            },
        ),
        {},
    ),
}

ASSOCIATIONS = {
    "question": "Does the last feed-forward layer store the noise and attention the answer, at "
    "the paper's own size, data and number of steps?",
    "paper": "Distributional Associations vs In-Context Reasoning (arXiv 2406.03068), Figures 3, "
    "4, 7, 8 and 10, Section 3 and Appendix B.6",
    "setting": "N = 65 symbols of tiny Shakespeare and a separate noise token (the text; the code "
    "uses '!'), d = 256, T = 256, two layers with ReLU MLPs of 1,024 units, alpha = .5 in training "
    "and 0 in the test, batches of 512, 2,000 steps. As in the authors' code: SGD with rate .03 "
    "(the largest of the paper's .001 to .03), momentum .9 and weight decay 1e-4, the loss at all "
    "triggers from the second on, W_V = Wo Wv, W_Q = 1, scores divided by sqrt(d), the noise coin "
    "thrown anew at each trigger. The batch is computed in 64 parts, one after the other, which "
    "changes the gradient by rounding only. Examples are new at every step.",
    "seeds": "Three seeds, each a run of its own with its own held-out set, then two more. The "
    "verdict is given after three and again after five; both are printed, the last one counts.",
    "published": {
        "p(answer) without F2": 0.98,
        "p(noise), whole model": 0.5,
        "p(noise) in the first steps": 1.0,
    },
    "seen": "Three seeds at batch 16, rate .01 (the rows 'the paper's sizes'), seeds at d = 64 and "
    "128, and of this setting the first five steps of another seed, to time a step: p(noise) .91 "
    "after two steps and .72 after four.",
    "controls": "All numbers compare one network with cuts of itself, so no other network must "
    "be tuned. A seed that diverges is not replaced: it counts as diverged, is printed, and is run "
    "again at rate .01; then the rows are judged by the runs that did not diverge, with the word "
    "'diverged' beside the verdict, and the sentence 'stable for any rate between .001 and .03' "
    "did not hold. Whether a network is still moving is its change over the last 500 steps: at "
    "most .05 is a plateau; otherwise the verdict is printed with 'still moving at step 2,000'.",
    "holds": "Each figure by its rules below, each at 95 % by Student's t over the seeds, as rows "
    "of the ledger are, by `experiments.ledger.rules` and `jaxformer.stats` at the commit of this "
    "plan: it holds if all its rules hold.",
    "does not hold": "A rule fails whose p value stays below .05 when multiplied by the number of "
    "rules of its figure (Holm).",
    "open": "Anything else, a missing seed included.",
    "beside": "The curves of p(noise) and p(answer), of the whole model and without F2, over the "
    "steps; what the rows at batch 16 (1/32 of the data) had said, and whether they were right. "
    "One seed with '!' as noise and one with rate .01 are printed beside and decide nothing.",
}

# 2. Depth, rate, start.

MASKED_CONFIG = "configs/text/masked.py:curve={},scale=small"
STARTS = {"trainable": "trainable_2", "rank": "rank_collapse", "entropy": "entropy_1.5"}
RATES = ("1e-4", "3e-4", "8e-4", "2e-3")
LOWER_RATES, HIGHER_RATES = ("1.5e-5", "4e-5"), ("5e-3", "1.2e-2")
DEAD_RATES = ("1e-4", "3e-4", "8e-4")
DEPTH_STEPS = 3000
DEPTH_SECONDS = {16: 0.093, 32: 0.176}  # a step of one member


def grid(rates: tuple[str, ...]) -> str:
    return f"({', '.join(rates)},)"


def depth_run(
    start: str,
    layers: int,
    role: str,
    rates: tuple[str, ...] = (),
    seeds: int = 3,
    longer: int = 1,
    **more: Any,
) -> Asked:
    """A run of one start: all its rates and seeds in one program; warm-up is a tenth."""
    steps = longer * DEPTH_STEPS
    overrides = {
        "model.layers": f"{layers}",
        "train.batch_size": "32",
        "train.steps": f"{steps}",
        "optim.warmup": f"{steps // 10}",
        "train.eval_every": "250",
        "train.log_every": "25",
    }
    if rates:
        overrides["optim.learning_rate"] = grid(rates)
    members = seeds * max(len(rates), 1)
    return Asked(
        f"depth/{start}-{layers}/{role}",
        MASKED_CONFIG.format(STARTS[start]),
        overrides,
        seeds,
        round(members * steps * DEPTH_SECONDS[layers] + 60.0),
        **more,
    )


def depth_grid(start: str, layers: int) -> Asked:
    return depth_run(start, layers, "grid", RATES)


def depth_later(start: str, layers: int) -> list[Asked]:
    """Runs that depend on the grid: more rates, and twice the steps at the best rate."""
    cell = f"depth/{start}-{layers}"
    first = (f"{cell}/grid",)
    edges = (f"{cell}/lower", f"{cell}/higher")
    return [
        depth_run(start, layers, "lower", LOWER_RATES, when=When(LOWEST, first)),
        depth_run(start, layers, "higher", HIGHER_RATES, when=When(HIGHEST, first)),
        depth_run(
            start,
            layers,
            "double",
            longer=2,
            when=When(LEARNS, first),
            rate_from=(*first, *edges),
        ),
    ]


def depth_quadruple(start: str, layers: int) -> Asked:
    """Four times the steps at the best rate, where twice the steps still lower the loss."""
    cell = f"depth/{start}-{layers}"
    grids = (f"{cell}/grid", f"{cell}/lower", f"{cell}/higher")
    return depth_run(
        start,
        layers,
        "quadruple",
        longer=4,
        when=When(LONGER_HELPS, (f"{cell}/double", *grids)),
        rate_from=grids,
    )


def depth_dead(start: str, layers: int) -> Asked:
    """The control of 'does not learn': three rates, four times the steps, five seeds."""
    return depth_run(
        start,
        layers,
        "dead",
        DEAD_RATES,
        seeds=5,
        longer=4,
        when=When(NEVER_LEARNS, (f"depth/{start}-{layers}/grid",)),
    )


DEPTH = {
    "question": "Does a good start buy a lower loss, or only a larger stable learning rate?",
    "paper": "Two failure modes of deep transformers (arXiv 2505.24333), Figures 1f and 4",
    "setting": "Post-norm encoders of width 64 and 4 heads on masked tiny Shakespeare (BPE of "
    "1,024 tokens, windows of 32), batches of 32, AdamW with weight decay .01, clipping at 1, a "
    "linear schedule after a warm-up of a tenth. Starts: trainable beta = 1, alpha_SA = 1.5; rank "
    "collapse beta = .5, alpha_SA = .1; entropy collapse beta = 4, alpha_SA = 1. Rates 1e-4 (the "
    "paper's), 3e-4, 8e-4 and 2e-3 for all starts, three seeds that all starts share.",
    "steps": "3,000 for the grid, 6,000 at the best rate of each start, and 12,000 there if 6,000 "
    "are better than 3,000. 3,000 because a member of 16 layers took 186 CPU s for 2,000 steps: "
    "the grid of 36 members takes 2.8 core hours, twice the steps at the best rate of each start "
    "1.4, which is within the 6 that are planned; 12,000 steps take 2.8 more. A grid of 6,000 "
    "steps would take 5.6 hours without any control.",
    "published": "Figure 1f prints curves and no numbers: collapsed starts fail to train.",
    "seen": "At 16 layers, rate 2e-3, 2,000 steps, other seeds: trainable 5.60 to 5.65, rank "
    "collapse 5.754 to 5.762, token frequencies 5.754. At 32 layers one seed of the trainable "
    "start at 3e-4 reached 5.690. Other rates of collapsed starts had not been seen.",
    "sizes": "16 layers first. 32 layers are planned and stand last.",
    "printed": "For each start: the largest rate at which it learns, and the loss there; the best "
    "rate and the loss there after 3,000, 6,000 and, where they ran, 12,000 steps.",
    "controls": "All of `controls`. The network of comparison is the trainable start, which learns "
    "with 3,000 steps, or the trainable start is the one that does not learn: then nothing is said "
    "about the others at this depth. Four times the steps are 12,000. The run 'double' has the "
    "seeds of the grid, so that 3,000 and 6,000 steps are compared seed by seed: 'the same' is a "
    "paired 95 % interval that includes 0 or lies within .02 nats of it. Where 6,000 steps are "
    "better than 3,000 by more than .02 nats, 12,000 are run ('quadruple') and compared with 6,000 "
    "in the same way. A start that still gains is not trained, and a comparison that it loses is "
    "open.",
    "rules": {
        "fails to train (Figure 1f), for each collapsed start": "Holds if the start does not learn "
        "by the control (run 'dead'). Does not hold if it learns at a rate. Open otherwise, also "
        "if some of the seeds learn at a rate (they are counted).",
        "buys a lower loss, for each collapsed start that learns": "The loss of the collapsed "
        "start minus that of the trainable one, each at its own best rate and after the most steps "
        "that both ran there (6,000 or 12,000), seed by seed on the same test examples. Holds if "
        "the 95 % interval lies above .02 nats and the collapsed start is trained. Does not hold "
        "if the interval lies below .02 nats and the trainable start is trained. Open otherwise.",
        "buys a larger stable rate, for each collapsed start": "The largest rate at which the "
        "trainable start learns within 3,000 steps over that of the collapsed one. Holds if it is "
        "at least 2.5 (one step of the grid) and both are inside the rates that were run. Does not "
        "hold if it is 1 or less. Open otherwise. If a start learns at the highest rate that was "
        "run, its largest rate is only known to be at least that.",
    },
}

# 3. MixiT: heads and digits.

ADDITION_CONFIG = "configs/mixit/addition.py:variant={},scale=small"
ADDITION_RATES = ("3e-4", "1e-3", "3e-3")
ADDITION_LOWER, ADDITION_HIGHER = ("3e-5", "1e-4"), ("6e-3", "1e-2")
SEARCH_STEPS, ADDITION_STEPS = 4000, 16_000
ADDITION_SECONDS = {"mixit": 0.17, "standard": 0.22}  # a step of one member
SOLVED = "0.95"


def addition_run(
    variant: str,
    heads: int,
    digits: int,
    role: str,
    steps: int,
    rates: tuple[str, ...] = (),
    seeds: int = 3,
    **more: Any,
) -> Asked:
    """A run of one network of width 256; it stops when all seeds of a rate have solved the task."""
    overrides = {
        "task.digits": f"{digits}",
        "model.width": "256",
        "model.mlp_width": "1024",
        "model.layers": "2",
        "model.heads": f"{heads}",
        "train.batch_size": "32",
        "train.steps": f"{steps}",
        "train.target": SOLVED,
        "train.eval_every": "200",
        "train.log_every": "20",
        "optim.warmup": "200",
    }
    if rates:
        overrides["optim.learning_rate"] = grid(rates)
    members = seeds * max(len(rates), 1)
    return Asked(
        f"addition/{variant}-{heads}-{digits}/{role}",
        ADDITION_CONFIG.format(variant),
        overrides,
        seeds,
        round(members * steps * ADDITION_SECONDS[variant] + 60.0),
        **more,
    )


def addition(variant: str, heads: int, digits: int) -> list[Asked]:
    """A search for the rate with one seed, then three other seeds at the best rate."""
    cell = f"addition/{variant}-{heads}-{digits}"
    first = (f"{cell}/search",)
    searched = (*first, f"{cell}/lower", f"{cell}/higher")
    search = {"steps": SEARCH_STEPS, "seeds": 1, "replica": 1}
    args = (variant, heads, digits)
    return [
        addition_run(*args, "search", rates=ADDITION_RATES, **search),
        addition_run(*args, "lower", rates=ADDITION_LOWER, when=When(LOWEST, first), **search),
        addition_run(*args, "higher", rates=ADDITION_HIGHER, when=When(HIGHEST, first), **search),
        addition_run(*args, "final", ADDITION_STEPS, rate_from=searched),
    ]


def addition_double(heads: int, digits: int) -> Asked:
    cell = f"addition/mixit-{heads}-{digits}"
    return addition_run(
        "mixit",
        heads,
        digits,
        "double",
        2 * ADDITION_STEPS,
        when=When(UNSOLVED, (f"{cell}/final",)),
        rate_from=(f"{cell}/search", f"{cell}/lower", f"{cell}/higher"),
    )


ADDITION = {
    "question": "Do heads decide whether MixiT adds, as Table 5 says (34.7 % with 16 heads, 50.7 "
    "with 64, 91.9 with 256), or does it add with 64 heads, as Table 1 says (100 %)?",
    "paper": "Attention Retrieves, MLP Memorizes (arXiv 2506.01115), Tables 1 and 5, ten digits",
    "setting": "Decimal addition of 8 digits, then 6, as in the authors' code (the units digit is "
    "not scored). Width 256 and two layers for all, so that heads are not confounded with width; "
    "the paper has width 512 and 8 layers. MixiT with 16, 64 and 256 heads, and Standard with 16 "
    "and 64 beside: 256 heads of width 1 cannot turn by rotary positions, so that Standard with 64 "
    "heads stands beside MixiT with 256. New examples at every step (the paper has 50,000), "
    "batches of 32, AdamW, cosine after 200 steps of warm-up.",
    "steps": "One seed searches the rate (3e-4, 1e-3, 3e-3) with 4,000 steps. Three other seeds "
    "run at the best rate for at most 16,000 steps and stop once all have 95 % of the digits right "
    "in validation. 16,000 instead of 20,000 steps, and batches of 32 instead of 128, because a "
    "step of a member takes .17 CPU s on a busy machine (128: .6 s): so a cell of MixiT that does "
    "not solve the task takes 2.8 core hours.",
    "published": {"4": 0.3471, "16": 0.347, "64": 0.5072, "256": 0.9187, "Table 1, 64": 1.0},
    "seen": "At width 64, 16 heads, 8 digits, five other seeds after 5,000 steps of 128: .40 to "
    ".61, in stairs of a digit each. At width 256 the training loss of 30 "
    "steps, to time them.",
    "measured": "The step at which a seed's validation accuracy first reaches .95, at validations "
    "every 200 steps; a seed that does not reach it is censored at its last step. Seeds that solve "
    "are counted. Accuracies rise by stairs, so they are listed and never averaged.",
    "controls": "All of `controls`; a cell solves the task if three of three seeds reach .95. A "
    "cell of MixiT in which a seed does not is run again with 32,000 steps (run 'double'); it is "
    "then trained if its best rate is inside its grid and each seed ends on the same stair, within "
    ".02 in accuracy, as with 16,000 steps, or has solved it.",
    "rules": {
        "MixiT adds 8 digits with 64 heads (Table 1)": "Holds if three of three seeds solve it "
        "within 16,000 or 32,000 steps. Does not hold if none does and the cell is trained, while "
        "Standard with 64 heads solves it. Open otherwise, with the count.",
        "heads decide (Table 5): 256 against 16, and 64 against 16": "Holds if all three seeds of "
        "the cell with more heads solve the task before the first seed with 16 heads does (of 20 "
        "orders of six seeds one: p = .05), and the best rate of 16 heads is inside its grid. "
        "Does not hold if all three seeds with 16 heads solve it and the median of their steps "
        "is not above that of the cell with more heads. Open otherwise.",
        "Standard beside": "If Standard with as many heads does not solve the task, the cell is "
        "too hard for these steps and says nothing about MixiT.",
    },
    "sizes": "8 digits first; 6 digits, with Standard at 64 heads, are planned and stand later.",
}


def all_runs() -> Iterator[Asked]:
    """All runs, in the order in which they are made."""
    # The first answers of each experiment.
    yield recall_seed(1)
    for start in STARTS:
        yield depth_grid(start, 16)
    yield from addition("mixit", 64, 8)
    yield from addition("standard", 64, 8)
    yield from addition("mixit", 256, 8)
    # The required seeds, and what the controls ask for.
    yield recall_seed(2)
    for start in STARTS:
        yield from depth_later(start, 16)
    yield recall_seed(3)
    for number in (1, 2, 3):
        yield recall_seed_slower(number)
    yield from addition("mixit", 16, 8)
    yield from addition("standard", 16, 8)
    for heads in (64, 256, 16):
        yield addition_double(heads, 8)
    for start in STARTS:
        yield depth_quadruple(start, 16)
    # What is worth having afterwards.
    for start in STARTS:
        yield depth_dead(start, 16)
    yield recall_seed(4)
    yield recall_seed(5)
    for number in (1, 2, 3):
        yield finetune_seed(number)
    for number in (4, 5):
        yield recall_seed_slower(number)
    for heads in (64, 256, 16):
        yield from addition("mixit", heads, 6)
    yield from addition("standard", 64, 6)
    for heads in (64, 256, 16):
        yield addition_double(heads, 6)
    yield RECALL_NOISE_SYMBOL
    yield RECALL_RATE
    for start in STARTS:
        yield depth_grid(start, 32)
    for start in STARTS:
        yield from depth_later(start, 32)
    for start in STARTS:
        yield depth_quadruple(start, 32)
        yield depth_dead(start, 32)


def rules_in_words(rules: Mapping[str, Rule]) -> dict[str, Any]:
    return {text: list(rule) for text, rule in rules.items()}


def experiments() -> dict[str, Any]:
    """All that is fixed before the runs, as values that JSON can hold."""
    figures = {
        figure: {
            "claim": claim.sentence,
            "rules": rules_in_words(claim.rules),
            "checks, which decide nothing": rules_in_words(checks),
        }
        for figure, (claim, checks) in RECALL_CLAIMS.items()
    }
    return {
        "order": ORDER,
        "controls": CONTROLS,
        "associations": ASSOCIATIONS | {"figures": figures},
        "depth": DEPTH,
        "addition": ADDITION,
    }
