"""A record: what a finished run found and the config that made it, as every reader sees it."""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_origin

from experiments.ledger.curves import Curves
from experiments.shared import flags
from jaxformer import build
from jaxformer.records import SCHEMA, config_hash


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
        content = content | {"curves": curves or {}}
        needed: dict[str, Any] = {
            f.name: get_origin(f.type) or f.type for f in fields(cls) if f.default is MISSING
        }
        for name, kind in needed.items():
            if not isinstance(content.get(name), kind):
                came = f"{content.get(name)!r:.40}"
                raise ValueError(f"{name!r} should be a {kind.__name__}, it is {came}")
        values = {name: content[name] for name in needed}
        record = cls(**values, steps=content.get("steps"), **beside)
        if "arguments" not in record.config:
            raise ValueError("its config has no arguments: an older version made it")
        for name, is_sound in record._sound().items():
            if not is_sound:
                raise ValueError(f"its {name!r} are damaged: {content.get(name)!r:.60}")
        return record

    @property
    def arguments(self) -> dict[str, str]:
        """The labels of its config: variant, scale, .."""
        return self.config["arguments"]

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
        config, numbers = self.config, float | int | None
        return {
            "config": isinstance(config.get("arguments"), dict) and "name" in config,
            "metrics": all(map(_is_mean, self.metrics.values())),
            "members": all(isinstance(member, dict) for member in self.members),
            "baselines": all(isinstance(value, numbers) for value in self.baselines.values()),
            "seeds": all(isinstance(seed, int) for seed in self.seeds),
            "seconds": all(isinstance(value, float | int) for value in self.seconds.values()),
            "steps": isinstance(self.steps, int | None),
            "environment": isinstance(self.environment.get("versions", {}), dict),
        }


def key(config: Mapping[str, Any]) -> str:
    """The hash of what a config says, the number of seeds apart: equal keys are one cell."""
    return config_hash(build.said({n: value for n, value in config.items() if n != "n_seeds"}))


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


def _is_mean(value: Any) -> bool:
    names, kinds = ("mean", "sem", "n"), float | int | None
    return isinstance(value, dict) and all(isinstance(value.get(n, ""), kinds) for n in names)


def _literal(value: Any) -> str:
    try:
        return str(flags.tuples(ast.literal_eval(flags.spelled(value))))
    except (ValueError, SyntaxError):
        return str(value)
