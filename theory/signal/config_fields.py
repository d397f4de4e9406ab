"""Access to the fields of a config.json that checks types and ranges."""

from typing import Any

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.pretrained.config_numbers import ACTIVATIONS
from theory.checks import check_count


class ConfigFields:
    """The fields of one config.json. Error messages name the field.

    Each method takes one or several names of a field and reads the first that is present. A field
    that is absent or null has the default.
    """

    def __init__(self, values: dict[str, Any]):
        self.values = values

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Returns a whole number of at least `least`."""
        name, value = self._first(names, default)
        check_count(name, value, least)
        return int(value or 0)

    def number(self, *names: str, default: float) -> float:
        """Returns a number in [0, 1e6]."""
        name, value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
            raise UserError(f"{name} must be a number in [0, 1e6], got {value!r}.")
        return float(value)

    def flag(self, name: str) -> bool:
        """Returns true or false; an absent field is false."""
        _, value = self._first((name,), False)
        if not isinstance(value, bool):
            raise UserError(f"{name} must be true or false, got {value!r}.")
        return value

    def activation(self, *names: str, default: str) -> str:
        """Returns the name of an activation in `jaxformer.models.activations`."""
        name, value = self._first(names, default)
        if not isinstance(value, str):
            raise UserError(f"{name} must be the name of an activation, got {value!r}.")
        if value not in ACTIVATIONS:
            raise unknown(name, value, ACTIVATIONS)
        return ACTIVATIONS[value]

    def require(self, name: str, *allowed: Any, reason: str) -> None:
        """Raises UserError if the field is present with a value that is not allowed."""
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise UserError(f"{name}: {value!r} is not supported: {reason}.")

    def _first(self, names, default):
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        return names[0], default
