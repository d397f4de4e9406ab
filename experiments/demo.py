"""Demonstrates one result of each paper on a laptop within minutes: `make demo`.

    jaxformer demo

The result of a paper is printed as soon as its runs have finished. The last lines are a sentence
for each paper with its numbers, error bars, scale and a link into the page. The page begins with
the same sentences. Run the same command again: it resumes. If a run fails, the other runs and
sentences are still shown, and the exit code is 1.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from experiments.cli.describe import differing_settings
from experiments.cli.flags import IS_CLONE, ROOT
from experiments.ledger.rules import HELD
from experiments.papers import PAPERS
from experiments.papers.demo_headlines import HEADLINES, Headline
from experiments.schedule import child, devices, launch
from experiments.schedule.jobs import Job, Outcome, make_job
from experiments.schedule.running import remaining_seconds, run_all
from jaxformer.core.text_format import counted, duration
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.command_line import Parser, command

REPORT: tuple[str, ...] = (sys.executable, str(Path(__file__).with_name("report.py")))
RETRIEVAL = "configs/mixit/retrieval.py"
OPENING_FILE = "sentences.json"  # the sentences at the top of the page


@command
def main(argv: Sequence[str], shown: Sequence[Headline] = HEADLINES) -> int:
    parser = Parser(__doc__)
    workdir_help = "folder of the runs and the page (default: %(default)s)"
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"), help=workdir_help)
    default_on_cpu = min(2, os.cpu_count() or 1)
    devices.add_flags(parser, default_on_cpu)
    args = parser.parse_args(argv)
    root = args.workdir
    began = time.monotonic()
    slots = devices.slots_from_flags(args, default_on_cpu)
    shortest_first = sorted(shown, key=Headline.seconds)
    jobs = {
        part.name: make_job(part.name, part.config, part.overrides, root, seconds=part.seconds)
        for headline in shortest_first
        for part in headline.parts.values()
    }
    unfinished = [job for job in jobs.values() if not job.is_finished()]
    cpu_time = duration(sum(map(remaining_seconds, unfinished)))
    print(f"{counted(len(unfinished), 'run')}, about {cpu_time} of CPU time")
    code = run_all(unfinished, slots, describe_success=ResultPrinter(shown, jobs))
    if code > 1:  # a signal stopped the runs
        return code
    page = root / "report.html"
    problem = write_opening(root, shown, jobs) or build_page(page, root)
    print(f"\nWhat each part of a transformer does ({duration(time.monotonic() - began)}):\n")
    for headline in shown:
        print(f"{PAPERS[headline.paper].title}")
        print(indented(f"{sentence(headline, jobs)} ({provenance(headline, jobs)})"))
        if text := full_run(headline, jobs):
            print(indented(f"{headline.item}: {text}."))
        print(f"  {page_link(headline, jobs, page)}\n" if page.exists() else "")
    if problem:
        print(f"failed: {problem}")
    hint = f"Open {page}; every" if page.exists() else "Every"
    print(f"{hint} run is a folder in {root}.")
    print_next_commands([job for job in jobs.values() if job.is_finished()])
    return 1 if problem else code


def print_next_commands(finished: Sequence[Job]) -> None:
    """Prints three commands that show more of the finished runs."""
    trainings = [job.workdir for job in finished if RETRIEVAL in job.config]
    if len(trainings) < 2:
        return
    first, *_, last = trainings
    print("\nNext, after `source .venv/bin/activate`:" if IS_CLONE else "\nNext:")
    print(f"  jaxformer look {first}")
    print(f"  jaxformer compare {first} {last}")
    print("  jaxformer anatomy --task=retrieval")


class ResultPrinter:
    """Describes a finished run by its time, and by the headlines that it completes."""

    def __init__(self, shown: Sequence[Headline], jobs: Mapping[str, Job]):
        self.jobs = jobs
        self.incomplete = [headline for headline in shown if missing_runs(headline, jobs)]

    def __call__(self, outcome: Outcome) -> str:
        completed = [h for h in self.incomplete if not missing_runs(h, self.jobs)]
        self.incomplete = [h for h in self.incomplete if h not in completed]
        results = "".join(
            f"\n\n{PAPERS[h.paper].title}\n{indented(sentence(h, self.jobs))}\n" for h in completed
        )
        return f"{outcome.job.name}: {duration(outcome.seconds)}{results}"


def missing_runs(headline: Headline, jobs: Mapping[str, Job]) -> list[str]:
    """Returns the names of the unfinished runs of a headline."""
    names = [part.name for part in headline.parts.values()]
    return [name for name in names if not jobs[name].is_finished()]


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
    finished = [jobs[part.name] for part in parts if jobs[part.name].is_finished()]
    results = [Workdir(job.workdir).read("result.json") for job in finished]
    seed_counts = {len(result.get("seeds", [])) for result in results} - {0}
    seeds = [counted(n, "seed") for n in sorted(seed_counts)]
    n_changed = max(len(part.overrides.keys() - {"n_seeds"}) for part in parts)
    return ", ".join([f"scale {' and '.join(scales)}", *seeds]) + differing_settings(n_changed)


def write_opening(root: Path, shown: Sequence[Headline], jobs: Mapping[str, Job]) -> str:
    """Writes the sentences at the top of the page; returns an error message or ""."""
    entries = [
        {
            "paper": headline.paper,
            "item": headline.item,
            "sentence": sentence(headline, jobs),
            "made": provenance(headline, jobs),
            "runs": [jobs[part.name].workdir.name for part in headline.parts.values()],
            "cells": list(headline.parts),
            "full_run": full_run(headline, jobs),
        }
        for headline in shown
    ]
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / OPENING_FILE, entries)
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


def full_run(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """Returns how the demo compares with the recorded runs: "agrees with the full run: held".

    Returns "" if a run or the page with the recorded verdict is missing.
    """
    verdict = recorded_verdict(headline.paper, headline.item)
    if not verdict or headline.agrees is None or missing_runs(headline, jobs):
        return ""
    verb = "agrees with" if headline.agrees(results_of(headline, jobs)) else "differs from"
    claim = "" if verdict == HELD else "; the whole claim of the paper"
    return f"{verb} the full run{claim}: {verdict}"


def recorded_verdict(paper: str, item: str) -> str:
    """Returns the verdict of a row on its results page, or "" outside of a clone."""
    page = ROOT / f"docs/results/{paper}.md"
    text = page.read_text() if page.is_file() else ""
    section = text.partition(f"\n## {item}\n")[2]
    # The verdict is the first bold text of the section.
    return section.partition("**")[2].partition("**")[0]


def results_of(headline: Headline, jobs: Mapping[str, Job]) -> dict[str, SimpleNamespace]:
    """Returns the content of result.json of each run of a headline, by cell."""
    return {
        cell: SimpleNamespace(**Workdir(jobs[part.name].workdir).read("result.json"))
        for cell, part in headline.parts.items()
    }


def sentence(headline: Headline, jobs: Mapping[str, Job]) -> str:
    """Returns the headline's sentence with its numbers, or names its unfinished runs."""
    if missing := missing_runs(headline, jobs):
        return f"not shown: {', '.join(missing)} did not finish."
    return headline.sentence(results_of(headline, jobs))


def page_link(headline: Headline, jobs: Mapping[str, Job], page: Path) -> str:
    """Returns the link to the section of the item if it shows the runs, else to the paper."""
    words = "".join(c if c.isalnum() else " " for c in headline.item.lower()).split()
    anchor = "-".join([headline.paper.replace("_", "-"), *words])
    text = page.read_text()
    section = text.partition(f'id="{anchor}"')[2].partition("</section>")[0]
    if any(jobs[part.name].workdir.name in section for part in headline.parts.values()):
        return f"{page}#{anchor}"
    paper_anchor = f"paper-{headline.paper.replace('_', '-')}"
    return f"{page}#{paper_anchor}" if f'id="{paper_anchor}"' in text else str(page)


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
