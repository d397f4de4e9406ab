"""Reads plain text in pieces; defines the pieces, lines and checks that all readers share.

A reader is a function (file, start, ..) that yields `Piece`s. To resume, it is called with the
`after` of the last piece as its `start`. Errors name the offset of a wrong byte in the file. A byte
order mark at the beginning of a file is skipped. `row_readers.py` reads files with a row for each
document.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.core.text_format import byte_size

# Bounds of the size of a block, in bytes. A piece belongs to one part (training, validation or
# test). A short text has smaller blocks, so that its parts are close to the requested shares.
MAX_BLOCK_BYTES, MIN_BLOCK_BYTES = 2**16, 2**9
BLOCKS_WITHOUT_BREAK, BLOCKS_WITHOUT_SPLIT = 4, 16  # see _split_point
MAX_LINE_BYTES = 2**26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACES = b" \t\r\n\v\f"
BEFORE_MARK = re.compile(r"[^\W_](?=[,.;:!?…、。，；：！？])")  # a letter or a digit


class Piece(NamedTuple):
    """A piece of a document."""

    text: str
    ends: bool  # True for the last piece of a document
    label: Any  # None if documents have no classes
    after: int  # start of the next piece: a byte offset or a record number


def read_text(file: Path, start: int, documents: str) -> Iterator[Piece]:
    """Reads plain text in which each "file" or each "line" is a document.

    A file is split where tokenizers begin a token (`_split_point`), so that its tokens equal those
    of the whole text. A line is never split. Blank lines are skipped.

    Args:
        start: the offset at which reading begins: 0, or the `after` of a piece.
        documents: "file" or "line".
    """
    size = _size(file)
    # 500 blocks: a part is then within 0.2 % of its requested share.
    block_size = min(max(size // 500, MIN_BLOCK_BYTES), MAX_BLOCK_BYTES)
    with open(file, "rb") as stream:
        offset = start or text_start(stream)
        stream.seek(offset)
        read_blocks = _blocks_of_lines if documents == "line" else _blocks_of_tokens
        for block in read_blocks(stream, file, offset, block_size):
            text, after = decode_utf8(block, file, offset), offset + len(block)
            if documents == "file":
                yield Piece(text, after >= size, None, after)
            else:
                line_end = offset
                for line in io.StringIO(text, newline="\n"):  # only \n ends a line
                    line_end += len(line.encode())
                    if line.strip():
                        yield Piece(line.strip("\r\n"), True, None, line_end)
            offset = after


def _blocks_of_lines(stream: IO[bytes], file: Path, offset: int, size: int) -> Iterator[bytes]:
    """Yields blocks of whole lines, of about `size` bytes, from `offset` on."""
    rest = b""
    while more := stream.read(max(size, len(rest))):  # long lines are read in growing steps
        _refuse_nul(more, file, offset + len(rest))
        if b"\n" not in more and len(rest) + len(more) > MAX_LINE_BYTES:
            raise _long_line(file, offset)
        rest += more
        if cut := rest.rfind(b"\n") + 1:
            yield rest[:cut]
            offset, rest = offset + cut, rest[cut:]
    if rest:
        yield rest


def _blocks_of_tokens(stream: IO[bytes], file: Path, offset: int, size: int) -> Iterator[bytes]:
    """Yields blocks of about `size` bytes, split where tokenizers begin a token."""
    rest = b""
    # Each read ends at a multiple of `size`: a resumed run then yields the same blocks.
    while more := stream.read(size - stream.tell() % size):
        rest += more
        if cut := _split_point(rest, size):
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def text_start(stream: IO[bytes]) -> int:
    """Returns the offset of the text in a file: 3 after a byte order mark, else 0."""
    stream.seek(0)
    return len(BYTE_ORDER_MARK) if stream.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0


def bounded_lines(stream: IO[bytes], file: Path, offset: int = 0) -> Iterator[bytes]:
    """Yields the lines of a stream; raises UserError if one is longer than MAX_LINE_BYTES.

    Args:
        stream: the stream, positioned at the first line.
        file: the file of the stream, for errors.
        offset: the offset of the first line in the file, for errors.
    """
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            _refuse_nul(line, file, offset)
            raise _long_line(file, offset)
        offset += len(line)
        yield line


def decode_utf8(content: bytes, file: Path, offset: int) -> str:
    """Decodes UTF-8. `offset` is the position of the bytes in the file, for errors."""
    _refuse_nul(content, file, offset)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8: byte {offset + error.start} is invalid.") from None


def check_file(file: Path) -> None:
    """Raises UserError unless the path is a readable file that is not empty."""
    if not file.exists():
        raise UserError(f"there is no file {file}.")
    if not file.is_file():
        raise UserError(f"{file} must be a file, not a device or a pipe: it has no end.")
    if not _size(file):
        raise UserError(f"the file {file} is empty.")
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}.") from None


def _split_point(block: bytes, size: int) -> int:
    """Returns the offset of the last safe split point, or 0 if more text must be read.

    Splitting at a safe point does not change the tokens. The candidates, in this order:

    1. before a line break between two characters that are no spaces, where GPT-2's pattern and our
       BPE begin a token;
    2. after BLOCKS_WITHOUT_BREAK times `size` bytes: before the last of several line breaks, before
       a space that a word follows, or before a punctuation mark after a letter (as in Chinese);
    3. after BLOCKS_WITHOUT_SPLIT times `size` bytes: between any two characters. Tokens may differ
       from those of the whole text.

    Other tokenizers may differ elsewhere too: Llama 3 joins a full stop and the line break after
    it, and SentencePiece marks the beginning of each piece.
    """
    is_long = len(block) >= BLOCKS_WITHOUT_BREAK * size
    offset = len(block) - 1
    while (offset := block.rfind(b"\n", 0, offset)) > 0:
        if (is_long or block[offset - 1] not in SPACES) and _word_follows(block, offset):
            return offset
    offset = len(block) - 1 if is_long else 0
    while (offset := block.rfind(b" ", 0, offset)) > 0:
        if _word_follows(block, offset):
            return offset
    if not is_long:
        return 0
    text = block.decode(errors="surrogateescape")
    end = max((match.end() for match in BEFORE_MARK.finditer(text)), default=0)
    if not end and len(block) >= BLOCKS_WITHOUT_SPLIT * size:
        return _whole_characters(block)
    return len(text[:end].encode(errors="surrogateescape"))


def _word_follows(block: bytes, offset: int) -> bool:
    """Returns True if the character after the byte at `offset` is complete and no space."""
    character = block[offset + 1 : offset + 5].decode(errors="ignore")[:1]
    return bool(character) and not character.isspace()


def _whole_characters(block: bytes) -> int:
    """Returns the length of a block in bytes, without a last character of several bytes.

    This character may be incomplete.
    """
    cut = len(block)
    # In UTF-8, bytes 0x80 to 0xBF continue a character and bytes from 0xC0 on begin a long one.
    while cut > len(block) - 4 and block[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    return cut - 1 if block[cut - 1] >= 0xC0 else len(block)


def _refuse_nul(content: bytes, file: Path, offset: int) -> None:
    nul = content.find(b"\0")
    if nul >= 0:
        raise UserError(f"{file} is binary, not text: byte {offset + nul} is 0.")


def _long_line(file: Path, offset: int) -> UserError:
    return UserError(
        f"{file}: the line at byte {offset} is longer than {byte_size(MAX_LINE_BYTES)}. Use "
        "shorter lines, or plain text in which each file is a document."
    )


def _size(file: Path) -> int:
    return file.stat().st_size
