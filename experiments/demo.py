"""One headline of each paper, on a laptop, in minutes: what `make demo` runs.

    python experiments/demo.py

  --workdir=DIR      where the runs and the page live (default: runs/demo)
  --processes=N      runs at a time (default: as many as the devices allow; 2 on a CPU)
  --devices-per-run=N  GPUs or TPU chips of each run (default 1)

Ends with a sentence for each paper, with its number, its error bar and where the page shows it.
The same command goes on where it stopped. A part that fails is named, the others still run; the
exit code is 1 then. The runs are listed in experiments/papers/headlines.py; their sizes are chosen
so that the effect shows within seconds, and the page says the scale of every number.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    raise SystemExit("error: this python has no jax; `source .venv/bin/activate` first.") from None

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.papers import PAPERS
from experiments.papers.headlines import HEADLINES, Headline
from experiments.schedule import child, devices, launch
from experiments.schedule.jobs import Job
from experiments.schedule.running import rest, run_all
from jaxformer.commandline import Parser, command
from jaxformer.records import Workdir
from jaxformer.training.progress import clock

REPORT: tuple[str, ...] = (sys.executable, str(Path(__file__).with_name("report.py")))


@command
def main(argv: Sequence[str], shown: Sequence[Headline] = HEADLINES) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"))
    devices.add_flags(parser)
    asked = parser.parse_args(argv)
    root, began = asked.workdir, time.monotonic()
    places = devices.asked_places(asked, on_a_cpu=min(2, os.cpu_count() or 1))
    parts = {name: part for headline in shown for name, part in headline.parts.items()}
    jobs = {
        name: launch.job(name, part.config, part.overrides, root, seconds=part.seconds)
        for name, part in parts.items()
    }
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(f"{len(waiting)} runs, about {clock(sum(map(rest, waiting)))} of processor time")
    code = run_all(waiting, places)
    if code > 1:
        return code
    page = root / "report.html"
    problem = build_page(page, root)
    print(f"\nWhat each part of a transformer does ({clock(time.monotonic() - began)}):\n")
    for headline in shown:
        print(f"{PAPERS[headline.paper].title}")
        print(f"  {sentence(headline, jobs)}")
        print(f"  {anchor(headline, jobs, page)}\n" if page.exists() else "")
    if problem:
        print(f"failed: {problem}")
    look = f"Open {page}; every" if page.exists() else "Every"
    print(f"{look} run is a folder in {root}. README.md says what comes next.")
    return 1 if problem else code


def build_page(page: Path, root: Path) -> str:
    """Makes the page; says what went wrong, or nothing."""
    if not any(root.glob("*/result.json")):
        return "no page: no run has finished."
    words = [*REPORT, f"--page={page}", f"--runs={root}", "--only-runs"]
    done = subprocess.run(child.together(words), capture_output=True, text=True)
    said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    return f"the page: {said.removeprefix('error: ')}" if done.returncode else ""


def sentence(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """What its runs found, or which of them is missing."""
    missing = [name for name in headline.parts if not jobs[name].is_finished()]
    if missing:
        return f"not shown: {', '.join(missing)} did not finish."
    return headline.say({name: Workdir(jobs[name].workdir) for name in headline.parts}) + "."


def anchor(headline: Headline, jobs: Mapping[str, Job], page: Path) -> str:
    """Where the page shows its runs: in the item's section, else among the other runs."""
    words = "".join(c if c.isalnum() else " " for c in headline.item.lower()).split()
    name = "-".join([headline.paper.replace("_", "-"), *words])
    text = page.read_text()
    section = text.partition(f'id="{name}"')[2].partition("</section>")[0]
    if any(jobs[part].workdir.name in section for part in headline.parts):
        return f"{page}#{name}"
    return f"{page}#others" if 'id="others"' in text else str(page)


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
