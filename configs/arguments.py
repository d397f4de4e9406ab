"""The words after the colon of --config: "variant=...,scale=..."."""

import difflib


class ConfigError(ValueError):
    """A wrong word after the colon of --config, said in one line."""


def parse(arg: str, **choices: tuple[str, ...]) -> dict[str, str]:
    """{"variant": "mixit", "scale": "tiny"} of "variant=mixit,scale=tiny".

    Each keyword names an argument and its choices; the first choice is the default.
    """
    values = {name: options[0] for name, options in choices.items()}
    words = [word for word in (arg or "").split(",") if word]
    names = [word.partition("=")[0] for word in words]
    for word in words:
        name, equals, value = word.partition("=")
        if names.count(name) > 1:
            raise ConfigError(f"the config argument {name!r} is given {names.count(name)} times.")
        if not equals or name not in choices:
            hint = _hint(name, choices)
            raise ConfigError(f"unknown config argument {word!r}.{hint} Say {_usage(choices)}.")
        if value not in choices[name]:
            hint = _hint(value, choices[name])
            options = ", ".join(choices[name])
            raise ConfigError(f"unknown {name} {value!r}.{hint} The choices are: {options}.")
        values[name] = value
    return values


def _usage(choices: dict[str, tuple[str, ...]]) -> str:
    return ",".join(f"{name}={'|'.join(options)}" for name, options in choices.items())


def _hint(word: str, words) -> str:
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
