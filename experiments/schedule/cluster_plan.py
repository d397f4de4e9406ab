"""`reproduce.py --plan`: the machine, memory and hours of each run, and runs packed into jobs.

The numbers come from docs/plans.json, which `docs/plan_table.py --compile` fills. No run starts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.schedule.jobs import Job
from jaxformer import build
from jaxformer.core.text_format import byte_size, duration
from jaxformer.planning.plan import Plan
from jaxformer.planning.prediction import ASSUMED_MATMUL_SHARE
from jaxformer.planning.targets import parse_target

PLANS = flags.ROOT / "docs/plans.json"
JOB_SECONDS = 24 * 3600.0  # the longest job into which short runs are packed


class PlannedJob(NamedTuple):
    """A run on the target that costs the fewest device seconds."""

    job: Job
    target: str  # the machine, such as "h100:8"; "" if no stored plan of the config fits
    peak: int  # the peak memory of a device in bytes
    seconds: float


class Pack(NamedTuple):
    """Runs that one job of the cluster executes one after the other."""

    target: str  # the machine of all runs
    runs: list[PlannedJob]

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self.runs)


def print_cluster_plan(jobs: Iterable[Job]) -> None:
    """Prints the plan of each run and the jobs that they are packed into."""
    plans = json.loads(PLANS.read_text()) if PLANS.exists() else {}
    planned = [planned_job(job, plans) for job in jobs]
    width = max((len(run.job.name) for run in planned), default=0)
    print(f"{'run':{width}}  {'target':8}  {'memory':>9}  time")
    for run in planned:
        name = f"{run.job.name:{width}}"
        if run.target:
            print(f"{name}  {run.target:8}  {byte_size(run.peak):>9}  {duration(run.seconds)}")
        else:
            only = f"--only={_config_name(run.job)}"
            print(f"{name}  no plan; python docs/plan_table.py --compile {only}")
    packs = pack([run for run in planned if run.target])
    for number, group in enumerate(packs, 1):
        names = ", ".join(run.job.name for run in group.runs)
        print(f"job {number}: {group.target}, {duration(group.seconds)}: {names}")
    device_seconds = sum(parse_target(g.target).devices * g.seconds for g in packs)
    print(
        f"{len(packs)} jobs of at most {duration(JOB_SECONDS)}, {duration(device_seconds)} of "
        f"device time in total, if steps reach {ASSUMED_MATMUL_SHARE:.0%} of the plan's speed"
    )


def planned_job(job: Job, plans: Mapping[str, Any]) -> PlannedJob:
    """Returns a run on the target with the fewest device seconds among those that it fits."""
    stored = [Plan.from_json(fields) for fields in plans.get(_plan_key(job.config), {}).values()]
    fitting = [plan for plan in stored if plan.fits and plan.seconds]
    if not fitting:
        return PlannedJob(job, "", 0, 0.0)
    config: Any = flags.load_with_overrides(job.config, job.overrides)
    steps = build.settings(config).steps

    def device_seconds(plan: Plan) -> float:
        return plan.step_seconds * parse_target(plan.target).devices

    best = min(fitting, key=device_seconds)
    # A plan has the shortest possible time of a step, at the full speed of matrix products.
    seconds = steps * best.step_seconds / ASSUMED_MATMUL_SHARE
    return PlannedJob(job, best.target, best.peak, seconds)


def pack(runs: Sequence[PlannedJob], limit: float = JOB_SECONDS) -> list[Pack]:
    """Packs runs into jobs: the longest first, each into the first job with enough time left."""
    packs: list[Pack] = []
    for run in sorted(runs, key=lambda run: -run.seconds):
        for group in packs:
            if group.target == run.target and group.seconds + run.seconds <= limit:
                group.runs.append(run)
                break
        else:
            packs.append(Pack(run.target, [run]))
    return packs


def _config_name(job: Job) -> str:
    return job.config.partition(":")[0].removeprefix("configs/").removesuffix(".py")


def _plan_key(config: str) -> str:
    """Returns the key of a config in docs/plans.json, which is the same for all its variants."""
    return f"{config.partition(':')[0]}:scale=paper"
