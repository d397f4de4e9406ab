"""How long a run takes, before it starts: from the records of its config file, or its SECONDS."""

import contextlib
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from experiments.cli import flags
from experiments.ledger.record import Record, key
from jaxformer.core.errors import UserError

# Where neither a record nor a config file says it.
DEFAULTS = {"tiny": 20.0, "small": 120.0, "paper": 6 * 3600.0}
START = 12.0  # seconds to import and to compile, on the slower of our machines


class Estimator:
    """Seconds of a config, from what equal or similar configs took."""

    def __init__(self, records: Iterable[Record]):
        self.equal: dict[str, list[float]] = {}
        self.alike: dict[tuple[str, str], list[float]] = {}
        for record in records:
            total = record.seconds["compile"] + record.seconds["run"]
            self.equal.setdefault(record.key, []).append(total / max(len(record.seeds), 1))
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                rate = record.seconds["run"] / work(record.config, record.steps)  # or it is odd
                self.alike.setdefault(kind(record.config), []).append(rate)

    def __call__(self, config: Any) -> float:
        held = flags.plain(config)
        seeds = max(int(held["n_seeds"]), 1)
        if equal := self.equal.get(key(held)):
            return median(equal) * seeds
        if alike := self.alike.get(kind(held)):
            return START + median(alike) * work(held)
        return START + written_seconds(held)


def kind(config: Mapping[str, Any]) -> tuple[str, str]:
    """What a run has in common with others that take as long: its config file, its SECONDS."""
    arguments = config["arguments"]
    try:
        return config["name"], _closest(_file(config), arguments)
    except (UserError, AttributeError, ValueError):
        return config["name"], arguments["scale"]


def work(config: Mapping[str, Any], steps: int | None = None) -> float:
    """What the time of a run of one config file grows with."""
    seeds = max(int(config["n_seeds"]), 1)
    if not {"train", "optim", "model", "task"} <= config.keys():
        return float(seeds)
    rates = len(config["optim"]["learning_rate"])
    size = config["train"]["batch_size"] * int(config["model"].get("layers", 1))
    size *= int(config["task"].get("window", 1))  # tokens of a text
    return float(seeds * rates * size * (steps or config["train"]["steps"]))


def written_seconds(config: Mapping[str, Any]) -> float:
    """SECONDS of a config file, for another amount of work than the config's own."""
    file, arguments = _file(config), config["arguments"]
    try:
        closest = _closest(file, arguments)
        own = flags.plain(flags.load_config(f"{file}:scale={closest}"))
        return flags.config_module(file).SECONDS[closest] * work(config) / work(own)
    except (UserError, AttributeError, ValueError):
        return DEFAULTS[arguments["scale"]]


def _closest(file: str, arguments: Mapping[str, str]) -> str:
    """The key of SECONDS: "small,when=trained" is closer than "small" where that is an argument."""
    words = {arguments["scale"], *(f"{name}={value}" for name, value in arguments.items())}
    said: dict[str, float] = flags.config_module(file).SECONDS
    return max((k for k in said if {*k.split(",")} <= words), key=len)


def _file(config: Mapping[str, Any]) -> str:
    return f"configs/{config['name']}.py"
