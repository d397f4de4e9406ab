"""The claim on the order parameter U and the weights of sampled networks."""

from experiments.ledger.item import Item, cell_of
from experiments.ledger.rules import above

MAX_GAP = 0.05  # as a share of the norm of U

EFFECTIVE = Item(
    "Section 3, the order parameter and the weights",
    "The order parameter U is the posterior mean of V V', where V has the effective weights of "
    "each path.",
    {"weights": cell_of("attention_paths", "effective_weights")},
    {
        f"at N = {width} the mean of V V' differs from U by less than 5 % of its norm": above(
            MAX_GAP, f"gap/N={width}"
        )
        for width in (10, 100, 1000)
    },
    metric="gap/N=100",
    note="V V' is divided by the size of a token, n = 231. The relation is exact if V leaves out "
    "the input projection, as in the authors' code. docs/attention_paths.md has the exact relation "
    "with and without the projection. Single entries at N = 100 were known before the rules.",
    checks={
        "the difference is larger at N = 1000 than at N = 10": above("gap/N=1000", "gap/N=10"),
    },
    late=True,  # the rules were written after numbers were known
)

ITEMS = (EFFECTIVE,)
