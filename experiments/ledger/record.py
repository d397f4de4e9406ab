"""A record: the numbers of a finished run and its config, validated."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_origin

from experiments.cli import flags
from experiments.ledger import validate_record
from experiments.ledger.chains import NOT_TRUSTED
from jaxformer import build
from jaxformer.io.run_folder import config_hash
from jaxformer.training.result import validated

SCHEMA = 2  # of a record's JSON; a record with another schema is refused
MEAN_FIELDS = ("mean", "sem", "n")
SAFE_NAME = re.compile(r"\w[\w.-]{0,180}-[0-9a-f]{12}", re.ASCII)  # cannot leave the folder


@dataclass(frozen=True)
class Record:
    """The fields of a record's JSON, and its companion files."""

    config: dict[str, Any]
    config_file: str  # "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
    config_hash: str
    overrides: dict[str, Any]
    scale: str
    seeds: list[int]
    metrics: dict[str, dict[str, Any]]  # name -> {"mean", "sem", "n"}
    members: Sequence[Any]  # a dict for each seed and learning rate
    baselines: dict[str, float | None]
    seconds: dict[str, float]
    environment: dict[str, Any]
    curves: Mapping[str, Any]  # curves.Curves
    key: str = ""  # the hash of its config without the number of seeds
    content_hash: str = ""  # the hash of `config`; equals `config_hash` unless it was edited
    steps: int | None = None  # training steps; None for a figure
    alarms: list[str] = field(default_factory=list)  # problems that did not stop the run
    stale: str = ""  # why the record does not count; "" if it counts
    where: str = ""  # the file or run folder
    figure: Path | None = None
    table: Path | None = None  # the numbers behind the figure

    @classmethod
    def from_json(
        cls, content: Any, curves: Mapping[str, Any] | None = None, **companions: Any
    ) -> "Record":
        """Returns the validated record of a JSON value; raises ValueError with one line."""
        if not isinstance(content, dict) or "schema" not in content:
            raise ValueError("it has no schema, so it is not a record")
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
        validate_record.check_content(content)
        content = content | {"curves": {} if curves is None else curves}
        # The types of the fields without a default.
        required: dict[str, Any] = {
            f.name: get_origin(f.type) or f.type
            for f in fields(cls)
            if f.default is f.default_factory is MISSING
        }
        for name, kind in required.items():
            if not isinstance(content.get(name), kind):
                got = f"{content.get(name)!r:.40}"
                raise ValueError(f"{name!r} should be a {kind.__name__}, it is {got}")
        values = {name: content[name] for name in required}
        optional = {name: content[name] for name in ("steps", "alarms") if name in content}
        record = cls(**values, **optional, **companions)
        if "arguments" not in record.config:
            raise ValueError("its config has no arguments: an older version made it")
        for name, is_sound in record._sound().items():
            if not is_sound:
                raise ValueError(f"its {name!r} are damaged: {content.get(name)!r:.60}")
        try:
            name = run_name(record.config, record.config_hash)
            record.address, record.command  # noqa: B018 (a damaged config raises here)
            identity = build.config_identity(record.config)
            content_hash = validate_record.hash_of_json(identity)
            identity.pop("n_seeds", None)
            record = replace(
                record, content_hash=content_hash, key=validate_record.hash_of_json(identity)
            )
        except Exception as error:
            raise ValueError(f"its config cannot be read: {type(error).__name__} {error}") from None
        if not SAFE_NAME.fullmatch(name):
            raise ValueError(f"its config and hash make no file name: {name!r:.80}")
        return record

    @property
    def arguments(self) -> dict[str, str]:
        """Returns the labels of the config: variant, scale, and others."""
        return self.config["arguments"]

    @property
    def standing(self) -> str:
        """Returns the label of a record that does not count."""
        return "not trusted" if self.stale.startswith(NOT_TRUSTED) else "stale"

    @property
    def command(self) -> str:
        """Returns the command that makes the record again."""
        return flags.run_command(self.config_file, self.overrides)

    @cached_property
    def address(self) -> tuple:
        return address(self.config_file, self.overrides)

    def _sound(self) -> dict[str, bool]:
        """Returns for each field whether its entries have the right types."""
        config, labels, environment = self.config, self.config["arguments"], self.environment
        rates = [member.get("learning_rate") for member in self.members if type(member) is dict]
        return {
            "config": isinstance(labels, dict)
            and "scale" in labels
            and all(isinstance(label, str) for label in (*labels.values(), config.get("name"))),
            "metrics": all(map(_is_mean, self.metrics.values())),
            "members": len(rates) == len(self.members) and all(map(_is_number_or_null, rates)),
            "baselines": all(map(_is_number_or_null, self.baselines.values())),
            "seeds": all(
                isinstance(seed, int) and validate_record.is_number(seed) for seed in self.seeds
            ),
            "seconds": all(map(validate_record.is_number, self.seconds.values()))
            and {"compile", "run"} <= self.seconds.keys(),
            "steps": isinstance(self.steps, int | None) and _is_number_or_null(self.steps),
            "alarms": isinstance(self.alarms, list)
            and all(isinstance(line, str) for line in self.alarms),
            "environment": isinstance(environment.get("versions", {}), dict)
            and isinstance(environment.get("commit"), str | None),
        }


def key(config: Mapping[str, Any]) -> str:
    """Returns the hash of a config without its number of seeds; records of a cell share it."""
    return config_hash(
        build.config_identity({n: value for n, value in config.items() if n != "n_seeds"})
    )


def address(config_file: str, overrides: Mapping[str, Any]) -> tuple:
    """Returns the canonical key of a command: arguments sorted, number of seeds removed."""
    file, _, arguments = config_file.partition(":")
    values = {name: _literal(value) for name, value in overrides.items() if name != "n_seeds"}
    return file, tuple(sorted(arguments.split(","))), tuple(sorted(values.items()))


def run_name(config: Mapping[str, Any], config_hash: str) -> str:
    """Returns the name of a run folder and a record, "mixit-hops-mixit-tiny-0123456789ab"."""
    labels = config["arguments"]
    parts = [config["name"].replace("/", "-"), labels.get("variant"), labels["scale"], config_hash]
    return "-".join(filter(None, parts))


CEILING = 0.99  # an accuracy that another learning rate cannot improve much


def at_the_edge(record: Record, by: float = 0.01) -> bool:
    """Returns whether the best learning rate is the lowest or highest of its grid.

    It must be better than the second best by more than `by`. Accuracies above CEILING do not count
    as at the edge. For a loss the lowest value is the best.
    """
    by_rate: dict[float, list[float]] = {}
    for member in record.members:
        metric, score = validated(member)
        rate: Any = member.get("learning_rate")
        if validate_record.is_number(score) and validate_record.is_number(rate):
            by_rate.setdefault(rate, []).append(-score if metric == "loss" else score)
    scores = [sum(by_rate[rate]) / len(by_rate[rate]) for rate in sorted(by_rate)]
    if len(scores) < 2 or max(scores) > CEILING:
        return False
    *_, second, best = sorted(scores)
    return best > second + by and best in (scores[0], scores[-1])


def _is_mean(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_number_or_null(value.get(n, "")) for n in MEAN_FIELDS
    )


def _is_number_or_null(value: Any) -> bool:
    """Returns whether a value is a number, or the null of a number that is not finite."""
    return value is None or validate_record.is_number(value)


def _literal(value: Any) -> str:
    """Returns a text that is the same for equal values, such as "1e-3" and 0.001."""
    try:
        return str(flags.to_tuples(ast.literal_eval(flags.format_value(value))))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return str(value)
