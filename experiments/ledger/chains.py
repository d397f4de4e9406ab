"""Decides whether sampled numbers count: the Markov chains of their record must have converged.

A posterior run judges its chains and stores `trusted`. Older records store diagnostics only, which
are judged here. Points of a figure that were sampled without diagnostics have no known error.
"""

from collections.abc import Mapping
from typing import Any

from theory.attention_paths.diagnostics import doubts

NOT_TRUSTED = "its chains are not to be trusted"  # the beginning of the reason
# {figure: the beginning of the names of its sampled metrics}
SAMPLED = {"paths_accuracy": "accuracy_sampled", "paths_order_parameter": "E[U]/"}


def distrust(content: Mapping[str, Any]) -> str:
    """Returns why the record of a posterior decides nothing; "" if it counts."""
    if content["config"].get("recipe") != "posterior":
        return ""
    diagnostics = content.get("diagnostics")
    reasons = doubts(diagnostics) if isinstance(diagnostics, Mapping) else ["it has no diagnostics"]
    if content.get("trusted") is False and not reasons:
        reasons = ["the run stored that they are not"]
    return f"{NOT_TRUSTED}: {'; '.join(reasons)}." if reasons else ""


def trusted_metrics(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metrics and timings of a record, with standard errors only if they are known.

    Sampled metrics of a figure without diagnostics get no standard error. Older records have their
    timings among the metrics.
    """
    figure = content["config"].get("figure", {})
    timing = content.get("timing") or {}
    timing_metrics = {name: {"mean": value, "sem": None, "n": 0} for name, value in timing.items()}
    metrics = content["metrics"] | timing_metrics
    sampled = SAMPLED.get(figure.get("name", "")) if isinstance(figure, Mapping) else None
    if sampled is None or content.get("diagnostics"):
        return metrics
    return {
        name: value | {"sem": None} if name.startswith(sampled) else value
        for name, value in metrics.items()
    }
