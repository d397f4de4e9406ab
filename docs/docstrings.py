"""Converts docstrings to reStructuredText: prose, indented code, Google-style sections."""

import dataclasses
import re
from textwrap import dedent
from typing import Any

from generate import comments

SECTION = re.compile(r"(Args|Returns|Yields|Raises|Examples?):$")
ENTRY = re.compile(r"(\S[^:]*): (.*)")
INDENT = "    "


def convert(app, what: str, name: str, thing: Any, options, lines: list[str]) -> None:
    """Replaces the lines of a docstring in place; Sphinx calls it for each object."""
    converted: list[str] = []
    section, body = "", []
    for line in lines:
        heading = SECTION.match(line)
        if heading or (section and line and not line.startswith(" ")):
            converted += _section(section, body)
            section, body = "", []
        if heading:
            section = heading[1]
        else:
            body.append(line)
    converted += _section(section, body)
    if what == "class" and dataclasses.is_dataclass(thing):
        converted += _fields(thing)
    lines[:] = [*converted, ""]


def _section(name: str, body: list[str]) -> list[str]:
    """Returns a section such as "Args". An empty name is the text before the first section."""
    if not name:
        return _prose_and_code(body)
    body = dedent("\n".join(body)).strip("\n").split("\n")
    if name.startswith("Example"):
        content = ["::", "", *(INDENT + line for line in body)]
    elif name in ("Args", "Raises"):
        content = _entries(body)
    else:
        content = _prose_and_code(body)
    return ["", f":{name}:", *(INDENT + line for line in content), ""]


def _entries(body: list[str]) -> list[str]:
    """Returns a definition list of "name: text" entries, whose continued lines are indented."""
    entries: list[str] = []
    for line in body:
        entry = ENTRY.match(line)
        if entry:
            entries += [f"``{entry[1]}``", INDENT + _prose(entry[2])]
        elif line.strip():
            entries.append(INDENT + _prose(line.strip()))
    return entries


def _fields(cls: type) -> list[str]:
    """Returns a definition list of the fields of a dataclass with their comments."""
    texts = comments(cls)
    fields = ["", ":Fields:"]
    for field in dataclasses.fields(cls):
        if field.name.startswith("_"):
            continue
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        text = _prose(texts.get(field.name, "")) or "\\ "
        fields += [f"{INDENT}``{field.name}{default}``", f"{INDENT * 2}{text}"]
    return [*fields, ""] if len(fields) > 2 else []


def _prose_and_code(lines: list[str]) -> list[str]:
    """Returns prose with escaped markup; lines that are indented by four spaces are code."""
    converted: list[str] = []
    is_code = False
    for line in lines:
        if not line.strip():
            converted.append("")
            continue
        if line.startswith(INDENT) and not is_code:
            converted += ["", "::", ""]
        elif is_code and not line.startswith(INDENT):
            converted.append("")
        is_code = line.startswith(INDENT)
        converted.append(line if is_code else _prose(line))
    return converted


def _prose(line: str) -> str:
    """Returns a line of reStructuredText: `code` in double backticks, other markup escaped."""
    parts = re.split(r"(`[^`]+`)", line)  # text and code in turn
    texts = [re.sub(r"([*|\\]|_\b|`)", r"\\\1", part) for part in parts[::2]]
    code = [f"``{part.strip('`')}``" for part in parts[1::2]]
    joined = "".join(a + b for a, b in zip(texts, [*code, ""]))
    # A sign or number at the start of a line would begin a list.
    return re.sub(r"^(\s*)([-+#]|\d+\.)(?=\s)", r"\1\\\2", joined)
