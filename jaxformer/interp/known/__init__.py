"""Networks whose circuit is known: eight set by hand, those that you compile, and random ones.

    known.network("induction")         a network that was set by hand (`by_hand`)
    known.compile(program)             the network of a program, and the circuit that follows
    known.random(seed, backup=True)    a random program, with what makes its circuit hard to find

A method that claims to find circuits should find these.
"""

from jaxformer.interp.known import builder
from jaxformer.interp.known.by_hand import EMBEDDED, LOGITS, NETWORKS, PREFIX, Edge, Known, network
from jaxformer.interp.known.compiled import Compiled
from jaxformer.interp.known.compiled import compile_program as compile
from jaxformer.interp.known.drawing import draw as random
from jaxformer.interp.known.exhaustive import smallest
from jaxformer.interp.known.program import (
    Aggregate,
    Backup,
    Cancelling,
    Choose,
    Copies,
    Count,
    Logic,
    Program,
    Select,
    Shares,
    Table,
    back,
    equal,
    everything,
    following,
    greater,
    less,
)
from jaxformer.interp.known.prompts import Pairs, value

__all__ = [
    "EMBEDDED",
    "LOGITS",
    "NETWORKS",
    "PREFIX",
    "Aggregate",
    "Backup",
    "Cancelling",
    "Choose",
    "Compiled",
    "Copies",
    "Count",
    "Edge",
    "Known",
    "Logic",
    "Pairs",
    "Program",
    "Select",
    "Shares",
    "Table",
    "back",
    "builder",
    "compile",
    "equal",
    "everything",
    "following",
    "greater",
    "less",
    "network",
    "random",
    "smallest",
    "value",
]
