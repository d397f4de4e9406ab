"""Writes the pages of docs/reference from the code: tasks, models, fields, commands, configs.

    python docs/generate.py            writes the pages
    python docs/generate.py --check    exits 1 if a page is out of date

The text about a field is the comment beside it in the code. The text about a flag comes from the
manual that --help prints.
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
    "theory.advise",
    "theory.phase_map",
    "theory.trainability",
    "jaxformer.models.pretrained.tiny",
)
MADE = "Made by `python docs/generate.py` from the code, never by hand."


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(argv).check
    texts = {FOLDER / name: text for name, text in pages().items()}
    texts[console.HELP_FILE] = program_help()
    outdated = [
        file.name for file, text in texts.items() if not file.exists() or file.read_text() != text
    ]
    if check:
        print(f"out of date: {', '.join(outdated)}" if outdated else "the tables are up to date")
        return 1 if outdated else 0
    FOLDER.mkdir(exist_ok=True)
    for file, text in texts.items():
        write_atomically(file, text.encode())
    print(f"wrote {', '.join(file.name for file in texts)}")
    return 0


def pages() -> dict[str, str]:
    """Returns the text of each page by the name of its file, such as "tasks.md"."""
    contents = {
        "tasks.md": ("Tasks", tasks()),
        "models.md": ("Models", models()),
        "fields.md": ("Fields of a config", fields()),
        "configs.md": ("Configs", configs()),
        "commands.md": ("Commands", commands()),
    }
    return {
        name: "\n".join([f"# {title}", "", MADE, "", *lines]) + "\n"
        for name, (title, lines) in contents.items()
    }


def tasks() -> list[str]:
    """Returns a section for each task that a config can name."""
    lines = ['A config names a task and its fields: `config.task = dict(name="dyck", ...)`.', ""]
    for name, task in build.TASKS.items():
        lines += [f"## {name}", "", *_about(task), *_fields_of(task)]
    return lines


def models() -> list[str]:
    """Returns a section for each model that a config can name, and the variants of the papers."""
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
    """Returns the sections of a config, except those of tasks and models."""
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
    """Returns a table of the configs of each folder, with titles and arguments."""
    lines = [
        "`jaxformer run NAME:ARGUMENTS`, such as `jaxformer run mixit/retrieval:scale=tiny`; with "
        "`--help` it prints the manual of the config. The first choice of an argument is its "
        "default.",
        "",
    ]
    folder = ""
    for file in flags.config_files():
        if (folder_of_file := file.split("/")[1]) != folder:
            folder = folder_of_file
            lines += ["", f"## {folder}", "", *_head("file", "what it shows", "arguments")]
        arguments = [f"{name}={'|'.join(options)}" for name, options in choices(file).items()]
        name = file.removeprefix(f"configs/{folder}/")
        title = flags.config_docstring(file).splitlines()[0]
        lines += [_row(_code(name), title, " ".join(map(_code, arguments)))]
    return lines


def commands() -> list[str]:
    """Returns a section for each command with its flags, their defaults and their texts."""
    # {module: its subcommand of `jaxformer`}; reversed, so that the first of several names counts.
    programs = {program.module: name for name, program in reversed(console.PROGRAMS.items())}
    lines = []
    for name in COMMANDS:
        module = importlib.import_module(name)
        manual = manual_of(module)
        program = programs.get(name)
        lines += [f"## {program or name.rpartition('.')[2]}", "", _first(manual), ""]
        lines += [f"`{f'jaxformer {program}' if program else f'python -m {name}'} --help`", ""]
        table = _head("flag", "default", "what")  # "what" is a public heading of the pages
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
            for flag in parser.flags:
                # Makes paths relative, because the text must be the same on every machine.
                if isinstance(flag.default, Path) and flag.default.is_relative_to(ROOT):
                    flag.default = flag.default.relative_to(ROOT)
            text = parser.format_help()
            if parser.manual is not None:
                text = parser.manual(Namespace(config=""))
            texts[name] = text.rstrip()
    return json.dumps(texts, indent=1, ensure_ascii=False) + "\n"


def _default(value) -> str:
    """Returns the default of a flag; "" if it has none."""
    text = str(value).replace(f"{flags.ROOT}/", "")
    is_empty = value in (None, "", [], False) or text in ("inf", "==SUPPRESS==")
    return "" if is_empty else _code(text)


def manual_of(module) -> str:
    return inspect.getdoc(module) or ""


def name_of(action) -> str:
    """Returns a flag, or the name of a positional argument in capitals."""
    return (action.option_strings or [action.metavar or action.dest.upper()])[0]


class _ParserFound(BaseException):
    """Carries the parser of a command out of its `main`, just before it parses."""


def parser_of(module) -> Parser:
    """Returns the parser that the `main` of a module builds."""

    def parse(self, args=None, namespace=None):
        raise _ParserFound(self)

    with patch.object(Parser, "parse_args", parse):
        try:
            module.main([])
        except _ParserFound as found:
            return found.args[0]
    raise AssertionError(f"{module.__name__} has no parser")


def manual_lines(flag: str, manual: str, help: str | None) -> str:
    """Returns the lines about a flag in a manual as one line; without such lines, its help text."""
    if flag == "--help":
        return "the manual"
    # "  --flag=VALUE   text", and the following lines that are indented further.
    match = re.search(
        rf"^( *){re.escape(flag)}(?:=\S+ |(?:[=\[ ]\S*)?(?: \S+)*?  +)(.*(?:\n\1 {{3,}}.*)*)",
        manual,
        re.M,
    )
    text = match[2] if match else (help or "").replace(" (default: %(default)s)", "")
    return _escaped(" ".join(text.split()))


def comments(cls: type) -> dict[str, str]:
    """Returns {field: the comment beside it, or the comments above it} of a dataclass."""
    by_field, above, name = {}, "", ""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except OSError:
        return {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_at_margin = token.start[1] == 4  # a field, or a comment that is a line of its own
        if token.type == tokenize.NAME and is_at_margin:
            name = token.string
            if above:
                by_field[name], above = above, ""
        elif token.type == tokenize.COMMENT and is_at_margin:
            above = f"{above} {token.string.lstrip('# ')}".strip()
        elif token.type == tokenize.COMMENT and name:
            by_field[name] = f"{by_field.get(name, '')} {token.string.lstrip('# ')}".strip()
    return by_field


def _fields_of(cls: type) -> list[str]:
    """Returns the table of the fields of a dataclass."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            texts |= comments(base)
    n_columns = 3 if texts else 2  # without texts the last column is left out
    lines = _head(*("field", "default", "what")[:n_columns])
    for field in dataclasses.fields(cls):
        default: object = field.default
        if default is dataclasses.MISSING:
            factory = field.default_factory
            default = "required" if factory is dataclasses.MISSING else factory()
        text = default.__name__ if isinstance(default, type) else repr(default)
        text = "required" if default == "required" else _code(text)
        cells = (_code(field.name), text, _escaped(texts.get(field.name, "")))
        lines += [_row(*cells[:n_columns])]
    return [*lines, ""]


def _about(thing) -> list[str]:
    """Returns the docstring of a class or module, as prose or, if it has paragraphs, as a block.

    A class without a docstring has that of its module.
    """
    text = inspect.getdoc(thing) or ""
    # A dataclass without a docstring has a generated one, "Name(field, ..)".
    if not text or text.startswith(f"{getattr(thing, '__name__', '')}("):
        text = inspect.getdoc(sys.modules[thing.__module__]) or ""
    return ["```text", text, "```", ""] if "\n\n" in text else [_first(text), ""]


def _first(text: str) -> str:
    """Returns the first paragraph of a text as one line of Markdown."""
    return _escaped(" ".join(text.split("\n\n")[0].split()))


def _escaped(text: str) -> str:
    """Escapes the signs that have a meaning in Markdown."""
    return re.sub(r"([|*<\[\]])", r"\\\1", text)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _head(*names: str) -> list[str]:
    return [_row(*names), "|" + "---|" * len(names)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
