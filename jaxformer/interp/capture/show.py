"""Display of activations in a notebook, and attention maps as a file for a browser."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxformer.interp.capture import attention_page
from jaxformer.io.atomic_files import write_atomically


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

    def save(self, file: str | Path, tokens: Sequence[str] = (), example: int = 0) -> Path:
        """Writes the attention maps among the activations as one HTML file.

        Args:
            file: such as heads.html
            tokens: the texts of the tokens; their positions without any
            example: which one of the batch
        """
        write_atomically(Path(file), attention_page.page(self.values, tokens, example).encode())
        return Path(file)


def show(values: Mapping[str, Any]) -> Shown:
    """Returns a display of activations: interactive arrays in a notebook that has treescope.

    Args:
        values: {address: activation}, such as `capture` returns.

    Example:
        show(capture(model, params, tokens, names=["pattern"]))
        show(maps).save("heads.html", [*prompt])  # all heads, in a browser
    """
    return Shown(values)
