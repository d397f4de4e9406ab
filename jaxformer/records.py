"""A run is a folder: one writer at a time, files whole or absent, every number with its settings.

config.json    the whole config, its hash, where it came from
env.json       versions, device, cores, commit of the code
metrics.jsonl  one row a logged step; lists have one entry a member of the population
result.json    what the finished run found
ckpt/          checkpoints
"""

import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer.environment import environment
from jaxformer.errors import UserError
from jaxformer.processes import agree, is_writer

SCHEMA = 2  # A reader of results/ refuses a record of another one.


class Workdir:
    """The reader and writer of one run's folder; use `open_workdir` to write."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder."""
        file = self.path / name
        try:
            return json.loads(file.read_text())
        except FileNotFoundError:
            raise UserError(f"{self.path} has no {name}: no run, or not a finished one.") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{file} is damaged: {error}.") from None

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        if is_writer():
            write_json(self.path / name, value)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl; a last line cut short by a kill is left out."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        lines = file.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Adds rows; each is whole once its line end is written."""
        if is_writer():
            with open(self.path / "metrics.jsonl", "a") as file:
                file.write(_lines(rows))

    def cut(self, step: int) -> None:
        """Forgets the rows beyond a step, which a resumed run will write again."""
        if is_writer():
            kept = [row for row in self.rows() if row["step"] <= step]
            write_atomically(self.path / "metrics.jsonl", _lines(kept).encode())


class Memory(Workdir):
    """Like Workdir, except that nothing is written: a run in a notebook that names no folder."""

    def __init__(self, config: Mapping[str, Any]):
        self.files, self.kept = {"config.json": dict(config)}, []
        self.path = None

    def read(self, name: str) -> dict[str, Any]:
        return self.files[name]

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        self.files[name] = dict(value)

    def rows(self) -> list[dict[str, Any]]:
        return self.kept

    def append(self, rows: list[dict[str, Any]]) -> None:
        self.kept = self.kept + rows

    def cut(self, step: int) -> None:
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
    except UserError:
        if not opened:
            agree(0)
        raise


@contextmanager
def _open_as_writer(workdir: Workdir, config: Mapping[str, Any]) -> Iterator[None]:
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
        lock = open(workdir / ".lock", "a+")  # noqa: SIM115 (held until the run ends)
    except OSError as error:
        raise UserError(f"cannot write to the workdir {workdir.path}: {error.strerror}.") from None
    with lock:
        _lock(lock, workdir)
        # Names with a dot are the lock and what an interrupted write left behind.
        others = {f.name for f in workdir.path.iterdir() if not f.name.startswith(".")}
        if not others or others == {"config.json", "env.json"}:
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
        if name == "name" or _plain(value) != _plain(defaults[name])
    }


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON with sorted names; numbers that JSON does not have become null."""
    return json.dumps(_plain(value), sort_keys=True, indent=indent, allow_nan=False)


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(dumps(row) + "\n" for row in rows)


def write_json(file: Path, value: Any) -> None:
    write_atomically(file, (dumps(value, indent=1) + "\n").encode())


def write_atomically(file: Path, content: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "wb") as temporary:
            temporary.write(content)
            temporary.flush()
            os.fsync(temporary.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


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
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()


def _stamp(workdir: Workdir) -> None:
    """Writes env.json; a run that goes on elsewhere is told that its bits may differ."""
    now = environment()
    if (workdir / "env.json").exists():
        before = workdir.read("env.json")
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
    if held["config_hash"] == config["config_hash"]:
        return
    old, new = flat(held["config"]), flat(_plain(config["config"]))
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    name = changed[0]
    raise UserError(
        f"the workdir {workdir.path} holds another config: {len(changed)} fields differ, such as "
        f"{name} = {old.get(name)!r} there and {new.get(name)!r} now; give another --workdir."
    )


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optim.learning_rate": value} of a nested config."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = value
    return fields
