"""Runs one command many times, kills it at drawn moments, and compares its final files.

    python -m tests.hostile.harness FOLDER SEED KILLS MODULE ARGUMENT...

Each start is a forked child of this process, which has imported everything and used no device.
"{place}" in an argument becomes the folder of the start, and "{template}" FOLDER/template. If no
argument names it, FOLDER/template is copied to the folder of the start first. A kill comes before a
drawn call that changes a file of the folder, or after a drawn time. The same command is repeated
until it ends. Its files must then be those of an undisturbed run.
"""

import builtins
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CALLS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "open")
# Modules that commands import when they first use them. Children must not import them again.
LATE_IMPORTS = ("matplotlib.pyplot", "numpyro.infer", "orbax.checkpoint", "scipy.linalg")
RECIPES = ("look", "measure", "oneshot", "posterior", "recall", "solve", "train")
COMPLETE = (0, 4)  # 4: the diagnostics of sixty draws fail
# Fields that differ between equal runs: times, and checksums of a file with times.
TIMES = ("seconds", "environment", "performance", "timing", "sum", "sha256", "costs")
WITH_TIMES = ("records/*.json", "members-*/*.json", "anatomy.json")
DURATION = re.compile(r"[^;>]+ of training")  # in the page of an anatomy report
WITH_PATHS = ("config", "config_hash", "overrides")  # the folder's name is in the config
SHARE_OF_TIMED_KILLS = 0.3


def main(folder: Path, seed: int, kills: int, words: list[str]) -> int:
    command, draw = imported(words[0]), random.Random(seed)
    began = time.monotonic()
    code, n_calls = start(command, words[1:], folder / "whole")
    seconds, chain, killed = time.monotonic() - began, 0, 0
    if code not in COMPLETE:
        print((folder / "whole.log").read_text())
        return 1
    expected = ending(folder / "whole")
    moments = []
    while killed < kills:
        place = folder / f"chain{chain}"
        at_call = draw.randint(1, n_calls) if draw.random() > SHARE_OF_TIMED_KILLS else 0
        after = 0.0 if at_call else draw.uniform(0, seconds)
        # After some kills a chain may end, so that there are several.
        if moments and draw.random() < 0.3:
            at_call, after = 0, 0.0
        code, _ = start(command, words[1:], place, at_call, after)
        if code == -signal.SIGKILL:
            killed += 1
            moments.append(f"call {at_call}" if at_call else f"{after:.2f} s")
            continue
        final = ending(place) if code in COMPLETE else {"code": code}
        for part in {**expected, **final}:
            if final.get(part) != expected.get(part):
                print(f"{part} differs after kills at {moments}: {place}")
                print(f"expected {expected.get(part)!s:.300}, got {final.get(part)!s:.300}")
                print((folder / f"chain{chain}.log").read_text()[-3000:])
                return 1
        chain, moments = chain + 1, []
    print(f"{killed} kills in {chain} chains; {n_calls} calls, {seconds:.1f} s undisturbed")
    return 0


def imported(module: str) -> Callable:
    """Returns the main function of a command, after imports of all that it may import later."""
    from experiments.recipes import posterior_draws
    from jaxformer.data import preparation

    for name in (*(f"experiments.recipes.{recipe}" for recipe in RECIPES), *LATE_IMPORTS):
        importlib.import_module(name)
    posterior_draws.SAVE_SECONDS = preparation.SAVE_SECONDS = 0.0  # states are saved always
    return importlib.import_module(module).main


