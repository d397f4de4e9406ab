"""One headline of each paper, on a laptop, in minutes: what `make demo` runs.

    python experiments/demo.py

  --workdir=DIR      where the runs and the page live (default: runs/demo)
  --processes=N      runs at a time (default: 2, or 1 on one core)

Ends with a sentence for each paper, with its number, its error bar and where the page shows it.
The same command goes on where it stopped. A part that fails is named, the others still run; the
exit code is 1 then. The sizes are chosen so that the effect shows within seconds; the page says
the scale of every number.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.papers import PAPERS, headlines
from experiments.papers.headlines import Runs
from experiments.schedule import launch
from experiments.schedule.estimates import run_all
from experiments.schedule.launch import Job, Launcher
from experiments.shared import options
from jaxformer.errors import UserError
from jaxformer.records import Workdir
from jaxformer.training.progress import clock

REPORT: tuple[str, ...] = (sys.executable, str(Path(__file__).with_name("report.py")))


class Part(NamedTuple):
    """A run, what it changes, and about how many CPU seconds it takes."""

    config: str
    seconds: float
    overrides: Mapping[str, str] = {}


class Headline(NamedTuple):
    """A paper's claim, where the page shows it, and the runs that it needs."""

    paper: str  # a key of PAPERS
    item: str  # "Table 2, retrieval"
    parts: Mapping[str, Part]
    say: Callable[[Runs], str]


SEEDS = {"n_seeds": "3"}
# Between tiny, which only shows that it runs, and small, which takes ten times as long.
RECALL = SEEDS | {
    "task.context": "32",
    "model.width": "128",
    "train.batch_size": "32",
    "train.steps": "250",
    "train.eval_every": "100",
    "optim.learning_rate": "0.05",
    "recall.probe_every": "50",
    "data.test_size": "128",
}
HEADLINES = (
    Headline(
        "mixit",
        "Table 2, retrieval",
        {
            f"{task}, {name}": Part(f"configs/mixit/{file}:variant={variant},scale=tiny", 15, SEEDS)
            for task, file, name, variant in (
                ("retrieval", "retrieval.py", "Standard", "standard"),
                ("retrieval", "retrieval.py", "Frozen-QK", "frozen_qk"),
                ("retrieval", "retrieval.py", "MixiT", "mixit"),
                ("memorisation", "memorization.py", "Standard", "standard"),
                ("memorisation", "memorization.py", "MixiT", "mixit"),
            )
        },
        headlines.freezing,
    ),
    Headline(
        "random_attention",
        "Theorem 2.1",
        {"SDE and networks": Part("configs/mixit/sde_paths.py:scale=small", 20)},
        headlines.stochastic_equation,
    ),
    Headline(
        "two_failure_modes",
        "Figure 1c",
        {
            "trainability diagram": Part(
                "configs/two_failure_modes/fig1_trainability.py:scale=small", 30
            )
        },
        headlines.trainability,
    ),
    Headline(
        "associations",
        "Figure 3",
        {"noisy recall": Part("configs/associations/recall.py:scale=tiny", 20, RECALL)},
        headlines.noise,
    ),
    Headline(
        "attention_paths",
        "Figure 2c, bottom",
        {"collapsed posterior": Part("configs/attention_paths/posterior.py:scale=small", 25)},
        headlines.order_parameter,
    ),
)
DEFAULTS = dict(workdir="runs/demo", processes=0)


def main(argv: Sequence[str], shown: Sequence[Headline] = HEADLINES) -> int:
    if any(word in options.HELP for word in argv):
        print(__doc__)
        return 0
    try:
        return demo(shown, **options.parse(argv, DEFAULTS))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def demo(shown: Sequence[Headline], workdir: str, processes: int) -> int:
    root, began = Path(workdir), time.monotonic()
    parts = {name: part for headline in shown for name, part in headline.parts.items()}
    jobs = {n: launch.job(n, p.config, p.overrides, root) for n, p in parts.items()}
    waiting = [job for job in jobs.values() if not job.is_finished()]
    processes = processes or min(2, os.cpu_count() or 1)
    times = {jobs[name].workdir: part.seconds for name, part in parts.items()}
    long = clock(sum(times[job.workdir] for job in waiting))
    print(f"{len(waiting)} runs, about {long} of processor time", flush=True)
    with Launcher(processes) as launcher:
        failed = run_all(launcher, waiting, times, processes)
    if launcher.signal:
        print("stopped; the same command goes on.")
        return 128 + launcher.signal
    page = root / "report.html"
    problems = [f"{o.job.name}: {o.message} ({o.job.log()})" for o in failed]
    problems += build_page(page, root)
    print(f"\nWhat each part of a transformer does ({clock(time.monotonic() - began)}):\n")
    for headline in shown:
        print(f"{PAPERS[headline.paper].title}")
        print(f"  {sentence(headline, jobs)}")
        print(f"  {anchor(headline, jobs, page)}\n" if page.exists() else "")
    for problem in problems:
        print(f"failed: {problem}")
    look = f"Open {page}; every" if page.exists() else "Every"
    print(f"{look} run is a folder in {root}. README.md says what comes next.")
    return 1 if problems else 0


def build_page(page: Path, root: Path) -> list[str]:
    """Makes the page; says what went wrong."""
    if not any(root.glob("*/result.json")):
        return ["no page: no run has finished."]
    words = [*REPORT, f"--page={page}", f"--runs={root}", "--only-runs"]
    done = subprocess.run(words, capture_output=True, text=True)
    said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    return [f"the page: {said.removeprefix('error: ')}"] if done.returncode else []


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
