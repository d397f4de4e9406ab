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
    made: list[str] = []
    section, body = "", []
    for line in lines:
        heading = SECTION.match(line)
        if heading or (section and line and not line.startswith(" ")):
            made += _section(section, body)
            section, body = "", []
        if heading:
            section = heading[1]
        else:
            body.append(line)
    made += _section(section, body)
    if what == "class" and dataclasses.is_dataclass(thing):
        made += _fields(thing)
    lines[:] = [*made, ""]


def _section(name: str, body: list[str]) -> list[str]:
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
    made: list[str] = []
    for line in body:
        entry = ENTRY.match(line)
        if entry:
            made += [f"``{entry[1]}``", INDENT + _prose(entry[2])]
        elif line.strip():
            made.append(INDENT + _prose(line.strip()))
    return made


def _fields(cls: type) -> list[str]:
    """Returns a definition list of the fields of a dataclass with their comments."""
    texts = comments(cls)
    made = ["", ":Fields:"]
    for field in dataclasses.fields(cls):
        if field.name.startswith("_"):
            continue
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        text = _prose(texts.get(field.name, "")) or "\\ "
        made += [f"{INDENT}``{field.name}{default}``", f"{INDENT * 2}{text}"]
    return [*made, ""] if len(made) > 2 else []


def _prose_and_code(lines: list[str]) -> list[str]:
    """Returns prose with escaped markup; lines that are indented by four spaces are code."""
    made: list[str] = []
    is_code = False
    for line in lines:
        if not line.strip():
            made.append("")
            continue
        if line.startswith(INDENT) and not is_code:
            made += ["", "::", ""]
        elif is_code and not line.startswith(INDENT):
            made.append("")
        is_code = line.startswith(INDENT)
        made.append(line if is_code else _prose(line))
    return made


def _prose(line: str) -> str:
    parts = re.split(r"(`[^`]+`)", line)
    plain = [re.sub(r"([*|\\]|_\b|`)", r"\\\1", part) for part in parts[::2]]
    code = [f"``{part.strip('`')}``" for part in parts[1::2]]
    joined = "".join(a + b for a, b in zip(plain, [*code, ""]))
    return re.sub(r"^(\s*)([-+#]|\d+\.)(?=\s)", r"\1\\\2", joined)