def start(
    command: Callable, words: list[str], place: Path, at_call: int = 0, after: float = 0.0
) -> tuple[int, int]:
    """Runs the command once in a child.

    Args:
        command: the main function.
        words: its arguments.
        place: the folder of the start.
        at_call: the child is killed before this call that changes a file; 0: before none.
        after: the child is killed after this time; 0: never.

    Returns:
        The exit code, -9 if the child was killed, and the number of calls.
    """
    template = place.parent / "template"
    if template.exists() and not place.exists():
        if any("{template}" in word for word in words):
            place.mkdir()
        else:
            shutil.copytree(template, place)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        count = count_calls(place, at_call)
        code = 99
        try:
            named = {"{place}": str(place), "{template}": str(template)}
            for mark, folder in named.items():
                words = [word.replace(mark, folder) for word in words]
            code = command(words)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        os.write(writer, str(count[0]).encode())
        os._exit(code)
    os.close(writer)
    if after:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    calls = os.read(reader, 20)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), int(calls or 0)


def count_calls(place: Path, at_call: int) -> list[int]:
    """Counts the calls that change files below `place`, and kills this process before one."""
    count, inside = [0], str(place)

    def counted(function: Callable, changes: Callable[..., bool]) -> Callable:
        def call(*args: Any, **more: Any) -> Any:
            if changes(*args, **more):
                count[0] += 1
                if count[0] == at_call:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **more)

        return call

    def is_inside(path: Any, *_: Any, **__: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(inside)

    def writes(path: Any, mode: Any = "r", *_: Any, **__: Any) -> bool:
        changing = mode & (os.O_WRONLY | os.O_RDWR) if isinstance(mode, int) else mode[:1] != "r"
        return bool(changing) and is_inside(path)

    for name in CALLS:
        changes = {"open": writes, "fsync": lambda _: True}.get(name, is_inside)
        setattr(os, name, counted(getattr(os, name), changes))
    builtins.open = counted(builtins.open, writes)
    return count


def ending(place: Path) -> dict[str, Any]:
    """Returns everything that must not depend on kills.

    A run has rows, arrays, a result and a last checkpoint. Other folders have files; records are
    read without their times.
    """
    if (place / "result.json").exists():
        return ending_of_run(place)
    if (place / "run/result.json").exists():  # a run on the tokens of this folder
        final = ending_of_run(place / "run")
        return {name: final[name] for name in final if name not in WITH_PATHS}
    final: dict[str, Any] = {}
    for file in sorted(place.rglob("*")):
        name = str(file.relative_to(place))
        if not file.is_file() or file.name[0] == "." or name.startswith("runs/"):
            continue
        final[name] = hashlib.sha256(file.read_bytes()).hexdigest()
        if file.name == "rows.jsonl":  # a lost row is measured again, last
            final[name] = sorted(file.read_text().splitlines())
        if any(map(file.match, WITH_TIMES)):
            record = json.loads(file.read_text().replace(str(place), ""))  # it names its command
            final[name] = {field: record[field] for field in record if field not in TIMES}
        if file.suffix == ".npz":  # a bit of a zip file's header changes no number
            final[name] = content_of(file)
        if file.name == "anatomy.html":
            final[name] = DURATION.sub("", file.read_text().replace(str(place), ""))
    return final


def content_of(file: Path) -> dict[str, bytes]:
    """Returns the bytes of the arrays of an .npz file."""
    with np.load(file) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def ending_of_run(place: Path) -> dict[str, Any]:
    from jaxformer.io.checkpoint_reader import list_steps
    from jaxformer.io.run_folder import Workdir

    result = Workdir(place).read("result.json")
    final: dict[str, Any] = {name: result[name] for name in result if name not in TIMES}
    if (place / "metrics.jsonl").exists():
        final["rows"] = (place / "metrics.jsonl").read_text()
    if (place / "arrays.npz").exists():
        final["arrays"] = content_of(place / "arrays.npz")
    for step in list_steps(place / "ckpt")[:1]:
        note = json.loads((place / f"ckpt/{step}/note/metadata").read_text())
        final["checkpoint"] = note["step"], note["arrays"]
    final["files"] = sorted(f.name for f in place.iterdir() if f.suffix in (".png", ".npz"))
    return final


if __name__ == "__main__":
    first, number, often, *rest = sys.argv[1:]
    sys.exit(main(Path(first), int(number), int(often), rest))
