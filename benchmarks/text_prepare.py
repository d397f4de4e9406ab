"""The cost of preparing text: wall and CPU seconds, and the peak memory of the command.

    python benchmarks/text_prepare.py [--megabytes=100] [--tokenizer=bpe:1024]

The text is drawn: words of one to ten letters, whose frequencies fall as in natural language, in
lines of twelve. It is written, prepared as a user would do it, and removed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxformer.core.errors import check_range
from jaxformer.runtime.command_line import Parser, command

ROOT = Path(__file__).parents[1]
WORDS, LINE, LINES = 50_000, 12, 10_000


def write(file: Path, size: int) -> None:
    """So many bytes of drawn text, the same each time."""
    rng = np.random.default_rng(0)
    letters = rng.choice([*"etaoinshrdlcumwfgypbvk"], (WORDS, 10))
    words = ["".join(row[:n]) for row, n in zip(letters, rng.integers(1, 11, WORDS), strict=True)]
    share = 1 / np.arange(10, WORDS + 10)
    with open(file, "w") as held:
        while held.tell() < size:
            drawn = rng.choice(WORDS, (LINES, LINE), p=share / share.sum())
            lines = "".join(" ".join(words[i] for i in row) + ".\n" for row in drawn.tolist())
            held.write(lines[: size - held.tell()])


def processor() -> str:
    """The model of this machine's processor, and on how many cores this process may run."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text() if info.exists() else "")
    return f"{found[1] if found else 'unknown processor'}, {len(os.sched_getaffinity(0))} cores"


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--tokenizer", default="bpe:1024")
    asked = parser.parse_args(argv)
    check_range("--megabytes", asked.megabytes, 0.1)
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "text.txt"
        write(text, int(1e6 * asked.megabytes))
        words = [sys.executable, str(ROOT / "experiments" / "prepare.py"), f"--dataset=text:{text}"]
        words += [f"--tokenizer={asked.tokenizer}", f"--out={place}/out"]
        began = time.perf_counter()
        child = subprocess.Popen(words, cwd=ROOT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
    if child.returncode:
        return child.returncode
    print(
        f"{asked.megabytes:g} MB with {asked.tokenizer}: {seconds:.1f} s, "
        f"{used.ru_utime + used.ru_stime:.1f} CPU s, {used.ru_maxrss / 2**20:.2f} GiB at its peak"
    )
    print(processor())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
