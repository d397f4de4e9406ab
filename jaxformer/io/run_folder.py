"""Reads and writes a run's folder. One process writes; each JSON file is complete or absent.

config.json    the config, its hash, and the file and overrides that it came from
env.json       versions, device, cores, flags of XLA, commit of the code
metrics.jsonl  one row for each logged step; lists have one entry for each member of the population
timing.jsonl   rows of the training speed, if the run measures it; a resumed run appends more
result.json    the results of a finished run
ckpt/          checkpoints

config.json and result.json carry a checksum. Every checkpoint and result.json store the fingerprint
of the rows, their length and checksum, so that lost or edited rows are detected.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, did_you_mean, setting
from jaxformer.io.atomic_files import (
    dumps,
    errors_name,
    json_value,
    remove_temporaries,
    with_checksum,
    without_checksum,
    write_json,
)
from jaxformer.io.file_lock import refuse_links, try_lock
from jaxformer.io.rows import Fingerprint, Row, Rows
from jaxformer.runtime.environment import environment
from jaxformer.runtime.processes import from_process_0, is_writer

ROWS = "rows"  # the field of result.json that holds the fingerprint of metrics.jsonl
# {file: {required field: its type}}
FIELDS: dict[str, dict[str, type]] = {
    "config.json": {"config": dict},
    "result.json": {"config": dict, "metrics": dict, "members": list},
}


class Workdir:
    """Reads and writes one run's folder; use `open_workdir` to write.

    Attributes:
        path: the absolute path of the folder.
        loggers: receives the rows and the result as they are written
            (`jaxformer.training.loggers.Loggers`).
    """

    loggers: Any = None

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        self._rows = Rows(self.path / "metrics.jsonl")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def read(self, name: str) -> dict[str, Any]:
        """Reads and verifies a JSON file of the folder."""
        return {field: value for field, value in self._read(name).items() if field != ROWS}

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a JSON file with its checksum; a result also gets the fingerprint of the rows."""
        if not is_writer():
            return
        content = dict(value)
        if name == "result.json":
            content[ROWS] = self.rows_fingerprint()
        with self._refusing_to_vanish():
            write_json(self.path / name, with_checksum(content))
        if name == "result.json" and self.loggers:
            self.loggers.on_result(value)

    def rows(self) -> list[Row]:
        """Reads the rows of metrics.jsonl, and verifies those of a finished run."""
        # A process that writes the rows verifies them by its own fingerprint.
        finished = self.rows_fingerprint() is None and (self.path / "result.json").exists()
        return self._rows.read(self._read("result.json").get(ROWS) if finished else None)

    def append(self, rows: list[Row]) -> None:
        """Appends rows to metrics.jsonl; a row is complete once its line end is written."""
        if is_writer() and rows:
            with self._refusing_to_vanish():
                self._rows.append(rows)
            if self.loggers:
                self.loggers.on_rows(rows)

    def append_timing(self, row: Row) -> None:
        """Appends a row to timing.jsonl, whose numbers differ between equal runs."""
        if is_writer():
            with self._refusing_to_vanish():
                Rows(self.path / "timing.jsonl").append([row])
            if self.loggers:
                self.loggers.on_rows([row])

    def run_hash(self, examples: str) -> str:
        """Identifies the run by its config and by the hash of its first held-out examples."""
        return config_hash([self.read("config.json").get("config_hash"), examples])

    def rows_fingerprint(self) -> Fingerprint | None:
        """Returns the length and checksum of the rows, which a checkpoint stores."""
        return self._rows.fingerprint()

    def rows_difference(self, expected: Fingerprint | None) -> str:
        """Returns why the rows do not have the fingerprint in a checkpoint, or ""."""
        why = self._rows.difference(expected) if is_writer() and expected else ""
        return f"metrics.jsonl: {why}" if why else ""

    def resume_rows(self, expected: Fingerprint | None, step: int) -> None:
        """Deletes the rows after a checkpoint, which the resumed run will write again."""
        if is_writer():
            self._rows.resume(expected, step)

    @contextmanager
    def _refusing_to_vanish(self) -> Iterator[None]:
        """Turns the error of a folder that somebody removed while it was written into one line."""
        try:
            yield
        except FileNotFoundError:
            if self.path.is_dir():
                raise
            raise UserError(
                f"the workdir {self.path} was removed or renamed while it was written. Name it so "
                "again and repeat the call, which resumes from its last checkpoint; or begin anew."
            ) from None

    def _read(self, name: str) -> dict[str, Any]:
        file = self.path / name
        try:
            value = without_checksum(json.loads(file.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{self.path} has no {name}: no run, or not a finished one."
                f"{_similar_folder(self.path)}"
            ) from None
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} is damaged: {error}.") from None
        if not isinstance(value, dict):
            raise UserError(f"{file} is damaged: expected an object, got {str(value)[:40]!r}.")
        for field, kind in FIELDS.get(name, {}).items():
            if not isinstance(value.get(field), kind):
                raise UserError(f"{file} is damaged: it has no {field!r} of a run.")
        return value


class MemoryWorkdir(Workdir):
    """A Workdir that writes nothing, for a run in a notebook without a folder."""

    def __init__(self, config: Mapping[str, Any]):
        self.path = None
        self._files = {"config.json": dict(config)}
        self._appended = []

    def read(self, name: str) -> dict[str, Any]:
        return self._files[name]

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        self._files[name] = dict(value)

    def rows(self) -> list[Row]:
        return self._appended

    def append(self, rows: list[Row]) -> None:
        self._appended = self._appended + rows

    def append_timing(self, row: Row) -> None:
        pass

    def resume_rows(self, expected: Fingerprint | None, step: int) -> None:
        self._appended = [row for row in self._appended if row["step"] <= step]


