"""How long a run takes, before it starts: from the records of its config file, or its manual."""

import re
from collections.abc import Iterable
from statistics import median
from typing import Any

from experiments.shared import flags
from jaxformer.records import config_hash

Record = dict[str, Any]
UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
SOME = 3  # "some minutes"
TIME = re.compile(
    r"(?:(?P<low>\d+(?:\.\d+)?)(?: to (?P<high>\d+))?|(?P<word>half an?|an?|some) |\b)"
    r" ?(?:CPU |GPU )?(?P<unit>second|minute|hour|day)s?\b(?P<each> each| a seed)?"
)
# Where neither a record nor a manual says it.
DEFAULTS = {"tiny": 20.0, "small": 120.0, "paper": 6 * 3600.0}
START = 6.0  # seconds to import and to compile, which the manuals leave out
TRUST = 60.0  # seconds that ran as estimated, so that one short run does not upset all others


class Estimator:
    """Seconds of a config, from what equal or similar configs took."""

    def __init__(self, records: Iterable[Record]):
        self.equal: dict[str, list[float]] = {}
        self.alike: dict[tuple[str, str], list[float]] = {}
        for record in records:
            config, spent = record["config"], record["seconds"]
            total = spent["compile"] + spent["run"]
            per_seed = total / max(len(record["seeds"]), 1)
            self.equal.setdefault(_without_seeds(config), []).append(per_seed)
            alike = (config["name"], config["scale"])
            rate = spent["run"] / work(config, record.get("steps"))
            self.alike.setdefault(alike, []).append(rate)

    def __call__(self, config: Any) -> float:
        held = flags.plain(config)
        seeds = max(int(held.get("n_seeds", 1)), 1)
        if equal := self.equal.get(_without_seeds(held)):
            return median(equal) * seeds
        if alike := self.alike.get((held["name"], held["scale"])):
            return START + median(alike) * work(held)
        return START + manual_seconds(f"configs/{held['name']}.py", held["scale"], seeds)


class Pace:
    """How far off the estimates are, from the runs that ended."""

    def __init__(self) -> None:
        self.estimated, self.actual = 0.0, 0.0

    def add(self, estimated: float, actual: float) -> None:
        self.estimated, self.actual = self.estimated + estimated, self.actual + actual

    @property
    def ratio(self) -> float:
        return (self.actual + TRUST) / (self.estimated + TRUST)


def work(config: dict[str, Any], steps: int | None = None) -> float:
    """What the time of a run of one config file grows with."""
    seeds = max(int(config.get("n_seeds", 1)), 1)
    if "train" not in config:
        return float(seeds)
    rates = len(config["optim"]["learning_rate"])
    size = config["train"]["batch_size"] * int(config["model"].get("layers", 1))
    return float(seeds * rates * size * (steps or config["train"]["steps"]))


def manual_seconds(file: str, scale: str, seeds: int = 1) -> float:
    """The time in the config's docstring, on the line of this scale."""
    path = flags.ROOT / file
    text = path.read_text() if path.is_file() else ""
    lines = [line for line in text.splitlines() if line.startswith(f"{scale} ")]
    found = TIME.search(lines[0]) if lines else None
    if found is None:
        return DEFAULTS.get(scale, DEFAULTS["small"])
    words = {"half a": 0.5, "half an": 0.5, "a": 1.0, "an": 1.0}
    low = found["low"] or words.get(found["word"], SOME)
    return float(found["high"] or low) * UNITS[found["unit"]] * (seeds if found["each"] else 1)


def _without_seeds(config: dict[str, Any]) -> str:
    return config_hash({name: value for name, value in config.items() if name != "n_seeds"})
