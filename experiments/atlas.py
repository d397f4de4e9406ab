"""Draws the atlas: what many tasks lose without each part of one small transformer.

    jaxformer atlas                              all tasks
    jaxformer atlas copy sort retrieval          some of them
    jaxformer atlas --scale=small                a wider network that is trained longer

  --scale=SCALE      the network and its training: tiny, small or medium (tiny)
  --seeds=N          the largest number of seeds of a variant (5)
  --no-examination   leave out the look inside the trained networks
  --workdir=DIR      folder of the anatomies (runs/atlas/SCALE)
  --write            also write the record, the page and the picture of the documentation

Defaults are in parentheses. Every task trains the same network, so that differences come from the
tasks: ten small ones (experiments/atlas_report/tasks.py) and seven of the library. Each task is an
anatomy in its own folder, with a report. Parts keep their random initial values or are removed, or
attention is replaced by a random mixing. All tasks are trained first and examined afterwards.
Ctrl-C keeps what was trained; the same command continues. Writes atlas.html, the page to read, and
atlas.json and atlas.svg into the workdir.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.atlas_report import anatomies, page, table
from experiments.cli.flags import ROOT
from jaxformer.core.errors import UserError, unknown
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.io.run_folder import Workdir, locked
from jaxformer.runtime.command_line import Parser, command, count
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.runtime.progress import Interrupt


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help="names of tasks")
    add("--scale", default="tiny")
    add("--seeds", type=count, default=5)
    add("--no-examination", action="store_true")
    add("--workdir", type=Path)
    add("--write", action="store_true")
    args = parser.parse_args(argv)
    if args.scale not in anatomies.SCALES:
        raise unknown("scale", args.scale, anatomies.SCALES)
    names = list(dict.fromkeys(args.tasks or anatomies.NAMES))
    for name in names:
        if name not in anatomies.NAMES:
            raise unknown("task", name, anatomies.NAMES)
    if args.write and args.tasks:
        raise UserError("--write is for the atlas of all tasks: name no tasks.")
    use_compilation_cache()
    folder = args.workdir or Path("runs/atlas") / args.scale
    scale = anatomies.SCALES[args.scale]
    record = {"scale": args.scale, "network": scale._asdict(), "seeds": args.seeds, "tasks": {}}
    with locked(Workdir(folder)), Interrupt() as interrupt:
        for line in draw(record, names, folder, not args.no_examination, interrupt):
            print(line, flush=True)
            page.save(folder, record)
    if interrupt.signal:
        print("stopped: the same command continues.")
        return 128 + interrupt.signal
    if args.write:
        write(record)
    print("\n".join(["", *table.sentences(record["tasks"]), "", f"page: {folder / 'atlas.html'}"]))
    return 0


def draw(
    record: dict[str, Any], names: Sequence[str], folder: Path, is_examined: bool, interrupt: Any
) -> Iterator[str]:
    """Trains all tasks, then examines them; yields a line after each change of the record."""
    rows, began = record["tasks"], time.process_time()
    scale, reports = anatomies.SCALES[record["scale"]], {}

    def line(name: str, done: str) -> str:
        minutes = (time.process_time() - began) / 60
        return f"{name}: {done}, {minutes:.1f} CPU minutes so far"

    for name in names:
        found = anatomies.study_of(name, scale, folder / name, record["seeds"])
        report = anatomies.train(found, folder / name, lambda: bool(interrupt.signal))
        if report is not None:
            rows[name] = table.row(report)
            if anatomies.is_examined(report, folder / name):
                rows[name]["sentences"] = page.read(folder / name / "anatomy.json")["sentences"]
            else:
                reports[name] = found, report
        else:
            rows[name] = anatomies.not_learned(found)
        if interrupt.signal:
            return
        yield line(name, f"{rows[name]['trainings']:.0f} trainings")
    for name, (found, report) in reports.items() if is_examined else ():
        if interrupt.signal:
            return
        rows[name]["sentences"] = anatomies.examine(found, report, folder / name).sentences
        yield line(name, "examined")


def write(record: dict[str, Any]) -> None:
    """Writes the record, the page and the picture of the documentation."""
    file = ROOT / f"docs/atlas/{record['scale']}.json"
    file.parent.mkdir(exist_ok=True)
    write_json(file, record)
    write_atomically(ROOT / "docs/atlas.md", page.markdown(record).encode())
    drawn = page.picture.picture(record["tasks"])
    write_atomically(ROOT / "docs/pictures/atlas.svg", drawn.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
