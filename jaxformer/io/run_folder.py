"""A run is a folder: one writer at a time, files whole or absent, every number with its settings.

config.json    the whole config, its hash, where it came from
env.json       versions, device, cores, commit of the code
metrics.jsonl  one row a logged step; lists have one entry a member of the population
result.json    what the finished run found
ckpt/          checkpoints

config.json and result.json have a checksum of their own. What the rows were is said by every
checkpoint and by result.json, so that a row that is lost or other is noticed.
"""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.io.atomic_files import (
    dumps,
    naming,
    plain,
    remove_temporaries,
    sealed,
    unsealed,
    write_atomically,
    write_json,
)
from jaxformer.io.rows import Held, Row, Rows, no_link
from jaxformer.runtime.environment import environment
from jaxformer.runtime.processes import agree, is_writer

__all__ = ["Memory", "Workdir", "dumps", "open_workdir", "write_atomically", "write_json"]

SCHEMA = 2  # A reader of results/ refuses a record of another one.
ROWS = "rows"  # where result.json says what metrics.jsonl holds
# What a reader relies on: file -> field -> its type.
FIELDS: dict[str, dict[str, type]] = {
    "config.json": {"config": dict},
    "result.json": {"config": dict, "metrics": dict, "members": list},
}


class Workdir:
    """The reader and writer of one run's folder; use `open_workdir` to write.

    `tell` lets the listeners hear of the run (listeners.py).
    """

    listeners: Sequence[Any] = ()

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        self._rows = Rows(self.path / "metrics.jsonl")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder, verified."""
        return {field: value for field, value in self._read(name).items() if field != ROWS}

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a JSON file with its checksum; a result also says what the rows are."""
        if is_writer():
            rows = {ROWS: self.written()} if name == "result.json" else {}
            write_json(self.path / name, sealed({**value, **rows}))
            if rows:
                self.tell("result", value)

    def rows(self) -> list[Row]:
        """The rows of metrics.jsonl; those of a finished run are compared with what it wrote."""
        finished = self.written() is None and (self.path / "result.json").exists()
        return self._rows.read(self._read("result.json").get(ROWS) if finished else None)

    def append(self, rows: list[Row]) -> None:
        """Adds rows; each is whole once its line end is written."""
        if is_writer() and rows:
            self._rows.append(rows)
            self.tell("rows", rows)

    def tell(self, what: str, *words: Any) -> None:
        """Calls the method `what` of every listener; one that fails is named and heard no more."""
        for one in list(self.listeners):
            try:
                getattr(one, what)(*words)
            except Exception as error:
                self.listeners = [other for other in self.listeners if other is not one]
                name = type(one).__name__
                print(f"warning: {name} hears no more: {one_line(error, 300)}", file=sys.stderr)

    def written(self) -> Held | None:
        """What the rows are, for a checkpoint to say."""
        return self._rows.written()

    def rows_differ(self, held: Held | None) -> str:
        """Why the rows are not those that a checkpoint speaks of, or ""."""
        why = self._rows.differ(held) if is_writer() and held else ""
        return why and f"of metrics.jsonl: {why}"

    def go_on(self, held: Held | None, step: int) -> None:
        """Forgets the rows that came after a checkpoint, which a resumed run will write again."""
        if is_writer():
            self._rows.go_on(held, step)

    def _read(self, name: str) -> dict[str, Any]:
        file = self.path / name
        try:
            value = unsealed(json.loads(file.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{self.path} has no {name}: no run, or not a finished one.") from None
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} is damaged: {error}.") from None
        if not isinstance(value, dict):
            raise UserError(f"{file} is damaged: it holds no object but {str(value)[:40]!r}.")
        for field, kind in FIELDS.get(name, {}).items():
            if not isinstance(value.get(field), kind):
                raise UserError(f"{file} is damaged: it has no {field!r} of a run.")
        return value


class Memory(Workdir):
    """Like Workdir, except that nothing is written: a run in a notebook that names no folder."""

    def __init__(self, config: Mapping[str, Any]):
        self.files, self.kept = {"config.json": dict(config)}, []
        self.path = None

    def read(self, name: str) -> dict[str, Any]:
        return self.files[name]

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        self.files[name] = dict(value)

    def rows(self) -> list[Row]:
        return self.kept

    def append(self, rows: list[Row]) -> None:
        self.kept = self.kept + rows

    def go_on(self, held: Held | None, step: int) -> None:
        self.kept = [row for row in self.kept if row["step"] <= step]


@contextmanager
def open_workdir(path: str | Path, config: Mapping[str, Any]) -> Iterator[Workdir]:
    """The folder of a run, made if missing, locked, and checked to hold this config or none.

    `config` is what config.json holds: {"config": .., "config_hash": .., ..}. In a job of several
    processes process 0 does this and the others follow.
    """
    workdir = Workdir(path)
    if not is_writer():
        if not agree(0):
            raise UserError("process 0 of this job could not open the workdir; see its message.")
        yield workdir
        return
    opened = False
    try:
        with _open_as_writer(workdir, config):
            opened = bool(agree(1))
            yield workdir
    except (UserError, OSError):
        if not opened:
            agree(0)
        raise


@contextmanager
def _open_as_writer(workdir: Workdir, config: Mapping[str, Any]) -> Iterator[None]:
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
        lock = open(workdir / ".lock", "a+", opener=no_link)  # noqa: SIM115 (held until the end)
    except OSError as error:
        raise UserError(f"cannot write to the workdir {workdir.path}: {error.strerror}.") from None
    with lock:
        _lock(lock, workdir)
        remove_temporaries(workdir.path)
        others = {f.name for f in workdir.path.iterdir() if not f.name.startswith(".")}
        if others <= {"config.json", "env.json"}:
            # Nothing was run: the config was refused, and the mended one may take the folder.
            workdir.write("config.json", config)
        elif "config.json" in others:
            _check_same_config(workdir, config)
        else:
            raise UserError(
                f"the workdir {workdir.path} has files but no config.json; choose an empty folder."
            )
        _stamp(workdir)
        yield


def config_hash(said: Mapping[str, Any]) -> str:
    """Twelve digits that change when a config says something else (see `build.said`)."""
    return hashlib.sha256(dumps(said).encode()).hexdigest()[:12]


def said(section: Mapping[str, Any], noun: type | None) -> dict[str, Any]:
    """The fields of a section that differ from the defaults of their dataclass; `name` stays.

    A section without a dataclass, or with a field that it lacks, is said whole.
    """
    defaults = {field.name: field.default for field in fields(noun)} if noun else {}
    if not section.keys() <= {"name", *defaults}:
        return dict(section)
    return {
        name: value
        for name, value in section.items()
        if name == "name" or plain(value) != plain(defaults[name])
    }


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optim.learning_rate": value} of a nested config."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def _lock(lock, workdir: Workdir) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        raise UserError(
            f"the workdir {workdir.path} is in use by process {holder}; wait for it, or give "
            "another --workdir."
        ) from None
    with naming(workdir / ".lock"):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _stamp(workdir: Workdir) -> None:
    """Writes env.json; a run that goes on elsewhere is told that its bits may differ."""
    now = environment()
    try:
        before = workdir.read("env.json") if (workdir / "env.json").exists() else now
    except UserError as error:
        print(f"warning: {error} It is written again.", file=sys.stderr)
        before = now
    for name in ("versions", "platform", "device", "devices", "cores"):
        if before.get(name) != now[name]:
            print(
                f"warning: {name} was {before.get(name)} when this run began and is "
                f"{now[name]} now; results may differ in the last bits.",
                file=sys.stderr,
            )
    workdir.write("env.json", now)


def _check_same_config(workdir: Workdir, config: Mapping[str, Any]) -> None:
    held = workdir.read("config.json")
    if {"tokens"} <= held.keys() & config.keys() and held["tokens"] != config["tokens"]:
        raise UserError(
            f"the workdir {workdir.path} read tokens of the fingerprint {held['tokens']}; those of "
            f"task.tokens have {config['tokens']} now. Prepare that text again, or give another "
            "--workdir."
        )
    old, new = flat(held["config"]), flat(plain(config["config"]))
    if held.get("config_hash") == config["config_hash"]:
        # A field that only one of them has is an option that came or went with the code.
        both = [name for name in sorted(old.keys() & new) if not name.startswith("arguments.")]
        edited = [name for name in both if old[name] != new[name]]
        if not edited:
            return
        raise UserError(
            f"{workdir / 'config.json'} was edited: {edited[0]} = {old[edited[0]]!r} there and "
            f"{new[edited[0]]!r} now, under the same hash; give another --workdir."
        )
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    if not changed:
        raise UserError(
            f"{workdir / 'config.json'} was edited: its config is this one, its config_hash is "
            f"{held.get('config_hash')!r} for {config['config_hash']!r}; give another --workdir."
        )
    name = changed[0]
    raise UserError(
        f"the workdir {workdir.path} holds another config: {len(changed)} fields differ, such as "
        f"{name} = {old.get(name)!r} there and {new.get(name)!r} now; give another --workdir."
    )
