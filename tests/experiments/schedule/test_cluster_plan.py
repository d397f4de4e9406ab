"""Runs on a cluster: the cheapest target that a run fits, and runs packed into jobs."""

from pathlib import Path

from experiments.schedule import cluster_plan
from experiments.schedule.cluster_plan import PlannedJob
from experiments.schedule.jobs import Job
from jaxformer.planning.plan import Plan

CONFIG = "configs/mixit/retrieval.py:variant=mixit,scale=paper"


def job(name: str, config: str = CONFIG) -> Job:
    return Job(name, config, {"train.steps": "1000"}, Path(name))


def stored(target: str, seconds: float, fits: bool = True) -> dict:
    times = {"compute": seconds, "memory": 0.0, "links": 0.0}
    return Plan(target, {}, fits, 2**34, peak=2**33, seconds=times).as_json()


def test_a_run_takes_the_cheapest_target_that_it_fits(capsys, monkeypatch, tmp_path):
    by_target = {
        "v5e:4x4": stored("v5e:4x4", 0.01, fits=False),
        "h100:1": stored("h100:1", 0.4),
        "h100:8": stored("h100:8", 0.1),  # faster, but eight devices
    }
    plans = {"configs/mixit/retrieval.py:scale=paper": by_target}
    run = cluster_plan.planned_job(job("retrieval"), plans)
    assert (run.target, run.peak, run.seconds) == ("h100:1", 2**33, 1000)
    assert not cluster_plan.planned_job(job("retrieval"), {}).target
    monkeypatch.setattr(cluster_plan, "PLANS", tmp_path / "none.json")
    cluster_plan.print_cluster_plan([job("retrieval")])
    out = capsys.readouterr().out
    assert "no plan; python docs/plan_table.py --compile --only=mixit/retrieval" in out
    assert "0 jobs" in out


def test_runs_of_the_same_target_are_packed_up_to_the_limit():
    runs = [
        PlannedJob(job(name), target, 0, seconds)
        for name, target, seconds in (
            ("a", "h100:1", 50.0),
            ("b", "h100:1", 60.0),
            ("c", "h100:1", 30.0),
            ("d", "v5e:4x4", 5.0),
            ("e", "h100:1", 200.0),
        )
    ]
    packs = cluster_plan.pack(runs, limit=100.0)
    names = [(g.target, [run.job.name for run in g.runs]) for g in packs]
    assert names == [
        ("h100:1", ["e"]),
        ("h100:1", ["b", "c"]),
        ("h100:1", ["a"]),
        ("v5e:4x4", ["d"]),
    ]
