"""Estimates of a run's time, from records of its config file or from the SECONDS in the file.

SECONDS is a dict of a config file: {"small": 60, "small,when=trained": 300} has the time at scale
small, and the time at this scale with the argument when=trained.
"""

import contextlib
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from experiments.cli import flags
from experiments.ledger.record import Record, key
from jaxformer.core.errors import UserError

# {scale: the seconds of a config without records and without SECONDS}
DEFAULT_SECONDS = {"tiny": 20.0, "small": 120.0, "paper": 6 * 3600.0}
STARTUP_SECONDS = 12.0  # imports and compilation on two slow cores


class Estimator:
    """Estimates the seconds of a config from the records of equal or similar configs."""

    def __init__(self, records: Iterable[Record]):
        self.seconds_per_seed: dict[str, list[float]] = {}  # by the key of equal configs
        self.seconds_per_work: dict[tuple[str, str], list[float]] = {}  # by `similarity_group`
        for record in records:
            total = record.seconds["compile"] + record.seconds["run"]
            per_seed = total / max(len(record.seeds), 1)
            self.seconds_per_seed.setdefault(record.key, []).append(per_seed)
            # A record of a damaged or outdated config is no basis for other configs.
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                per_work = record.seconds["run"] / work(record.config, record.steps)
                group = similarity_group(record.config)
                self.seconds_per_work.setdefault(group, []).append(per_work)

    def __call__(self, config: Any) -> float:
        """Returns the estimated seconds of a config."""
        values = flags.to_dict(config)
        if per_seed := self.seconds_per_seed.get(key(values)):
            return median(per_seed) * max(int(values["n_seeds"]), 1)
        if per_work := self.seconds_per_work.get(similarity_group(values)):
            return STARTUP_SECONDS + median(per_work) * work(values)
        return STARTUP_SECONDS + seconds_of_file(values)


def similarity_group(config: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the config file and the key of its SECONDS; runs of a group take similar times."""
    arguments = config["arguments"]
    try:
        return config["name"], _key_of_seconds(_file(config), arguments)
    except (UserError, AttributeError, ValueError):
        return config["name"], arguments["scale"]


def work(config: Mapping[str, Any], steps: int | None = None) -> float:
    """Returns a number to which the time of a config file's runs is proportional."""
    seeds = max(int(config["n_seeds"]), 1)
    if not {"train", "optim", "model", "task"} <= config.keys():
        return float(seeds)
    rates = len(config["optim"]["learning_rate"])
    size = config["train"]["batch_size"] * int(config["model"].get("layers", 1))
    size *= int(config["task"].get("window", 1))  # the tokens of an example of text
    return float(seeds * rates * size * (steps or config["train"]["steps"]))


def seconds_of_file(config: Mapping[str, Any]) -> float:
    """Returns SECONDS of the config's file, scaled by the amount of work."""
    file, arguments = _file(config), config["arguments"]
    try:
        seconds_key = _key_of_seconds(file, arguments)
        # A key "small,when=trained" gives "FILE:scale=small,when=trained".
        default = flags.to_dict(flags.load_config(f"{file}:scale={seconds_key}"))
        return flags.config_module(file).SECONDS[seconds_key] * work(config) / work(default)
    except (UserError, AttributeError, ValueError):
        return DEFAULT_SECONDS[arguments["scale"]]


def _key_of_seconds(file: str, arguments: Mapping[str, str]) -> str:
    """Returns the longest key of SECONDS, such as "small,when=trained", that the config matches.

    Raises ValueError if no key matches.
    """
    parts = {arguments["scale"], *(f"{name}={value}" for name, value in arguments.items())}
    seconds: dict[str, float] = flags.config_module(file).SECONDS
    return max((key for key in seconds if {*key.split(",")} <= parts), key=len)


def _file(config: Mapping[str, Any]) -> str:
    return f"configs/{config['name']}.py"
