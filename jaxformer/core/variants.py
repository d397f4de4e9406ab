"""The variants of a decoder: how it mixes tokens, and which of its parts stay random.

This is the one table of them. `jaxformer.train(task, model, "frozen_qk")`, the configs
(`variant=frozen_qk`), litmus and the pages read it. The first rule that matches the whole path of a
parameter decides. Nothing here needs JAX, so that a config can be read without it.
"""

from typing import NamedTuple

from jaxformer.core.errors import check_choice


class Variant(NamedTuple):
    """A token mixer, and the rules of the partition with which it is trained."""

    mixer: str  # of the decoder: "softmax" is attention, "mixit" a fixed random matrix
    rules: tuple[tuple[str, str], ...]  # (pattern, label)


VARIANTS: dict[str, Variant] = {
    "standard": Variant("softmax", ((".*", "train"),)),
    "frozen_qk": Variant("softmax", ((".*/(query|key)/.*", "frozen"), (".*", "train"))),
    "frozen_mlp": Variant("softmax", ((".*/mlp/.*", "frozen"), (".*", "train"))),
    "mixit": Variant("mixit", ((".*/mix", "frozen"), (".*", "train"))),
    "random": Variant("softmax", (("(embed|unembed)/.*", "train"), (".*", "frozen"))),
    "random_mixit": Variant("mixit", (("(embed|unembed|positions)/.*", "train"), (".*", "frozen"))),
}
# The variant random_mixit with frozen positions, which the papers' experiments on text have.
FIXED_POSITIONS: dict[str, Variant] = {
    "random_mixit_fixed": Variant("mixit", (("(embed|unembed)/.*", "train"), (".*", "frozen")))
}


def variant_named(name: str) -> Variant:
    """Returns the variant of a name; raises UserError if there is none."""
    known = VARIANTS | FIXED_POSITIONS
    check_choice("variant", name, known)
    return known[name]


def label(variant: str) -> str:
    """Returns the name of a variant for tables, such as "Frozen-QK" for "frozen_qk"."""
    spellings = {"qk": "QK", "mlp": "MLP", "mixit": "MixiT"}
    return "-".join(spellings.get(part, part.capitalize()) for part in variant.split("_"))