@contextmanager
def open_workdir(path: str | Path, config: Mapping[str, Any]) -> Iterator[Workdir]:
    """Creates and locks the folder of a run, and checks that it contains this config or none.

    In a job of several processes, process 0 does this and the others wait for it.

    Args:
        path: the folder.
        config: the content of config.json: {"config": .., "config_hash": .., ..}.
    """
    workdir = Workdir(path)
    if not is_writer():
        if not from_process_0(0):
            raise UserError("process 0 of this job could not open the workdir; see its message.")
        yield workdir
        return
    is_open = False  # process 0 sends 1 to the others once the folder is open, and 0 if that fails
    try:
        with _open_as_writer(workdir, config):
            is_open = bool(from_process_0(1))
            yield workdir
    except (UserError, OSError):
        if not is_open:
            from_process_0(0)
        raise


@contextmanager
def locked(workdir: Workdir) -> Iterator[None]:
    """Creates a folder and locks it: for a second process it is a one-line error."""
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
        lock = open(workdir / ".lock", "a+", opener=refuse_links)  # noqa: SIM115 (kept open below)
    except OSError as error:
        raise UserError(f"cannot write to the workdir {workdir.path}: {error.strerror}.") from None
    with lock:
        _lock(lock, workdir)
        yield


@contextmanager
def _open_as_writer(workdir: Workdir, config: Mapping[str, Any]) -> Iterator[None]:
    with locked(workdir):
        remove_temporaries(workdir.path)
        files = {file.name for file in workdir.path.iterdir() if not file.name.startswith(".")}
        if files <= {"config.json", "env.json"}:
            # Nothing has run: an earlier config was refused, and a corrected one may replace it.
            workdir.write("config.json", config)
        elif "config.json" in files:
            _check_same_config(workdir, config)
        else:
            raise UserError(
                f"the workdir {workdir.path} has files but no config.json; choose an empty folder."
            )
        _write_environment(workdir, is_finished="result.json" in files)
        yield


def config_hash(identity: Any) -> str:
    """Returns the first twelve hexadecimal digits of the hash of `build.config_identity`."""
    return hashlib.sha256(dumps(identity).encode()).hexdigest()[:12]


def flatten_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"optim.learning_rate": value} of a nested config."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            fields |= flatten_config(value, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def _similar_folder(path: Path) -> str:
    """Returns " Did you mean 'frozen'?" if a run beside a missing folder has a similar name."""
    if path.exists() or not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, (f.parent.name for f in path.parent.glob("*/config.json")))


def _lock(lock, workdir: Workdir) -> None:
    """Locks the folder and writes the number of this process into the lock file."""
    if not try_lock(lock):
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        raise UserError(
            f"the workdir {workdir.path} is in use by process {holder}; wait for it, or give "
            f"another {setting('workdir')}."
        )
    with errors_name(workdir / ".lock"):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _write_environment(workdir: Workdir, is_finished: bool) -> None:
    """Writes env.json, and warns if the run began in another environment.

    A finished run keeps the environment that made its numbers.
    """
    now = environment()
    try:
        before = workdir.read("env.json") if (workdir / "env.json").exists() else now
        if is_finished and before is not now:
            return
    except UserError as error:
        print(f"warning: {error} It is written again.", file=sys.stderr)
        before = now
    for name in ("versions", "platform", "device", "devices", "cores", "variables"):
        began_with = before.get(name, now[name])  # older runs lack some names
        if began_with != now[name]:
            print(
                f"warning: {name} was {began_with} when this run began and is "
                f"{now[name]} now; results may differ in the last bits.",
                file=sys.stderr,
            )
    workdir.write("env.json", now)


def _check_same_config(workdir: Workdir, config: Mapping[str, Any]) -> None:
    stored = workdir.read("config.json")
    both_have_tokens = "tokens" in stored and "tokens" in config
    if both_have_tokens and stored["tokens"] != config["tokens"]:
        raise UserError(
            f"the workdir {workdir.path} read tokens with the fingerprint {stored['tokens']}; "
            f"task.tokens has {config['tokens']} now. Prepare that text again, or give another "
            f"{setting('workdir')}."
        )
    old, new = flatten_config(stored["config"]), flatten_config(json_value(config["config"]))
    if stored.get("config_hash") == config["config_hash"]:
        # An option that exists in only one of them was added or removed in the code. The hash does
        # not include the labels in `arguments`.
        common = [name for name in sorted(old.keys() & new) if not name.startswith("arguments.")]
        edited = [name for name in common if old[name] != new[name]]
        if not edited:
            return
        raise UserError(
            f"{workdir / 'config.json'} was edited: {setting(edited[0])} = {old[edited[0]]!r} "
            f"there and {new[edited[0]]!r} now, under the same hash; give another "
            f"{setting('workdir')}."
        )
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    if not changed:
        raise UserError(
            f"{workdir / 'config.json'} was edited: its config is this one, its config_hash is "
            f"{stored.get('config_hash')!r} instead of {config['config_hash']!r}; give another "
            f"{setting('workdir')}."
        )
    name = changed[0]
    raise UserError(
        f"the workdir {workdir.path} has another config: {len(changed)} fields differ, such as "
        f"{setting(name)} = {old.get(name)!r} there and {new.get(name)!r} now; give another "
        f"{setting('workdir')}."
    )
