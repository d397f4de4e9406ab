"""Questions of our own: which parts of SmolLM2 need an update, when it is fine-tuned on a text?

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


def item_of(text: str, name: str) -> Item:
    """The row of one text."""
    return Item(
        f"SmolLM2 fine-tuned on {name}",
        f"When SmolLM2 is fine-tuned on {name}, do adapters of rank 4 on the MLPs learn more than "
        "on attention, and are those on queries and keys not enough?",
        {"parts": cell_of("associations", "finetuned_parts", f"text={text}")},
        {
            "adapters on the MLPs gain more bits per byte than on attention": above(
                f"lead/{MLP}/{ATTENTION}", 0.0
            ),
            "adapters on queries and keys keep less than 95 % of what training everything gains": (
                above(ENOUGH, f"share/{QUERIES_KEYS}")
            ),
        },
        metric=f"share/{MLP}",
        note="Eight steps of 128 tokens: the runs show what is learnt first, and fit into ten "
        "minutes on a CPU. With rank 4, the MLPs have 1.6 times the trained parameters of "
        "attention. Before the rules were written, we had seen the gain of everything by rank 4 "
        "on another text, plays, and nothing about a part.",
        flags=(OURS,),
        checks={
            "adapters of rank 4 on all matrices keep 95 % of the gain": above(
                f"share/{ALL}", ENOUGH
            ),
        },
    )


ITEMS = (item_of("bible", "the King James text"), item_of("reviews", "film reviews"))
