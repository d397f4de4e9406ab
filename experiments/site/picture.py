"""The figure of a run as an image that the page contains, in lossless WebP."""

import base64
import functools
import io
from html import escape
from pathlib import Path

from experiments.ledger import tables
from experiments.ledger.record import Record

WIDE_PIXELS = 600  # a wider image scrolls on a phone
N_METRICS = 3  # the number of metrics in the alternative text of an image


def image(record: Record) -> str:
    """Returns an <img> of the record's figure; "" if there is none."""
    if record.figure is None:
        return ""
    names = [*record.metrics][:N_METRICS]
    values = [f"{name} {tables.measured(record.metrics[name])}" for name in names]
    alt = escape(f"Figure of the run {record.config_file}: {', '.join(values)}")
    source, width, height = _webp(record.figure)
    css_class = ' class="wide"' if width > WIDE_PIXELS else ""
    size = f'width="{width}" height="{height}"'
    return f'<img alt="{alt}" {size}{css_class} loading="lazy" src="{source}">'


@functools.cache
def _webp(file: Path) -> tuple[str, int, int]:
    """Returns the data URL, the width and the height of a picture, on a white background."""
    from PIL import Image

    with Image.open(file) as opened:
        pixels = opened.convert("RGBA")
    flat = Image.new("RGB", pixels.size, "white")
    flat.paste(pixels, mask=pixels.getchannel("A"))
    content = io.BytesIO()
    flat.save(content, "WEBP", lossless=True, method=4)
    text = base64.b64encode(content.getvalue()).decode()
    return f"data:image/webp;base64,{text}", *flat.size
