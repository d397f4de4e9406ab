"""A run's own figure as an image of the page: vectors where its record can draw it, else pixels."""

import base64
import functools
import io
import math
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from experiments.ledger import tables
from experiments.ledger.record import Record
from experiments.site import redraw

# A figure says what it shows in its own title; this is for those who cannot see it.
ALT = "Figure of the run {where}: {words}"
# A drawing of lines and letters keeps its size and a few colours; what needs more is a photograph.
COLOURS, SEEN = (8, 16), 7.0  # how many; and how far one may move (of 255, in the mean square)
WIDEST, QUALITY = 860, 21  # pixels of a photograph: a page shows it hardly wider
NARROWER, LARGE = 640, 22_000  # and of one that would take more bytes than this
WIDE = 600  # pixels: what is wider scrolls on a phone
VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class _Once:
    """A record as a key, equal to itself alone: several rows show the same run."""

    def __init__(self, record: Record):
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once) and self.record is other.record


def image(record: Record, file: Path | None) -> str:
    """An <img> that needs no other file; "" if its record draws nothing and there is no picture."""
    return _image(_Once(record), file)


@functools.lru_cache(128)
def _image(of: _Once, file: Path | None) -> str:
    record = of.record
    words = ", ".join(f"{n} {tables.measured(record.metrics[n])}" for n in [*record.metrics][:3])
    alt = escape(ALT.format(where=record.config_file, words=words))
    svg = redraw.drawing(record, redraw.LARGEST if file else math.inf)
    size = VIEW.search(svg)
    if size:
        wide, high = (round(float(length) * 4 / 3) for length in size.groups())
        source = "data:image/svg+xml," + _in_attribute(svg)
    elif file:
        source, wide, high = _pixels(file)
    else:
        return ""
    kind = ' class="wide"' if wide > WIDE else ""
    return f'<img alt="{alt}" width="{wide}" height="{high}"{kind} loading="lazy" src="{source}">'


def _in_attribute(svg: str) -> str:
    """The drawing as the rest of a data: address."""
    svg = re.sub(r"<[^>]*>", lambda tag: tag[0].replace('"', "'"), svg)
    return quote(svg, safe=" =:/;,()'<>!?@*+-._~[]{}|^$&").replace("&", "&amp;")


@functools.cache
def _pixels(file: Path) -> tuple[str, int, int]:
    """(address, width, height) of the picture as WebP."""
    from PIL import Image, ImageChops, ImageStat

    with Image.open(file) as opened:
        flat, seen = Image.new("RGB", opened.size, "white"), opened.convert("RGBA")
        flat.paste(seen, mask=seen.getchannel("A"))
    wide, high = flat.size
    ways = [(_smaller(flat), {"quality": QUALITY})]
    for colours in COLOURS:
        kept = flat.quantize(colours, dither=Image.Dither.NONE).convert("RGB")
        if max(ImageStat.Stat(ImageChops.difference(flat, kept)).rms) < SEEN:
            ways.append((kept, {"lossless": True}))
            break
    shortest = min((_written(image, way) for image, way in ways), key=len)
    if len(shortest) > LARGE:
        shortest = _written(_smaller(flat, NARROWER), {"quality": QUALITY})
    text = base64.b64encode(shortest).decode()
    return f"data:image/webp;base64,{text}", wide, high


def _smaller(image: Any, widest: int = WIDEST) -> Any:
    """The image, no wider than a page shows it."""
    if image.width <= widest:
        return image
    return image.resize((widest, round(image.height * widest / image.width)))


def _written(image: Any, way: dict[str, Any]) -> bytes:
    image.save(file := io.BytesIO(), "WEBP", method=6, **way)
    return file.getvalue()
