"""A reader of files compressed with Zstandard, which refuses a truncated file.

It needs the package `zstandard`. A damaged or truncated file raises `error_class()`.
"""

import io
from pathlib import Path
from typing import IO, Any

from jaxformer.core.errors import UserError

CHUNK_BYTES = 1024  # of compressed data; a chunk decompresses to at most 32 MiB


class ZstdStream(io.RawIOBase):
    """The decompressed bytes of a file, which consists of one or several Zstandard frames."""

    def __init__(self, file: Path):
        self.package = _package()
        self.source = open(file, "rb")  # noqa: SIM115 (closed by `close`)
        self.frame: Any = None  # the decompressor of the current frame, None between frames
        self.rest = b""  # compressed bytes that were read beyond the end of a frame
        self.content = b""  # decompressed bytes that were not read yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.content:
            chunk = self.rest or self.source.read(CHUNK_BYTES)
            self.rest = b""
            if not chunk:
                if self.frame is not None:
                    raise error_class()("the file ends within its data")
                return 0
            if self.frame is None:
                self.frame = self.package.ZstdDecompressor().decompressobj()
            self.content = self.frame.decompress(chunk)
            if self.frame.eof:
                self.rest, self.frame = self.frame.unused_data, None
        n = min(len(buffer), len(self.content))
        buffer[:n], self.content = self.content[:n], self.content[n:]
        return n

    def close(self) -> None:
        self.source.close()
        super().close()


def open_stream(file: Path) -> IO[bytes]:
    """Opens a compressed file for reading its decompressed bytes."""
    return io.BufferedReader(ZstdStream(file), 2**16)


def error_class() -> type[Exception]:
    """Returns the class of the errors that damaged data raises."""
    return _package().ZstdError


def _package() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UserError(
            "files that end in .zst need the package zstandard: pip install 'jaxformer[prepare]'."
        ) from None
    return zstandard
