"""Trainings in the jobs of a cluster, which a pretended executor executes in this process."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.anatomy_report import cluster_jobs
from experiments.anatomy_report.cluster_jobs import jobs_of, read_pack, train_in_jobs
from experiments.schedule.jobs import Outcome
from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy.parts import FROZEN, Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Study, run
from jaxformer.studies.anatomy.training import Trained
from jaxformer.training.metrics import Mean
from tests.experiments import pretended

MEMBERS = [Member(Variant(f"part {i}", FROZEN, fixed=".*"), 0, 1e-2) for i in range(5)]
ARGV = ["--task=sort.py:Sort", "--executor=slurm"]


def trained(seconds: float = 1.0) -> Trained:
    return Trained({"accuracy": Mean(0.5, 0.1, 9)}, {}, [], None, seconds)


class FakeExecutor(pretended.FakeExecutor):
    """Trains the members of the first jobs; the others stay in the queue or fail."""

    def __init__(self, store, n_jobs, code=0, number=0):
        super().__init__(1, 0.0)
        self.store, self.n_jobs, self.code, self.number = store, n_jobs, code, number

    def run(self, jobs):
        for i, job in enumerate(jobs):
            if i < self.n_jobs:
                for member in read_pack(job.workdir / "pack.json"):
                    Store(self.store.folder).put(*member[:3], trained(), member.times)
                (job.workdir / "result.json").write_text("{}")
                yield Outcome(job, 0, 1.0, "")
            else:
                self.signal = self.number
                yield Outcome(job, self.code, 1.0, "no memory", by_other_launcher=bool(self.number))


def study_in(folder) -> Study:
    subject: Any = SimpleNamespace(task=SimpleNamespace(chosen_by="accuracy"), rates=(1e-2,))
    return Study(subject, [], Store(folder))


def trained_in(folder, **fake):
    """Returns the members that one command trains, and its interrupt."""
    study, interrupt = study_in(folder), SimpleNamespace(signal=0)
    train_all = train_in_jobs(study, interrupt, lambda: FakeExecutor(study.store, **fake), ARGV)
    return [result.member for result in train_all(MEMBERS)], interrupt


@pytest.fixture
def two_members_in_a_job(tmp_path, monkeypatch):
    """Sets the length of a job and returns a folder with one trained member, which took 1 s."""
    monkeypatch.setattr(cluster_jobs, "JOB_SECONDS", 2.0)
    Store(tmp_path).put(Variant("other", FROZEN), 0, 1e-2, trained())
    return tmp_path


def test_jobs_share_the_members_and_are_found_again(two_members_in_a_job):
    store = Store(two_members_in_a_job)
    assert store.get(Variant("other", FROZEN), 0, 1e-2)
    jobs = jobs_of(store, MEMBERS, ARGV)
    packs = [read_pack(job.workdir / "pack.json") for job in jobs]
    assert packs == [MEMBERS[:2], MEMBERS[2:4], MEMBERS[4:]]
    assert [job.seconds for job in jobs] == [2.0, 2.0, 1.0]
    assert jobs[0].name == "part 0, frozen and 1 more" and jobs[2].name == "part 4, frozen"
    assert jobs[0].command[1].endswith("anatomy.py") and jobs[0].command[2:4] == (*ARGV,)
    # A later command needs other members: it waits for a job that trains one of them.
    again = jobs_of(store, [MEMBERS[1], MEMBERS[4], MEMBERS[0]._replace(seed=1)], ARGV)
    assert {job.workdir for job in again[:2]} == {jobs[0].workdir, jobs[2].workdir}
    assert read_pack(again[2].workdir / "pack.json") == [MEMBERS[0]._replace(seed=1)]
    # A finished job and one with a damaged file are not waited for.
    (jobs[0].workdir / "result.json").write_text("{}")
    file = jobs[2].workdir / "pack.json"
    file.write_text(file.read_text().replace('"sha256": "', '"sha256": "0'))
    (again,) = jobs_of(store, [MEMBERS[1], MEMBERS[4]], ARGV)
    assert again.workdir not in (jobs[0].workdir, jobs[2].workdir)


def test_a_stopped_command_leaves_its_jobs_and_the_next_one_takes_their_results(tmp_path):
    done, interrupt = trained_in(tmp_path, n_jobs=2, code=-15, number=signal.SIGINT)
    assert len(done) == 2 and interrupt.signal == signal.SIGINT
    done, interrupt = trained_in(tmp_path, n_jobs=5)
    assert sorted(done) == MEMBERS and not interrupt.signal
    assert len([*tmp_path.glob("job-*/result.json")]) == len(MEMBERS)


def test_a_failed_job_is_a_one_line_error_after_the_others_have_ended(tmp_path):
    with pytest.raises(UserError, match=r"4 of 5 trainings are missing: no memory \(.*\.log\)"):
        trained_in(tmp_path, n_jobs=1, code=1)
    assert len([*tmp_path.glob("*-seed0.json")]) == 1


def test_the_plan_stops_if_the_wait_for_a_cluster_is_stopped(tmp_path):
    study = study_in(tmp_path)
    signals = []

    def interrupted(members):
        signals.append(2)
        yield from ()

    assert not run(study, 1e9, is_stopped=lambda: bool(signals), train_all=interrupted)
    assert signals


def test_a_job_refuses_a_task_that_was_edited(tmp_path):
    (job,) = jobs_of(Store(tmp_path / "members-0123"), MEMBERS[:1], ARGV)
    file = job.workdir / "pack.json"
    edited: Any = SimpleNamespace(hash="4567", name="Sort")
    with pytest.raises(UserError, match="Sort has changed since"):
        cluster_jobs.train_pack(file, edited)
    file.write_text("{")
    with pytest.raises(UserError, match="is damaged: delete"):
        cluster_jobs.train_pack(file, edited)
