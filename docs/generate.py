"""Writes the tables of docs/reference out of the code: tasks, models, fields, commands, configs.

    python docs/generate.py            writes them
    python docs/generate.py --check    exits 1 if they are not what the code says

Nothing is written by hand there: what a field means is the comment beside it, what a flag does is
the line of the manual that --help prints.
"""

import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import sys
import textwrap
import tokenize
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from configs import common
from experiments import recipes
from experiments.cli import console, flags
from experiments.cli.recipe_table import RECIPES
from jaxformer import build
from jaxformer.io.atomic_files import write_atomically
from jaxformer.runtime.command_line import Parser, command
from tests.choices import choices

ROOT = Path(__file__).parents[1]

FOLDER = ROOT / "docs/reference"
COMMANDS = (
    *sorted(f"experiments.{file.stem}" for file in (ROOT / "experiments").glob("[a-z]*.py")),
    *("theory.advise", "theory.phase_map", "theory.trainability"),
    *("jaxformer.models.export", "jaxformer.models.pretrained.tiny"),
)
MADE = "Made by `python docs/generate.py` from the code, never by hand."


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(argv).check
    texts = {FOLDER / name: text for name, text in pages().items()}
    texts[console.HELP_FILE] = program_help()
    old = [f.name for f, text in texts.items() if not f.exists() or f.read_text() != text]
    if check:
        print(f"out of date: {', '.join(old)}" if old else "the tables are up to date")
        return 1 if old else 0
    FOLDER.mkdir(exist_ok=True)
    for file, text in texts.items():
        write_atomically(file, text.encode())
    print(f"wrote {', '.join(file.name for file in texts)}")
    return 0


def pages() -> dict[str, str]:
    """{"tasks.md": its text}"""
    made = {
        "tasks.md": ("Tasks", tasks()),
        "models.md": ("Models", models()),
        "fields.md": ("Fields of a config", fields()),
        "configs.md": ("Configs", configs()),
        "commands.md": ("Commands", commands()),
    }
    return {n: "\n".join([f"# {t}", "", MADE, "", *lines]) + "\n" for n, (t, lines) in made.items()}


def tasks() -> list[str]:
    """A section for each task of a config."""
    lines = ['A config names a task and its fields: `config.task = dict(name="dyck", ...)`.', ""]
    for name, task in build.TASKS.items():
        lines += [f"## {name}", "", *_about(task), *_fields_of(task)]
    return lines


def models() -> list[str]:
    """A section for each model of a config, and the variants of the papers."""
    lines = ["`vocab_size` and `length` are those of the task unless a config sets them.", ""]
    for name, (model, spec) in build.MODELS.items():
        lines += [f"## {name}", "", *_about(sys.modules[model.__module__]), *_fields_of(spec)]
    lines += [
        "## Variants",
        "",
        "`variant=...` of most configs is a mixer and rules of freezing:",
        "",
    ]
    for name, (mixer, rules) in common.VARIANTS.items():
        rules_text = "; ".join(
            f"`{pattern}` {label}".replace("|", "\\|") for pattern, label in rules
        )
        lines += [f"- `{name}`: {mixer}; {rules_text}"]
    return [*lines, ""]


def fields() -> list[str]:
    """The sections of a config that are not of a task or a model."""
    lines = ["`--config.SECTION.FIELD=VALUE` changes any of them.", ""]
    for name, section in build.SETTINGS.items():
        lines += [f"## {name}", "", *_about(section), *_fields_of(section)]
    lines += ["## optim.labels", "", "Each label of the rules has its own optimizer.", ""]
    for name, optimizer in build.OPTIMIZERS.items():
        lines += [f"### {name}", "", *_about(optimizer), *_fields_of(optimizer)]
    lines += [
        "## Recipes",
        "",
        "The actions that a config can name, and the sections that each reads:",
        "",
    ]
    for name, recipe in RECIPES.items():
        manual = inspect.getdoc(recipes.module(name)) or ""
        lines += [f"- `{name}` ({', '.join(recipe.sections)}): {_first(manual)}"]
    return [*lines, ""]


def configs() -> list[str]:
    """Every config with its title and arguments."""
    lines = [
        "`jaxformer run NAME:ARGUMENTS`, such as `jaxformer run mixit/retrieval:scale=tiny`; with "
        "`--help` it prints the manual of the config. The first choice of an argument is its "
        "default.",
        "",
    ]
    folder = ""
    for file in flags.config_files():
        if (above := file.split("/")[1]) != folder:
            folder = above
            lines += ["", f"## {folder}", "", *_head("file", "what it shows", "arguments")]
        arguments = [f"{name}={'|'.join(options)}" for name, options in choices(file).items()]
        name, title = (
            file.removeprefix(f"configs/{folder}/"),
            flags.config_docstring(file).splitlines()[0],
        )
        lines += [_row(_code(name), title, " ".join(map(_code, arguments)))]
    return lines


