"""A record: what a finished run found and the config that made it, as every reader sees it."""

import ast
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_origin

from experiments.cli import flags
from experiments.ledger import validate_record
from experiments.ledger.chains import NOT_TRUSTED
from experiments.ledger.curves import Curves
from jaxformer import build
from jaxformer.io.run_folder import config_hash
from jaxformer.training.result import validated

SCHEMA = 2  # of a record's JSON; a record with another schema is refused
MEAN = ("mean", "sem", "n")
SAFE_NAME = re.compile(r"\w[\w.-]{0,180}-[0-9a-f]{12}", re.ASCII)  # never a path


@dataclass(frozen=True)
class Record:
    """The fields of a record's JSON that are read, and what lies beside it."""

    config: dict[str, Any]
    config_file: str  # "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
    config_hash: str
    overrides: dict[str, Any]
    scale: str
    seeds: list[int]
    metrics: dict[str, dict[str, Any]]  # name -> {"mean", "sem", "n"}
    members: list[dict[str, Any]]
    baselines: dict[str, float | None]
    seconds: dict[str, float]
    environment: dict[str, Any]
    curves: Curves
    steps: int | None = None  # that were run; a figure has none
    alarms: list[str] = field(default_factory=list)  # what went wrong without an error
    stale: str = ""  # why it no longer counts
    where: str = ""  # the file that a reader opens
    figure: Path | None = None
    table: Path | None = None  # the numbers behind the figure

    @classmethod
    def from_json(cls, content: Any, curves: Curves | None = None, **beside: Any) -> "Record":
        """The record of a JSON file, checked; raises ValueError with one line."""
        if not isinstance(content, dict) or "schema" not in content:
            raise ValueError("it has no schema, so it is no record")
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
        validate_record.check_words(content)
        content = content | {"curves": curves or {}}
        needed: dict[str, Any] = {
            f.name: get_origin(f.type) or f.type
            for f in fields(cls)
            if f.default is f.default_factory is MISSING
        }
        for name, kind in needed.items():
            if not isinstance(content.get(name), kind):
                came = f"{content.get(name)!r:.40}"
                raise ValueError(f"{name!r} should be a {kind.__name__}, it is {came}")
        values = {name: content[name] for name in needed}
        said = {name: content[name] for name in ("steps", "alarms") if name in content}
        record = cls(**values, **said, **beside)
        if "arguments" not in record.config:
            raise ValueError("its config has no arguments: an older version made it")
        for name, is_sound in record._sound().items():
            if not is_sound:
                raise ValueError(f"its {name!r} are damaged: {content.get(name)!r:.60}")
        try:
            name = run_name(record.config, record.config_hash)
            record.key, record.address, record.command  # noqa: B018 (they are read later)
        except Exception as error:
            raise ValueError(f"its config cannot be read: {type(error).__name__} {error}") from None
        if not SAFE_NAME.fullmatch(name):
            raise ValueError(f"its config and hash make no file name: {name!r:.80}")
        return record

    @property
    def arguments(self) -> dict[str, str]:
        """The labels of its config: variant, scale, .."""
        return self.config["arguments"]

    @property
    def standing(self) -> str:
        """What to call a record that no longer counts."""
        return "not trusted" if self.stale.startswith(NOT_TRUSTED) else "stale"

    @property
    def command(self) -> str:
        """The line that makes the record again."""
        return flags.command(self.config_file, self.overrides)

    @cached_property
    def key(self) -> str:
        return key(self.config)

    @cached_property
    def address(self) -> tuple:
        return address(self.config_file, self.overrides)

    def _sound(self) -> dict[str, bool]:
        config, labels, made = self.config, self.config["arguments"], self.environment
        rates = [member.get("learning_rate") for member in self.members if type(member) is dict]
        return {
            "config": isinstance(labels, dict)
            and "scale" in labels
            and all(isinstance(label, str) for label in (*labels.values(), config.get("name"))),
            "metrics": all(map(_is_mean, self.metrics.values())),
            "members": len(rates) == len(self.members) and all(map(_is_known, rates)),
            "baselines": all(map(_is_known, self.baselines.values())),
            "seeds": all(
                isinstance(seed, int) and validate_record.is_number(seed) for seed in self.seeds
            ),
            "seconds": all(map(validate_record.is_number, self.seconds.values()))
            and {"compile", "run"} <= self.seconds.keys(),
            "steps": isinstance(self.steps, int | None) and _is_known(self.steps),
            "alarms": isinstance(self.alarms, list)
            and all(isinstance(line, str) for line in self.alarms),
            "environment": isinstance(made.get("versions", {}), dict)
            and isinstance(made.get("commit"), str | None),
        }


def key(config: Mapping[str, Any]) -> str:
    """The hash of what a config says, the number of seeds apart: equal keys are one cell."""
    return config_hash(
        build.config_identity({n: value for n, value in config.items() if n != "n_seeds"})
    )


def address(config_file: str, overrides: Mapping[str, Any]) -> tuple:
    """What a command names, whatever the order of its words; the number of seeds apart."""
    file, _, arguments = config_file.partition(":")
    values = {name: _literal(value) for name, value in overrides.items() if name != "n_seeds"}
    return file, tuple(sorted(arguments.split(","))), tuple(sorted(values.items()))


def run_name(config: Mapping[str, Any], config_hash: str) -> str:
    """ "mixit-retrieval-frozen_qk-tiny-0123456789ab": the folder of a run, the file of a record."""
    labels = config["arguments"]
    words = [config["name"].replace("/", "-"), labels.get("variant"), labels["scale"], config_hash]
    return "-".join(filter(None, words))


CEILING = 0.99  # of an accuracy that no other rate can better by much


def at_the_edge(record: Record, by: float = 0.01) -> bool:
    """Is the best of at least two learning rates an outer one, by more than luck would have it?

    At the ceiling it does not matter. Of two rates either is an outer one. Of a loss the lowest is
    the best, and there is no ceiling.
    """
    found: dict[float, list[float]] = {}
    for member in record.members:
        name, score = validated(member)
        rate: Any = member.get("learning_rate")
        if validate_record.is_number(score) and validate_record.is_number(rate):
            found.setdefault(rate, []).append(-score if name == "loss" else score)
    scores = [sum(found[rate]) / len(found[rate]) for rate in sorted(found)]
    if len(scores) < 2 or max(scores) > CEILING:
        return False
    *_, second, best = sorted(scores)
    return best > second + by and best in (scores[0], scores[-1])


def _is_mean(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_known(value.get(n, "")) for n in MEAN)


def _is_known(value: Any) -> bool:
    """Is it a number, or the null that stands for one that is not finite?"""
    return value is None or validate_record.is_number(value)


def _literal(value: Any) -> str:
    try:
        return str(flags.tuples(ast.literal_eval(flags.spelled(value))))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return str(value)
