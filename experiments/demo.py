"""Demonstrates one headline of each paper, on a laptop, in minutes: `make demo`.

    python experiments/demo.py

Prints the result for a paper as soon as its runs have ended. At the end it prints a sentence for
each paper, with a number, its error bar, the scale and the place on the page. The page begins with
the same sentences. Run the same command again: it resumes. A part that fails is named, and the
others still run; the exit code is then 1. The runs are listed in experiments/papers/headlines.py.
Their sizes are chosen so that the effect is visible within seconds.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (exits with the line that shows how to activate .venv)

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cli.describe import differing_settings
from experiments.papers import PAPERS
from experiments.papers.headlines import HEADLINES, Headline
from experiments.schedule import child, devices, launch
from experiments.schedule.jobs import Job, Outcome, make_job
from experiments.schedule.running import remaining_seconds, run_all
from jaxformer.core.text_format import duration
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.command_line import Parser, command

REPORT: tuple[str, ...] = (sys.executable, str(Path(__file__).with_name("report.py")))
OPENING_FILE = "sentences.json"  # the sentences at the top of the page


@command
def main(argv: Sequence[str], shown: Sequence[Headline] = HEADLINES) -> int:
    parser = Parser(__doc__)
    workdir_help = "folder of the runs and the page (default: %(default)s)"
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"), help=workdir_help)
    default_on_cpu = min(2, os.cpu_count() or 1)
    devices.add_flags(parser, default_on_cpu)
    args = parser.parse_args(argv)
    root, began = args.workdir, time.monotonic()
    slots = devices.slots_from_flags(args, default_on_cpu)
    quick_first = sorted(shown, key=Headline.seconds)  # shows the first result early
    parts = {name: part for headline in quick_first for name, part in headline.parts.items()}
    jobs = {
        name: make_job(name, part.config, part.overrides, root, seconds=part.seconds)
        for name, part in parts.items()
    }
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(
        f"{len(waiting)} runs, about {duration(sum(map(remaining_seconds, waiting)))} of CPU time"
    )
    code = run_all(waiting, slots, describe_success=ResultPrinter(shown, jobs))
    if code > 1:
        return code
    page = root / "report.html"
    problem = write_opening(root, shown, jobs) or build_page(page, root)
    print(f"\nWhat each part of a transformer does ({duration(time.monotonic() - began)}):\n")
    for headline in shown:
        print(f"{PAPERS[headline.paper].title}")
        print(indented(f"{sentence(headline, jobs)} ({provenance(headline, jobs)})"))
        print(f"  {page_link(headline, jobs, page)}\n" if page.exists() else "")
    if problem:
        print(f"failed: {problem}")
    hint = f"Open {page}; every" if page.exists() else "Every"
    print(f"{hint} run is a folder in {root}. README.md lists the next steps.")
    return 1 if problem else code


class ResultPrinter:
    """Describes a finished run by its time, and by the headlines that it completes."""

    def __init__(self, shown: Sequence[Headline], jobs: Mapping[str, Job]):
        self.jobs, self.open = jobs, [h for h in shown if not _is_finished(h, jobs)]

    def __call__(self, outcome: Outcome) -> str:
        completed = [headline for headline in self.open if _is_finished(headline, self.jobs)]
        self.open = [headline for headline in self.open if headline not in completed]
        sentences = (f"{PAPERS[h.paper].title}: {sentence(h, self.jobs)}" for h in completed)
        results = "".join(f"\n\n{indented(text)}\n" for text in sentences)
        return f"{outcome.job.name}: {duration(outcome.seconds)}{results}"


def _is_finished(headline: Headline, jobs: Mapping[str, Job]) -> bool:
    return all(jobs[name].is_finished() for name in headline.parts)


def indented(text: str) -> str:
    """Wraps a paragraph to the width of the terminal, with a margin."""
    width = shutil.get_terminal_size((100, 24)).columns
    paragraph = textwrap.TextWrapper(
        max(width - 1, 30),
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return paragraph.fill(text)


def provenance(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """Describes the runs of a headline: "scale tiny, 3 seeds; 8 settings differ from it"."""
    parts = headline.parts.values()
    scales = dict.fromkeys(part.config.rpartition("scale=")[2] for part in parts)
    folders = [jobs[name].workdir for name in headline.parts if jobs[name].is_finished()]
    counts = {len(Workdir(f).read("result.json").get("seeds", [])) for f in folders} - {0}
    seeds = [f"{n} seed{'s' * (n > 1)}" for n in sorted(counts)]
    changed = max(len(part.overrides.keys() - {"n_seeds"}) for part in parts)
    return ", ".join([f"scale {' and '.join(scales)}", *seeds]) + differing_settings(changed)


def write_opening(root: Path, shown: Sequence[Headline], jobs: Mapping[str, Job]) -> str:
    """Writes the sentences at the top of the page; returns an error message or ""."""
    sentences = [
        {
            "paper": headline.paper,
            "item": headline.item,
            "sentence": sentence(headline, jobs),
            "made": provenance(headline, jobs),
            "runs": [jobs[name].workdir.name for name in headline.parts],
        }
        for headline in shown
    ]
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / OPENING_FILE, sentences)
    except OSError as error:
        return f"the page: cannot write {root / OPENING_FILE}: {error.strerror}."
    return ""


def build_page(page: Path, root: Path) -> str:
    """Builds the page in another process; returns an error message or ""."""
    if not any(root.glob("*/result.json")):
        return "no page: no run has finished."
    command = [*REPORT, f"--page={page}", f"--runs={root}", "--only-runs"]
    command += [f"--opening={root / OPENING_FILE}"]
    report = subprocess.run(child.tied_command(command), capture_output=True, text=True)
    output = report.stderr.strip() or report.stdout.strip() or "no reason given"
    error = output.splitlines()[-1].removeprefix("error: ")
    return f"the page: {error}" if report.returncode else ""


def sentence(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """Returns the headline's sentence with its numbers, or names its unfinished runs."""
    missing = [name for name in headline.parts if not jobs[name].is_finished()]
    if missing:
        return f"not shown: {', '.join(missing)} did not finish."
    return headline.say({name: Workdir(jobs[name].workdir) for name in headline.parts}) + "."


def page_link(headline: Headline, jobs: Mapping[str, Job], page: Path) -> str:
    """Returns the link to the section of the item if it shows the runs, else to the paper."""
    parts = "".join(c if c.isalnum() else " " for c in headline.item.lower()).split()
    name = "-".join([headline.paper.replace("_", "-"), *parts])
    text = page.read_text()
    section = text.partition(f'id="{name}"')[2].partition("</section>")[0]
    if any(jobs[part].workdir.name in section for part in headline.parts):
        return f"{page}#{name}"
    paper = f"paper-{headline.paper.replace('_', '-')}"
    return f"{page}#{paper}" if f'id="{paper}"' in text else str(page)


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