def commands() -> list[str]:
    """Every command with its flags, their defaults and what its manual says of them."""
    programs = {program.module: name for name, program in reversed(console.PROGRAMS.items())}
    lines = []
    for name in COMMANDS:
        module = importlib.import_module(name)
        manual = manual_of(module)
        program = programs.get(name)
        lines += [f"## {program or name.rpartition('.')[2]}", "", _first(manual), ""]
        lines += [f"`{f'jaxformer {program}' if program else f'python -m {name}'} --help`", ""]
        table = _head("flag", "default", "what")
        for action in parser_of(module).flags:
            flag = name_of(action)
            text = manual_lines(flag, manual, action.help)
            table += [_row(_code(flag), _default(action.default), text)]
        lines += [*table, ""]
    return lines


def program_help() -> str:
    """Returns experiments/cli/help.json: the text of `jaxformer NAME --help` for each program.

    The command reads it, because importing a program takes seconds.
    """
    texts = {}
    with patch.dict(os.environ, {"COLUMNS": "100"}):
        for name, program in console.PROGRAMS.items():
            parser = parser_of(importlib.import_module(program.module))
            for flag in parser.flags:  # no path of this machine
                if isinstance(flag.default, Path) and flag.default.is_relative_to(ROOT):
                    flag.default = flag.default.relative_to(ROOT)
            text = parser.format_help()
            if parser.manual is not None:
                text = parser.manual(Namespace(config=""))
            texts[name] = text.rstrip()
    return json.dumps(texts, indent=1, ensure_ascii=False) + "\n"


def _default(value) -> str:
    shown = str(value).replace(f"{flags.ROOT}/", "")
    return (
        "" if value in (None, "", [], False) or shown in ("inf", "==SUPPRESS==") else _code(shown)
    )


def manual_of(module) -> str:
    return inspect.getdoc(module) or ""


def name_of(action) -> str:
    """A flag, or the word in capitals that stands for what has no flag."""
    return (action.option_strings or [action.metavar or action.dest.upper()])[0]


class _Seen(BaseException):
    """The parser of a command, just before it parses."""


def parser_of(module) -> Parser:
    def parse(self, args=None, namespace=None):
        raise _Seen(self)

    with patch.object(Parser, "parse_args", parse):
        try:
            module.main([])
        except _Seen as seen:
            return seen.args[0]
    raise AssertionError(f"{module.__name__} has no parser")


def manual_lines(flag: str, manual: str, help: str | None) -> str:
    """The lines about a flag in a manual, joined."""
    if flag == "--help":
        return "the manual"
    found = re.search(
        rf"^( *){re.escape(flag)}(?:=\S+ |(?:[=\[ ]\S*)?(?: \S+)*?  +)(.*(?:\n\1 {{3,}}.*)*)",
        manual,
        re.M,
    )
    text = found[2] if found else (help or "").replace(" (default: %(default)s)", "")
    return _escaped(" ".join(text.split()))


def comments(cls: type) -> dict[str, str]:
    """{field: the comment beside it, or the lines of comment above it} of a dataclass."""
    found, above, name = {}, "", ""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except OSError:
        return {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.start[1] == 4:
            name = token.string
            if above:
                found[name], above = above, ""
        elif token.type == tokenize.COMMENT and token.start[1] == 4:
            above = f"{above} {token.string.lstrip('# ')}".strip()
        elif token.type == tokenize.COMMENT and name:
            found[name] = f"{found.get(name, '')} {token.string.lstrip('# ')}".strip()
    return found


def _fields_of(cls: type) -> list[str]:
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            texts |= comments(base)
    width = 3 if texts else 2  # a table without a word in its last column has none
    lines = _head(*("field", "default", "what")[:width])
    for field in dataclasses.fields(cls):
        default: object = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = "required" if made is dataclasses.MISSING else made()
        shown = default.__name__ if isinstance(default, type) else repr(default)
        shown = "required" if default == "required" else _code(shown)
        cells = (_code(field.name), shown, _escaped(texts.get(field.name, "")))
        lines += [_row(*cells[:width])]
    return [*lines, ""]


def _about(thing) -> list[str]:
    """Returns the docstring of a class, or else of its module: the first sentence or all of it."""
    text = inspect.getdoc(thing) or ""
    if not text or text.startswith(f"{getattr(thing, '__name__', '')}("):  # a dataclass's own
        text = inspect.getdoc(sys.modules[thing.__module__]) or ""
    return ["```text", text, "```", ""] if "\n\n" in text else [_first(text), ""]


def _first(text: str) -> str:
    """The first paragraph."""
    return _escaped(" ".join(text.split("\n\n")[0].split()))


def _escaped(text: str) -> str:
    """Escapes stars and bars for Markdown."""
    return re.sub(r"([|*<\[\]])", r"\\\1", text)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _head(*names: str) -> list[str]:
    return [_row(*names), "|" + "---|" * len(names)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
