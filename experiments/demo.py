"""One headline of each paper, on a laptop, in minutes: what `make demo` runs.

    python experiments/demo.py

  --workdir=DIR      where the runs and the page live (default: runs/demo)
  --processes=N      runs at a time (default: as many as the devices allow; 2 on a CPU)
  --devices-per-run=N  GPUs or TPU chips of each run (default 1)

Says what was found of a paper as soon as its runs have ended, and ends with a sentence for each
paper, with its number, its error bar, its scale and where the page shows it; the page opens with
the same sentences.
The same command goes on where it stopped. A part that fails is named, the others still run; the
exit code is 1 then. The runs are listed in experiments/papers/headlines.py; their sizes are chosen
so that the effect shows within seconds.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli.describe import differing
from experiments.papers import PAPERS
from experiments.papers.headlines import HEADLINES, Headline
from experiments.schedule import child, devices, launch
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.running import rest, run_all
from jaxformer.core.text_format import duration
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.command_line import Parser, command

REPORT: tuple[str, ...] = (sys.executable, str(Path(__file__).with_name("report.py")))

OPENING = "sentences.json"  # what the page opens with


@command
def main(argv: Sequence[str], shown: Sequence[Headline] = HEADLINES) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"))
    devices.add_flags(parser)
    asked = parser.parse_args(argv)
    root, began = asked.workdir, time.monotonic()
    places = devices.asked_places(asked, on_a_cpu=min(2, os.cpu_count() or 1))
    quick_first = sorted(shown, key=Headline.seconds)  # a finding is on the screen soonest
    parts = {name: part for headline in quick_first for name, part in headline.parts.items()}
    jobs = {
        name: launch.job(name, part.config, part.overrides, root, seconds=part.seconds)
        for name, part in parts.items()
    }
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(f"{len(waiting)} runs, about {duration(sum(map(rest, waiting)))} of processor time")
    code = run_all(waiting, places, ended=Telling(shown, jobs))
    if code > 1:
        return code
    page = root / "report.html"
    problem = write_opening(root, shown, jobs) or build_page(page, root)
    print(f"\nWhat each part of a transformer does ({duration(time.monotonic() - began)}):\n")
    for headline in shown:
        print(f"{PAPERS[headline.paper].title}")
        print(told(f"{sentence(headline, jobs)} ({made(headline, jobs)})"))
        print(f"  {anchor(headline, jobs, page)}\n" if page.exists() else "")
    if problem:
        print(f"failed: {problem}")
    look = f"Open {page}; every" if page.exists() else "Every"
    print(f"{look} run is a folder in {root}. README.md says what comes next.")
    return 1 if problem else code


class Telling:
    """What is said of a run that has ended: its time, and the finding that it completes."""

    def __init__(self, shown: Sequence[Headline], jobs: Mapping[str, Job]):
        self.jobs, self.open = jobs, [h for h in shown if not _is_finished(h, jobs)]

    def __call__(self, outcome: Outcome) -> str:
        found = [headline for headline in self.open if _is_finished(headline, self.jobs)]
        self.open = [headline for headline in self.open if headline not in found]
        texts = (f"{PAPERS[h.paper].title}: {sentence(h, self.jobs)}" for h in found)
        said = "".join(f"\n\n{told(text)}\n" for text in texts)
        return f"{outcome.job.name}: {duration(outcome.seconds)}{said}"


def _is_finished(headline: Headline, jobs: Mapping[str, Job]) -> bool:
    return all(jobs[name].is_finished() for name in headline.parts)


def told(text: str) -> str:
    """A paragraph behind a margin, as wide as the terminal and broken between words."""
    width = shutil.get_terminal_size((100, 24)).columns
    paragraph = textwrap.TextWrapper(
        max(width - 1, 30),
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return paragraph.fill(text)


def made(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """ "scale tiny, 3 seeds; 8 settings differ from it": of the runs behind a sentence."""
    parts = headline.parts.values()
    scales = dict.fromkeys(part.config.rpartition("scale=")[2] for part in parts)
    done = [jobs[name].workdir for name in headline.parts if jobs[name].is_finished()]
    counts = {len(Workdir(folder).read("result.json").get("seeds", [])) for folder in done} - {0}
    seeds = [f"{n} seed{'s' * (n > 1)}" for n in sorted(counts)]
    changed = max(len(part.overrides.keys() - {"n_seeds"}) for part in parts)
    words = ", ".join([f"scale {' and '.join(scales)}", *seeds])
    return words + differing(changed)


def write_opening(root: Path, shown: Sequence[Headline], jobs: Mapping[str, Job]) -> str:
    """Writes the sentences for the page to open with; says what went wrong, or nothing."""
    held = [
        {
            "paper": headline.paper,
            "item": headline.item,
            "sentence": sentence(headline, jobs),
            "made": made(headline, jobs),
            "runs": [jobs[name].workdir.name for name in headline.parts],
        }
        for headline in shown
    ]
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / OPENING, held)
    except OSError as error:
        return f"the page: cannot write {root / OPENING}: {error.strerror}."
    return ""


def build_page(page: Path, root: Path) -> str:
    """Makes the page; says what went wrong, or nothing."""
    if not any(root.glob("*/result.json")):
        return "no page: no run has finished."
    words = [*REPORT, f"--page={page}", f"--runs={root}", "--only-runs"]
    words += [f"--opening={root / OPENING}"]
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
    """Where the page shows its runs: in the item's section, else under its paper."""
    words = "".join(c if c.isalnum() else " " for c in headline.item.lower()).split()
    name = "-".join([headline.paper.replace("_", "-"), *words])
    text = page.read_text()
    section = text.partition(f'id="{name}"')[2].partition("</section>")[0]
    if any(jobs[part].workdir.name in section for part in headline.parts):
        return f"{page}#{name}"
    paper = f"paper-{headline.paper.replace('_', '-')}"
    return f"{page}#{paper}" if f'id="{paper}"' in text else str(page)


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
