"""The cost of preparing text: wall and CPU seconds, and the peak memory of the command.

    python benchmarks/text_prepare.py [--megabytes=100] [--tokenizer=bpe:1024]

The text is random: words of one to ten letters with frequencies as in natural language, twelve on a
line. The benchmark writes it, prepares it with `prepare.py` and removes it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxformer.core.errors import check_range
from jaxformer.runtime.command_line import Parser, command
from jaxformer.runtime.environment import processor

ROOT = Path(__file__).parents[1]
WORDS, LINE, LINES = 50_000, 12, 10_000  # different words, words on a line, lines of a write


def write(file: Path, size: int) -> None:
    """Writes `size` bytes of random text, equal in each call."""
    rng = np.random.default_rng(0)
    letters = rng.choice([*"etaoinshrdlcumwfgypbvk"], (WORDS, 10))
    words = ["".join(row[:n]) for row, n in zip(letters, rng.integers(1, 11, WORDS), strict=True)]
    share = 1 / np.arange(10, WORDS + 10)  # frequencies as in natural language (Zipf's law)
    with open(file, "w") as stream:
        while stream.tell() < size:
            drawn = rng.choice(WORDS, (LINES, LINE), p=share / share.sum())
            lines = "".join(" ".join(words[i] for i in row) + ".\n" for row in drawn.tolist())
            stream.write(lines[: size - stream.tell()])


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--tokenizer", default="bpe:1024")
    args = parser.parse_args(argv)
    check_range("--megabytes", args.megabytes, 0.1)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write(text, int(1e6 * args.megabytes))
        arguments = [
            sys.executable,
            str(ROOT / "experiments" / "prepare.py"),
            f"--dataset=text:{text}",
        ]
        arguments += [f"--tokenizer={args.tokenizer}", f"--out={folder}/out"]
        began = time.perf_counter()
        child = subprocess.Popen(arguments, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
    if child.returncode:
        return child.returncode
    cpu_seconds = usage.ru_utime + usage.ru_stime
    print(
        f"{args.megabytes:g} MB with {args.tokenizer}: {seconds:.1f} s, {cpu_seconds:.1f} CPU s, "
        f"{usage.ru_maxrss / 2**20:.2f} GiB at its peak"
    )
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
