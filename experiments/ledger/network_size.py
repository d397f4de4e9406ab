"""Sizes of networks as width × layers, for our runs and for the paper's."""

from collections.abc import Mapping
from typing import Any

from experiments.cli import flags
from experiments.ledger.item import OURS, config_string
from experiments.ledger.ledger import Row
from jaxformer.core.errors import UserError


def sizes(row: Row) -> str:
    """Returns the size of a row's networks against the paper's, such as "64 × 2 of 512 × 8".

    It is "" for rows without records or networks. The paper's size is left out for our own
    questions.
    """
    for name, record in row.records.items():
        if ours := network_size(record.config):
            cell = row.item.cells[name]
            if OURS in row.item.flags:
                return ours
            # Overrides of the width shrink our networks; the scale "paper" has the paper's width.
            overrides = {n: v for n, v in cell.overrides.items() if n != "model.width"}
            try:
                paper_config = flags.load_with_overrides(config_string(cell, "paper"), overrides)
            except UserError:  # the config has no scale "paper"
                return ours
            return f"{ours} of {network_size(flags.to_dict(paper_config))}"
    return ""


def network_size(config: Mapping[str, Any]) -> str:
    """Returns "width × layers" of the networks of a config; "" without networks.

    A figure of several models has the size of the first.
    """
    section = config.get("model") or config.get("figure") or {}
    models = section.get("models") or {"": section}  # of a single model, the section is its config
    model, *_ = models.values()
    width = model.get("width") or _range(model.get("widths") or ())
    layers = _range(section.get("depths") or ()) if "models" in section else ""
    parts = [width, layers or model.get("layers") or _list_length(model)]
    return " × ".join(str(part) for part in parts if part)


def _range(values: Any) -> str:
    if not isinstance(values, list | tuple) or not values:
        return ""
    return f"{min(values)} to {max(values)}"


def _list_length(section: Mapping[str, Any]) -> int:
    """Returns the number of layers of a model whose config lists one entry for each layer."""
    lists = (section.get(name) for name in ("feed_forward", "heads"))
    return next((len(parts) for parts in lists if isinstance(parts, list | tuple)), 0)
