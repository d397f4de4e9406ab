"""The fields of a config.json, each checked as it is read; a mistake names the field."""

from typing import Any

from jaxformer.core.errors import UserError, unknown
from jaxformer.core.hub_names import ACTIVATIONS


class Fields:
    """The fields of one config.json, each checked as it is read."""

    def __init__(self, held: dict[str, Any]):
        self.held = held

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number of at least 1, under the first of these names that is there."""
        name, value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{name} must be a whole number of at least 1, got {value!r}.")
        return value

    def number(self, *names: str, default: float) -> float:
        name, value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
            raise UserError(f"{name} must be a number in [0, 1e6], got {value!r}.")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        _, value = self._first((name,), default)
        if not isinstance(value, bool):
            raise UserError(f"{name} must be true or false, got {value!r}.")
        return value

    def activation(self, *names: str, default: str) -> str:
        name, value = self._first(names, default)
        if not isinstance(value, str):
            raise UserError(f"{name} must be the name of an activation, got {value!r}.")
        if value not in ACTIVATIONS:
            raise unknown(name, value, ACTIVATIONS)
        return ACTIVATIONS[value]

    def rule_out(self, name: str, *allowed: Any, why: str) -> None:
        """Raises if the field is there and is none of these values."""
        value = self.held.get(name)
        if value is not None and value not in allowed:
            raise UserError(f"{name}: {value!r} is not judged: {why}.")

    def _first(self, names, default):
        for name in names:
            if self.held.get(name) is not None:
                return name, self.held[name]
        return names[0], default
