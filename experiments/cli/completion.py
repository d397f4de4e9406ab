"""Tab completion of `jaxformer`: programs, flags, configs with their arguments, config fields.

The module reads the flags from the source of a program, because importing one takes seconds.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.arguments import ConfigError
from jaxformer.core.errors import UserError, check_choice

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"""add(?:_argument)?\(\s*"(--[a-z][a-z-]*)\"""")
# Readline completes only what follows the last "=" or ":" of a word. The script for bash therefore
# removes the part before it from each completion.
SCRIPTS = {
    "bash": """_jaxformer() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }"
    local before="${word%"${word##*[=:]}"}"
    mapfile -t COMPREPLY < <(jaxformer complete "$line" 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -o nospace -F _jaxformer jaxformer""",
    "zsh": """_jaxformer() {
    local -a completions
    completions=("${(@f)$(jaxformer complete "$LBUFFER" 2>/dev/null)}")
    compadd -Q -S '' -a completions || _files
}
compdef _jaxformer jaxformer""",
    "fish": "complete -c jaxformer -a '(jaxformer complete (commandline -cp) 2>/dev/null)'",
}


def script(shell: str) -> str:
    """Returns the completion script of a shell."""
    check_choice("shell", shell, list(SCRIPTS))
    return SCRIPTS[shell]


def complete(line: str, programs: Mapping[str, Any]) -> list[str]:
    """Returns the completions of the last word of a command line.

    Args:
        line: the line up to the cursor, which begins with "jaxformer ".
        programs: the programs by name, with the attributes `module` and `first_flag`.
    """
    _, *words = line.split(" ")
    *earlier, word = words or [""]
    if not earlier:
        return [name for name in programs if name.startswith(word)]
    program = programs.get(earlier[0])
    if program is None:
        return []
    if word.startswith("--config="):
        texts = complete_config(word.removeprefix("--config="))
        return [f"--config={text}" for text in texts]
    if not word.startswith("-") and program.first_flag == "--config":
        return complete_config(word)
    if word.startswith("--config."):
        field_flags = [f"--config.{field}=" for field in fields(earlier[1:])]
        return [flag for flag in field_flags if flag.startswith(word)]
    if word.startswith("-"):
        return [flag for flag in flags(program.module) if flag.startswith(word)]
    return []


def flags(module: str) -> list[str]:
    """Returns --help and the flags that the source of a program adds to its parser."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return []
    sources = [Path(spec.origin)]
    if sources[0].name == "__init__.py":
        sources += sorted(sources[0].parent.glob("*.py"))
    names = {flag for source in sources for flag in FLAG.findall(source.read_text())}
    return sorted(names | {"--help"})


def config_names() -> list[str]:
    """Returns the names of all configs, such as "mixit/retrieval"."""
    folder = ROOT / "configs"
    files = (file for file in folder.glob("*/*.py") if file.stem != "__init__")
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in files)


def config_path(text: str) -> str:
    """Returns "configs/mixit/retrieval.py:ARGUMENTS" for "mixit/retrieval:ARGUMENTS".

    A text that names no config of the repository is returned unchanged, because it may be a file.
    """
    name, colon, arguments = text.partition(":")
    is_name = not Path(name).is_file() and name in config_names()
    return f"configs/{name}.py{colon}{arguments}" if is_name else text


def complete_config(text: str) -> list[str]:
    """Returns the completions of a text such as "NAME:ARGUMENT=VALUE,ARGU"."""
    name, colon, arguments = text.partition(":")
    if not colon:
        return [config for config in config_names() if config.startswith(name)]
    *complete_arguments, last = arguments.split(",")
    argument, equals, value = last.partition("=")
    choices = config_choices(name)
    if equals:
        endings = [f"{argument}={v}" for v in choices.get(argument, ()) if v.startswith(value)]
    else:
        used = {item.partition("=")[0] for item in complete_arguments}
        endings = [f"{a}=" for a in choices if a.startswith(argument) and a not in used]
    return [f"{name}:{','.join([*complete_arguments, ending])}" for ending in endings]


def config_choices(name: str) -> Mapping[str, Iterable[str]]:
    """Returns the arguments of a config with their choices."""
    try:
        _get_config(name, "?")  # no config accepts "?", and the error has the choices
    except ConfigError as error:
        return error.choices
    except Exception:
        return {}
    return {}


def fields(words: Iterable[str]) -> list[str]:
    """Returns the fields of the config that a command line names, such as "optim.clip"."""
    for word in words:
        name, _, arguments = word.removeprefix("--config=").partition(":")
        try:
            return sorted(_flatten(_get_config(name, arguments).to_dict()))
        except Exception:
            continue
    return []


def _get_config(name: str, arguments: str) -> Any:
    """Imports a config of the repository and calls it.

    Any other file is refused, because a key press must not run code: every word of the line comes
    here, and a folder that the user has only unpacked may have Python files too.
    """
    file = (ROOT / config_path(name)).resolve()
    if not (file.is_file() and file.is_relative_to((ROOT / "configs").resolve())):
        raise UserError(f"no config {name!r}.")
    spec = importlib.util.spec_from_file_location("config_file", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(arguments)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Returns the names of all fields without the arguments, such as "optim.clip"."""
    names = []
    for name, value in values.items():
        is_section = isinstance(value, Mapping) and value
        names += _flatten(value, f"{prefix}{name}.") if is_section else [f"{prefix}{name}"]
    return [name for name in names if not name.startswith("arguments.")]
