"""The Slurm executor with simulated commands of Slurm. tests/slurm uses a real cluster."""

import json
import re
import sys

import pytest

from experiments import sweep
from experiments.cli import flags
from experiments.schedule import executors
from experiments.schedule.jobs import Job
from experiments.schedule.slurm import executor, options, queue
from experiments.schedule.slurm.executor import SlurmExecutor
from experiments.schedule.slurm.options import Options
from experiments.schedule.slurm.queue import Queue, State
from jaxformer.core.errors import UserError
from tests.experiments.conftest import wrong_errors


def test_options_of_the_example_become_arguments_of_submitit():
    arguments = options.read(str(flags.ROOT / "configs/slurm/example.toml")).submitit()
    expected = {"time": 240, "gpus_per_node": 1, "partition": "gpu"}
    assert expected.items() <= arguments.items()
    assert "constraint" not in arguments
    assert arguments["additional_parameters"] == {"requeue": True}
    assert Options(time="90s").minutes == 2


WRONG_OPTIONS = [
    ("time = ", "is not TOML"),
    ("tiem = '2h'", r"has no field 'tiem'\. Did you mean 'time'"),
    ("time = 2", "time must be a text, got 2"),
    ("gpus = '1'", "gpus must be a whole number, got '1'"),
    ("gpus = true", "gpus must be a whole number, got True"),
    ("setup = 5", "setup must be a list of texts"),
    ("setup = [1]", "setup must be a list of texts"),
    ("setup = 'module load cuda'", "setup must be a list of texts"),
    ("time = 'soon'", "time must be a time such as"),
    ("nodes = 0", "nodes must be at least 1, got 0"),
    ("partition = 'a\\ntouch b'".replace("'", '"'), "'partition' must be text on one line"),
    ('more = { comment = "a\\ntouch b" }', "'comment' must be text on one line"),
    ("time = '2m'", "time = '2m' is too short: a run receives the signal to save 90 s before"),
]


def test_wrong_options_are_one_line_errors(tmp_path):
    file, failures = tmp_path / "cluster.toml", []
    for text, message in WRONG_OPTIONS:
        file.write_text(text)
        with pytest.raises(UserError) as error:
            options.read(str(file))
        if not re.search(message, str(error.value)) or "\n" in str(error.value):
            failures.append(f"{text!r}: expected {message!r}, got {error.value}")
    assert not failures


def test_a_run_that_cannot_be_saved_must_end_in_time(tmp_path):
    jobs = [Job("a figure", "c", {}, tmp_path, seconds=7200.0, resumes=False)]
    with pytest.raises(UserError, match="a figure takes about 2 h 0 min and saves no checkpoints"):
        options.check_jobs(Options(time="1h"), jobs)
    options.check_jobs(Options(time="3h"), jobs)
    options.check_jobs(Options(time="1h"), [jobs[0]._replace(resumes=True)])


WRONG_ARGUMENTS = [
    (["--slurm=x.toml"], "--slurm=FILE needs --executor=slurm"),
    (["--executor=slrum"], "unknown executor 'slrum'. Did you mean 'slurm'"),
    (["--executor=slurm", "--slurm=x.toml"], "no file 'x.toml' of options"),
    (["--executor=slurm"], "needs Slurm: there is no sbatch on this machine"),
]


def test_wrong_arguments_are_one_line_errors(pretended, tmp_path, capsys):
    sweep_arguments = ["--file=configs/sweeps/tiny.toml", f"--workdir={tmp_path / 'sweep'}"]
    cases = [([*arguments, *sweep_arguments], message) for arguments, message in WRONG_ARGUMENTS]
    assert not wrong_errors(sweep.main, cases, capsys)


def test_missing_slurm_submitit_answer_or_partition_is_an_error(pretended, monkeypatch):
    for program in ("sbatch", "srun", "sinfo", "squeue", "scancel"):
        with pytest.raises(UserError, match=f"there is no {program} on this machine"):
            options.check_cluster(Options())
        pretended(program, "exit 1")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'jaxformer\[slurm\]'"):
        options.check_cluster(Options())
    monkeypatch.setitem(sys.modules, "submitit", type(sys)("submitit"))
    pretended("sinfo", "echo 'slurm_load_partitions: no controller' >&2; exit 1")
    with pytest.raises(UserError, match="Slurm does not answer: slurm_load_partitions: no contr"):
        options.check_cluster(Options())
    pretended("sinfo", "echo gpu; echo cpu")
    with pytest.raises(UserError, match=r"unknown partition 'gpus'\. Did you mean 'gpu'"):
        options.check_cluster(Options(partition="gpus"))
    options.check_cluster(Options(partition="gpu,cpu"))


def test_a_dry_run_and_help_query_no_cluster(pretended, tmp_path, capsys):
    arguments = ["--file=configs/sweeps/tiny.toml", f"--workdir={tmp_path / 'sweep'}"]
    assert sweep.main([*arguments, "--executor=slurm", "--dry-run"]) == 0
    assert sweep.main(["--executor=slurm", "--help"]) == 0
    assert "--executor" in capsys.readouterr().out


