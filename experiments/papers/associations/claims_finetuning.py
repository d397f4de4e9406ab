"""Questions of our own: which parts of a model need an update, when it is fine-tuned on a text?

The paper says that feed-forward layers store distributional associations. If so, a small update of
the MLPs should learn more of a text than the same update of attention, whatever the text.
"""

from experiments.ledger.item import OURS, Item, cell_of
from experiments.ledger.rules import above

# The share of the gain that an update which is enough keeps, as in `jaxformer anatomy`.
ENOUGH = 0.95
MLP, ATTENTION, QUERIES_KEYS, ALL = (
    f"{part}, rank 4" for part in ("MLP", "attention", "queries and keys", "everything")
)


def item_of(model: str, arguments: str, text: str, known: str) -> Item:
    """The row of one model and one text.

    Args:
      model: its name for people.
      arguments: those of the config.
      text: its name for people.
      known: what we had seen before the rules were written.
    """
    return Item(
        f"{model} fine-tuned on {text}",
        f"When {model} is fine-tuned on {text}, do adapters of rank 4 on the MLPs learn more than "
        "on attention, and are those on queries and keys not enough?",
        {"parts": cell_of("associations", "finetuned_parts", arguments)},
        {
            "adapters on the MLPs gain more bits per byte than on attention": above(
                f"lead/{MLP}/{ATTENTION}", 0.0
            ),
            "adapters on queries and keys keep less than 95 % of what training everything gains": (
                above(ENOUGH, f"share/{QUERIES_KEYS}")
            ),
        },
        metric=f"share/{MLP}",
        note="Eight steps of 128 tokens: the runs show what is learnt first, and fit into minutes "
        "on a CPU. With rank 4, the MLPs have 1.6 times the trained parameters of attention. "
        f"Before the rules were written, we had seen {known}.",
        flags=(OURS,),
        checks={
            "adapters of rank 4 on all matrices keep 95 % of the gain": above(
                f"share/{ALL}", ENOUGH
            ),
        },
    )


PLAYS = "the gain of everything by rank 4 on another text, plays, and nothing about a part"
SMOLLM2 = (
    "the numbers of SmolLM2, for which the rules were made. Of this model we had seen, on plays, "
    "that everything by rank 4 gains as much as the full update, both with these rates"
)

ITEMS = (
    item_of("SmolLM2", "text=bible", "the King James text", PLAYS),
    item_of("SmolLM2", "text=reviews", "film reviews", PLAYS),
    item_of("Gemma 3 270M", "text=reviews,model=gemma3", "film reviews", SMOLLM2),
)
