"""Names of a package that are imported on first use, so that importing the package is quick."""

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package.

    A wrong name is answered with the closest right one, and tab completion shows all.

    Args:
        package: the `__name__` of the package.
        places: {name: "module:attribute", or "module" if the name is a module}.

    Example:
        __getattr__, __dir__ = lazy.names(__name__, {"train": "jaxformer.api:train"})
    """

    def get(name: str) -> Any:
        if name not in places:
            close = difflib.get_close_matches(name, places, n=1)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            message = f"module {package!r} has no attribute {name!r}{hint}"
            raise AttributeError(message)
        module, _, attribute = places[name].partition(":")
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found

    def listed() -> list[str]:
        return sorted({*places, *(n for n in vars(sys.modules[package]) if n.startswith("__"))})

    return get, listed