def test_the_queue_lists_the_jobs_that_are_alive(pretended, tmp_path):
    pretended(
        "squeue",
        "echo '12_0|RUNNING|n1|None'; echo '12_1|PENDING||Priority'; echo '12_2|FAILED|n1|None'\n"
        "echo '12_3|PENDING||launch failed requeued held'; echo '12_4|PENDING||JobHeldUser'",
    )
    job_queue = Queue(tmp_path)
    jobs = [Job(str(i), "c", {}, tmp_path / f"run-{i}") for i in range(5)]
    with job_queue.lock():
        submission = job_queue.new_submission_folder()
        job_queue.add(((job, f"12_{i}") for i, job in enumerate(jobs)), submission)
    job_queue.file.write_text(job_queue.file.read_text() + '{"run": "cut')
    assert job_queue.ids()["run-4"] == "12_4"
    states = job_queue.states()
    assert states["12_0"] == State("RUNNING", "n1") and "12_2" not in states
    abandoned = {job_id for job_id, state in states.items() if state.is_abandoned}
    assert abandoned == {"12_3"}  # a job that a user holds starts when it is released
    queue.result_file(submission, "run-2").write_text('{"error": "why"}')
    queue.result_file(submission, "run-3").write_text('{"code": 3}')
    queue.result_file(submission, "run-4").write_text('{"code": "')
    assert [job_queue.result(f"12_{i}") for i in range(1, 5)] == [None, "why", 3, None]
    (submission / "12_1_0_result.pkl").touch()  # its worker could not be imported
    (submission / "12_1_0_log.out").write_text("Traceback\nImportError: no experiments\n")
    assert job_queue.result("12_1") == "ImportError: no experiments"


def test_a_query_without_an_answer_is_repeated(tmp_path, monkeypatch, capsys):
    slurm = SlurmExecutor(Options(), tmp_path)
    answers = iter([UserError("Slurm does not answer."), UserError("Slurm does not answer."), {}])

    def states():
        answer = next(answers)
        if isinstance(answer, UserError):
            raise answer
        return answer

    monkeypatch.setattr(slurm.queue, "states", states)
    assert [slurm.query_states() for _ in range(3)] == [False, False, True]
    assert slurm.failed_queries == 0
    assert capsys.readouterr().out.count("Slurm does not answer. The jobs continue") == 1
    slurm.failed_queries = executor.MAX_FAILED_QUERIES
    answers = iter([UserError("Slurm does not answer.")])
    with pytest.raises(UserError, match="does not answer"):
        slurm.query_states()


def test_rows_without_a_job_of_slurm_are_skipped(pretended, tmp_path):
    job_queue = Queue(tmp_path)
    job_queue.folder.mkdir()
    row = {"run": "a", "job": "7_0", "folder": "0" * 32}
    changes = ({}, {"job": 7}, {"job": "-h"}, {"job": "7_0 8"}, {"run": "../a"}, {"folder": ".."})
    lines = [json.dumps(row | {"run": f"run-{i}"} | change) for i, change in enumerate(changes)]
    lines += ["[1]", "7", '{"run": "b"}', "[" * 100_000]
    job_queue.file.write_text("\n".join(lines))
    assert job_queue.ids() == {"run-0": "7_0"}
    pretended("squeue", 'echo "$@" >> "$0.calls"')
    assert job_queue.states() == {}
    calls = (tmp_path / "bin/squeue.calls").read_text()
    assert calls == "-h -r -t all -o %i|%T|%N|%r -j 7\n"


def test_a_workdir_that_a_batch_script_cannot_contain_is_refused(
    pretended, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "submitit", type(sys)("submitit"))
    for program in ("sbatch", "srun", "squeue", "scancel", "sinfo"):
        pretended(program, "exit 0")
    arguments = ["--executor=slurm", "--file=configs/sweeps/tiny.toml"]
    assert sweep.main([*arguments, f"--workdir={tmp_path}/w\ntouch pwned"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "of letters, digits and '._-', got" in error
    assert options.script_name("jaxformer-a b\ntouch é") == "jaxformer-a-b-touch--"


def test_the_display_shows_why_jobs_wait(tmp_path, capsys):
    slurm = SlurmExecutor(Options(), tmp_path)
    slurm.board.line.last_update = -1e9
    slurm.unfinished = [Job(f"run {i}", "c", {}, tmp_path / f"run-{i}") for i in range(3)]
    slurm.ids = {f"run-{i}": f"7_{i}" for i in range(3)}
    slurm.states = dict.fromkeys(("7_1", "7_2"), State("PENDING", "PartitionNodeLimit"))
    slurm.states["7_0"] = State("RUNNING", "n1")
    slurm.show()
    assert "run 0: 0 s | 2 wait in the queue (PartitionNodeLimit)" in capsys.readouterr().err


def test_the_queue_raises_if_slurm_does_not_answer(pretended):
    pretended("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queue.query_states(["12"]) == {}  # the job has ended
    pretended("squeue", "echo 'slurm_load_jobs error: timed out' >&2; exit 1")
    with pytest.raises(UserError, match="timed out"):
        queue.query_states(["12"])


def test_the_status_shows_the_state_of_each_run(tmp_path, capsys):
    names = ("done", "failed", "stopped", "waiting", "running")
    jobs = {name: Job(name, "c", {}, tmp_path / name) for name in names}
    for name in ("done", "stopped"):
        (tmp_path / name).mkdir()
    (tmp_path / "done/result.json").touch()
    (tmp_path / "stopped/config.json").touch()
    jobs["stopped"].log().write_text("step 3/9  loss 1\n")
    jobs["failed"].log().write_text("error: the field x must be 1.\n")
    (tmp_path / "running").mkdir()
    with open(tmp_path / "running/.lock", "w") as lock:
        launch_lock(lock)
        executors.print_status([*jobs.values()], tmp_path)
    out = capsys.readouterr().out
    assert "5 runs: 1 finished, 1 failed, 1 stopped, 1 waiting, 1 running" in out
    assert "3 of 9" in out and "the field x must be 1." in out
    state = executors.job_status(jobs["waiting"], "12_1", State("PENDING", "Priority"))
    assert state == ("pending", "job 12_1: Priority")


def launch_lock(file):
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)
