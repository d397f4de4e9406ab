"""The place of a record below results/, whose folders are those of configs/.

`run mixit/retrieval:variant=mixit,scale=small --config.task.max_pairs=8 --record` writes its record
to results/mixit/retrieval/mixit-small-max_pairs=8-0123456789ab.json: the folder says which config
ran, the name which labels and fields the command chose. The hash of the config ends it.

The name is for people. A record is known by its content, so a file that was moved or renamed by
hand, or that an earlier version wrote straight into results/, counts like any other.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.cli.flags import format_value

UNSAFE = re.compile(r"[^\w.,=+-]+")
LONGEST = 160  # characters of a name; file systems allow 255 bytes, with the hash and a suffix


def place(run: Mapping[str, Any]) -> Path:
    """The path of a run's record below results/, without its suffix.

    Two commands of one config may give two names, since both spell it in their way. So a record
    that exists is found by the hash at the end (`write.recorded`), and not by its whole name.

    Args:
      run: `config`, `config_file`, `overrides` and `config_hash`, as config.json and a record have
        them.
    """
    folders = (_safe(part).strip(".") or "_" for part in run["config"]["name"].split("/"))
    choices = "-".join(map(_safe, _choices(run)))[:LONGEST]
    return Path(*folders) / f"{choices}-{run['config_hash']}"


def _choices(run: Mapping[str, Any]) -> Iterator[str]:
    config, (_, _, arguments) = run["config"], run["config_file"].partition(":")
    named = dict(pair.split("=", 1) for pair in arguments.split(",") if "=" in pair)
    scale = named.pop("scale", config["arguments"]["scale"])
    if "variant" in named:
        yield named.pop("variant")
    yield from (f"{name}={value}" for name, value in named.items())
    yield scale
    for field, value in run["overrides"].items():
        last = field.rpartition(".")[2]
        # "max_pairs" says enough for task.max_pairs, but "seed" is another field than data.seed.
        yield f"{field if last in config else last}={format_value(value)}"


def _safe(text: str) -> str:
    return UNSAFE.sub("_", text)
