"""Which sampled numbers count: those of chains that are known to be trusted.

A posterior job judges its chains at its end, and its record says `trusted`. An older record says
what its chains said of themselves, and that is judged here; a figure with sampled points says it of
each of them, and where it does not the points have no known error.
"""

from collections.abc import Mapping
from typing import Any

from theory.attention_paths.diagnostics import doubts

NOT_TRUSTED = "its chains are not to be trusted"  # how the reason of such a record begins
SAMPLED = {"paths_accuracy": "accuracy_sampled", "paths_order_parameter": "E[U]/"}


def distrust(content: Mapping[str, Any]) -> str:
    """Why the record of a posterior decides nothing, or ""."""
    if content["config"].get("recipe") != "posterior":
        return ""
    found = content.get("diagnostics")
    against = doubts(found) if isinstance(found, Mapping) else ["it says nothing about them"]
    if content.get("trusted") is False and not against:
        against = ["it says so itself"]
    return f"{NOT_TRUSTED}: {'; '.join(against)}." if against else ""


def known(content: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a record, without errors where nobody knows what its chains were like."""
    metrics, figure = content["metrics"], content["config"].get("figure", {})
    sampled = SAMPLED.get(figure.get("name", "")) if isinstance(figure, Mapping) else None
    if sampled is None or content.get("diagnostics"):
        return metrics
    return {
        name: value | {"sem": None} if name.startswith(sampled) else value
        for name, value in metrics.items()
    }
