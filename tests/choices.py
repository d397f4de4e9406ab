"""Lists the arguments of a config and all their combinations."""

import itertools
from unittest.mock import patch

from configs import common
from experiments.cli import flags


def choices(file: str) -> dict[str, tuple[str, ...]]:
    """Returns the arguments of a config and their choices."""
    seen: list[dict[str, tuple[str, ...]]] = []
    parse = common.parse

    def spy(arg, **options):
        seen.append(options)
        return parse(arg, **options)

    with patch.object(common, "parse", spy):
        flags.load_config(file)
    return seen[0]  # one that goes on to call another config has parsed its own first


def cells(file: str, **only: tuple[str, ...]) -> list[str]:
    """Returns "FILE:variant=mixit,scale=tiny" for every combination; `only` restricts arguments."""
    options = {name: only.get(name, values) for name, values in choices(file).items()}
    return [
        f"{file}:" + ",".join(f"{name}={value}" for name, value in zip(options, values))
        for values in itertools.product(*options.values())
    ]
