"""Parses the arguments after the colon of --config: "variant=...,scale=..."."""

import difflib


class FreeText(tuple):
    """The choices of an argument that accepts any text. The only entry is the default."""


class ConfigError(ValueError):
    """A wrong argument after the colon of --config.

    Args:
      message: One line.
      choices: The arguments of the config with their choices.
    """

    def __init__(self, message: str, choices: dict[str, tuple[str, ...]]):
        super().__init__(message)
        self.choices = choices


def parse(arg: str, **choices: tuple[str, ...]) -> dict[str, str]:
    """Parses "variant=mixit,scale=tiny" to {"variant": "mixit", "scale": "tiny"}.

    Args:
      arg: The text after the colon.
      **choices: The choices of each argument; the first one is the default. An argument with the
        choices `FreeText` accepts any value, also one with commas.
    """
    values = {name: options[0] for name, options in choices.items()}
    given = _split(arg or "", choices)
    names = [item.partition("=")[0] for item in given]
    for item in given:
        name, equals, value = item.partition("=")
        if names.count(name) > 1:
            message = f"the config argument {name!r} is given {names.count(name)} times."
            raise ConfigError(message, choices)
        if not equals or name not in choices:
            hint = _hint(name, choices)
            message = f"unknown config argument {item!r}.{hint} Give {_usage(choices)}."
            raise ConfigError(message, choices)
        if not isinstance(choices[name], FreeText) and value not in choices[name]:
            hint = _hint(value, choices[name])
            options = ", ".join(choices[name])
            message = f"unknown {name} {value!r}.{hint} The choices are: {options}."
            raise ConfigError(message, choices)
        values[name] = value
    return values


def _split(arg: str, choices: dict[str, tuple[str, ...]]) -> list[str]:
    """Splits at commas, except at those within the value of an argument with any text."""
    items: list[str] = []
    for item in arg.split(","):
        previous_name = items[-1].partition("=")[0] if items else ""
        if "=" not in item and isinstance(choices.get(previous_name), FreeText):
            items[-1] += f",{item}"
        elif item:
            items.append(item)
    return items


def _usage(choices: dict[str, tuple[str, ...]]) -> str:
    return ",".join(
        f"{name}={'TEXT' if isinstance(options, FreeText) else '|'.join(options)}"
        for name, options in choices.items()
    )


def _hint(given: str, choices) -> str:
    close = difflib.get_close_matches(given, list(choices), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
