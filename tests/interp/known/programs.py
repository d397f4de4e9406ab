"""Programs of every step that fit into one small shape, so that one compiled network serves all."""

import functools

import numpy as np

from jaxformer.interp import circuits, known
from jaxformer.interp.known import Aggregate, back

V, T = 7, 6
N_PAIRS = 16
SHAPE = dict(heads=3, layers=2, width=52, head_width=8, mlp_width=64)
SWAPPED = (0, 3, 1, 2, 6, 4, 5)
SUMS = tuple(tuple((a + b) % V for b in range(V)) for a in range(V))
TWO_BACK = Aggregate(back(2), "token")

PROGRAMS = {
    "copy": {"answer": TWO_BACK},
    "table": {"there": TWO_BACK, "answer": known.Table("there", SWAPPED)},
    "logic": {"there": TWO_BACK, "answer": known.Logic("there", "token", SUMS)},
    "shift of shift": {"there": Aggregate(back(1), "token"), "answer": Aggregate(back(2), "there")},
    "induction": {
        "before": Aggregate(back(1), "token"),
        "answer": Aggregate(known.equal("token", "before"), "token"),
    },
    "count equal": {"answer": known.Count(known.equal("token", "token"))},
    "count less": {"answer": known.Count(known.less("token", "token"))},
    "count greater": {"answer": known.Count(known.greater("token", "token"))},
    "next": {"answer": Aggregate(known.following("token", "token"), "token")},
    "majority": {"answer": Aggregate(known.everything(), "token")},
    "copies": {"answer": known.Copies(TWO_BACK, 2)},
    "shares": {"answer": known.Shares(TWO_BACK, (0.3, 0.7))},
    "backup": {"answer": known.Backup(TWO_BACK)},
    "choose": {"answer": known.Choose(5, Aggregate(back(1), "token"), TWO_BACK, 0.2)},
    "cancelling": {
        "pair": known.Cancelling(Aggregate(back(3), "token"), 1.5),
        "answer": TWO_BACK,
    },
    "useless": {"unread": Aggregate(back(3), "token"), "answer": TWO_BACK},
}


def program_of(name):
    return known.Program(V, T, PROGRAMS[name])


@functools.cache
def compiled(name, seed=None):
    dressing = {} if seed is None else dict(seed=seed, idle=1, rotated=True)
    return known.compile(program_of(name), **SHAPE, **dressing)


@functools.cache
def pairs_of(name):
    return compiled(name).sample(N_PAIRS)


@functools.cache
def wiring_of(name, ablation, seed=None):
    network = compiled(name, seed)
    return circuits.Wiring(
        *(network.model, network.params, *pairs_of(name)),
        ablation=ablation,
        metric=network.metric,
    )


def all_prompts():
    """Every prompt of four further tokens after a fixed beginning, (prompts, T)."""
    letters = np.arange(1, V)
    grid = np.stack(np.meshgrid(*[letters] * 4, indexing="ij"), -1).reshape(-1, 4)
    beginning = np.tile([0, 2], (len(grid), 1))
    return np.concatenate([beginning, grid], 1)
