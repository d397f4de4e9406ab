"""Whether a record agrees with itself: its members have its seeds, and its means are theirs.

The checksum of a record shows only that it was not damaged, since whoever edits it can compute that
again. A mean that is no longer that of its members, or a seed that was not drawn, shows an edit.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.ledger.record import Record
from jaxformer.io.atomic_files import json_value
from jaxformer.training.metrics import over_seeds

WITHOUT_MEMBERS = ("solve", "posterior")  # recipes that record the means over their samples alone
PRECISION = 1e-6  # relative: the metrics are float32


def disagreement(record: Record, n_seeds: int) -> str:
    """Returns what does not agree, or "" (see `_disagreement`)."""
    try:
        return _disagreement(record, n_seeds)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return f"a member has an odd form, {type(error).__name__}"


def _disagreement(record: Record, n_seeds: int) -> str:
    """Returns what does not agree, or "".

    Args:
        record: the record of a planned run, whose config is that of the plan.
        n_seeds: the number of its seeds.
    """
    drawn = [record.config["seed"] + i for i in range(n_seeds)]
    if record.seeds != drawn:
        return f"its seeds are {record.seeds}, and the plan draws {drawn}"
    if record.config["recipe"] in WITHOUT_MEMBERS:
        return ""
    # Members at the chosen learning rate. Members without this mark, as in figures, all count.
    chosen = [m for m in record.members if m.get("chosen", True)]
    found = sorted(m.get("seed", -1) for m in chosen)
    if found != drawn:
        return f"its members have the seeds {found}, and the plan draws {drawn}"
    converged = [m for m in chosen if m.get("diverged_at") is None]
    for name, value in record.metrics.items():
        if not any(_is_mean_of(value, name, members) for members in (chosen, converged)):
            return f"its {name} is not the mean of its members"
    return ""


def _is_mean_of(value: Mapping[str, Any], name: str, members: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a metric is the mean of those of the members; True if no member has this metric."""
    scores = [member["metrics"][name] for member in members if name in member["metrics"]]
    means = [score["mean"] for score in scores if score["mean"] is not None]
    if not scores:
        return True
    expected = json_value(over_seeds(means)) if means else {"mean": None, "sem": None, "n": 0}
    return all(_is_equal(value[field], expected[field]) for field in ("mean", "sem", "n"))


def _is_equal(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=PRECISION, abs_tol=1e-9)
