"""Display of activations in a notebook."""

import html
from collections.abc import Mapping
from typing import Any


class Shown:
    """Activations as a notebook displays them; `print` gives a line for each."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = dict(values)

    def __repr__(self) -> str:
        return "\n".join(f"{name}  {x.dtype}{list(x.shape)}" for name, x in self.values.items())

    def _repr_html_(self) -> str:
        try:
            import treescope
        except ImportError:
            return f"<pre>{html.escape(repr(self))}</pre>"
        with treescope.active_autovisualizer.set_scoped(treescope.ArrayAutovisualizer()):
            return treescope.render_to_html(self.values)


def show(values: Mapping[str, Any]) -> Shown:
    """Returns a display of activations: interactive arrays in a notebook that has treescope.

    Args:
        values: {address: activation}, such as `capture` returns.

    Example:
        show(capture(model, params, tokens, names=["pattern"]))
    """
    return Shown(values)
