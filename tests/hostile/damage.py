"""Damages a file of a finished command and runs the command again.

    python -m tests.hostile.damage FOLDER SEED TIMES MODULE ARGUMENT...

The command then ends with the same files, or one line names the damage. A run loses its result, so
that it is resumed. DAMAGES lists the kinds of damage. FOLDER and ARGUMENT are those of harness.py.
"""

import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hostile.harness import COMPLETE, ending, imported, start


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(bytes(content))


def nuls(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    first = draw.randrange(len(content) or 1)
    file.write_bytes(content[:first] + bytes(len(content) - first))


def other(file: Path, draw: random.Random) -> None:
    """Writes the content of another file, if possible one of the same name."""
    files = [f for f in sorted(file.parents[1].rglob("*")) if f.is_file() and f != file]
    same_name = [f for f in files if f.name == file.name] or files
    file.write_bytes(draw.choice(same_name).read_bytes())


DAMAGES: dict[str, Callable[[Path, random.Random], object]] = {
    "a bit": flip,
    "NULs": nuls,
    "another file": other,
    "half": lambda file, draw: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file, draw: file.write_bytes(b""),
    "deleted": lambda file, draw: file.unlink(),
    "a line lost": lambda file, draw: file.write_bytes(file.read_bytes().partition(b"\n")[2]),
}


def main(folder: Path, seed: int, times: int, words: list[str]) -> int:
    command, draw, whole = imported(words[0]), random.Random(seed), folder / "whole"
    code, _ = start(command, words[1:], whole)
    if code not in COMPLETE:
        print((folder / "whole.log").read_text())
        return 1
    expected, healed, refused = ending(whole), 0, 0
    for number in range(times):
        place = folder / f"damaged{number}"
        shutil.copytree(whole, place)
        for result in ("result.json", "run/result.json"):
            (place / result).unlink(missing_ok=True)
        files = sorted(f for f in place.rglob("*") if f.is_file() and f.suffix != ".png")
        file = draw.choice(files)
        kind = draw.choice([*DAMAGES])
        DAMAGES[kind](file, draw)
        damage = f"{kind} of {file.relative_to(place)}"
        code, _ = start(command, words[1:], place)
        log = place.with_name(f"{place.name}.log").read_text()
        lines = [line for line in log.splitlines() if line.startswith("error: ")]
        is_complete = code in COMPLETE
        if "Traceback" in log or not (is_complete or (code == 2 and len(lines) == 1)):
            print(f"{damage}: exit code {code}\n{log[-3000:]}")
            return 1
        if is_complete and ending(place) != expected:
            print(f"{damage}: exit code {code}, and other files than without the damage")
            return 1
        healed, refused = healed + is_complete, refused + (not is_complete)
        shutil.rmtree(place)
    print(f"{times} damages: {healed} healed, {refused} refused in a line")
    return 0


if __name__ == "__main__":
    first, number, often, *rest = sys.argv[1:]
    sys.exit(main(Path(first), int(number), int(often), rest))
