"""Runs one command many times, kills it at drawn moments, and compares how it ends.

    python -m tests.hostile.harness FOLDER SEED KILLS WORD...

imports everything once, and forks a child for each start, before any device is used. A kill comes
before a drawn call that changes a file of the run, or after a drawn time. The same command is given
until it ends; then its rows, arrays, result and last checkpoint are those of an undisturbed run.
"""

import builtins
import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CALLS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "open")
# What a run imports where it first uses it: once here, and not again in each child.
LATE = ("matplotlib.pyplot", "numpyro.infer", "orbax.checkpoint", "scipy.linalg")
ENDED = (0, 4)  # 4: with chains that are not to be trusted, as those of sixty draws
TIMES = ("seconds", "environment", "performance", "timing")  # what a result may say anew
TIMED = 0.3  # the share of kills that a clock decides


def main(folder: Path, seed: int, kills: int, words: list[str]) -> int:
    command, draw = imported(), random.Random(seed)
    began = time.monotonic()
    code, total = start(command, words, folder / "whole")
    seconds, chain, killed = time.monotonic() - began, 0, 0
    if code not in ENDED:
        print((folder / "whole.log").read_text())
        return 1
    expected = ending(folder / "whole")
    moments = []
    while killed < kills:
        place = folder / f"chain{chain}"
        at = draw.randint(1, total) if draw.random() > TIMED else 0
        after = 0.0 if at else draw.uniform(0, seconds)
        # After some kills a chain may end, so that there are several.
        if moments and draw.random() < 0.3:
            at, after = 0, 0.0
        code, _ = start(command, words, place, at, after)
        if code == -signal.SIGKILL:
            killed += 1
            moments.append(f"call {at}" if at else f"{after:.2f} s")
            continue
        found = ending(place) if code in ENDED else {"code": code}
        for part in {**expected, **found}:
            if found.get(part) != expected.get(part):
                print(f"{part} differs after kills at {moments}: {place}")
                print((folder / f"chain{chain}.log").read_text()[-3000:])
                return 1
        chain, moments = chain + 1, []
    print(f"{killed} kills in {chain} chains; {total} calls, {seconds:.1f} s undisturbed")
    return 0


def imported() -> Callable:
    """The command, with all that any recipe imports."""
    from experiments import run
    from experiments.recipes import posterior_draws

    recipes = ("look", "measure", "oneshot", "posterior", "recall", "solve", "train")
    for name in (*(f"experiments.recipes.{recipe}" for recipe in recipes), *LATE):
        importlib.import_module(name)
    posterior_draws.SAVE_SECONDS = 0.0  # a state of the chain is saved after each draw
    return run.main


def start(command: Callable, words: list[str], place: Path, at: int = 0, after: float = 0.0):
    """(exit code, calls) of one start of the command; killed before call `at`, or `after` a time.

    The exit code of what was killed is that of the signal, negative.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        count = killer(place, at)
        code = 99
        try:
            code = command([*words, f"--workdir={place}"])
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


def killer(place: Path, at: int) -> list[int]:
    """Counts the calls that change files below `place`, and kills this process before one."""
    count, inside = [0], str(place)

    def counted(function: Callable, changes: Callable[..., bool]) -> Callable:
        def call(*args: Any, **more: Any) -> Any:
            if changes(*args, **more):
                count[0] += 1
                if count[0] == at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **more)

        return call

    def named(path: Any, *_: Any, **__: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(inside)

    def writes(path: Any, mode: Any = "r", *_: Any, **__: Any) -> bool:
        changing = mode & (os.O_WRONLY | os.O_RDWR) if isinstance(mode, int) else mode[:1] != "r"
        return bool(changing) and named(path)

    for name in CALLS:
        changes = {"open": writes, "fsync": lambda _: True}.get(name, named)
        setattr(os, name, counted(getattr(os, name), changes))
    builtins.open = counted(builtins.open, writes)
    return count


def ending(place: Path) -> dict[str, Any]:
    """Returns what must not depend on kills: rows, arrays, the result and the last checkpoint."""
    from jaxformer.io.checkpoint_reader import list_steps
    from jaxformer.io.run_folder import Workdir

    result = Workdir(place).read("result.json")
    found = {name: result[name] for name in result if name not in TIMES}
    if (place / "metrics.jsonl").exists():
        found["rows"] = (place / "metrics.jsonl").read_text()
    if (place / "arrays.npz").exists():
        with np.load(place / "arrays.npz") as held:
            found["arrays"] = {name: held[name].tobytes() for name in held.files}
    for step in list_steps(place / "ckpt")[:1]:
        note = json.loads((place / f"ckpt/{step}/note/metadata").read_text())
        found["checkpoint"] = note["step"], note["arrays"]
    found["files"] = sorted(f.name for f in place.iterdir() if f.suffix in (".png", ".npz"))
    return found


if __name__ == "__main__":
    first, number, often, *rest = sys.argv[1:]
    sys.exit(main(Path(first), int(number), int(often), rest))
