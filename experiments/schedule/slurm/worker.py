"""What a job of Slurm does: it runs `run.py` on a node, saves when told, and is queued again.

    before the time is up, or when others need the node     Slurm sends the signal of submitit (USR2
                    by default): the run saves and ends, the job is queued again and goes on there
    SIGTERM         of a preemption or of scancel: the run saves and ends; Slurm decides what next
    the node is lost    Slurm queues the job again; if the old run still lives it is waited for
    the run is killed   (out of memory?) it is started again, twice; of several processes, all are

A finished run is not run again, so a job that is queued once too often does no harm.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

from experiments.schedule import child, launch
from experiments.schedule.devices import Place
from experiments.schedule.jobs import Job
from jaxformer.io import atomic_files
from jaxformer.runtime import process_watchdog

POLL = 0.2
STARTS = 3  # of a run that is killed
ENDS = 600.0  # seconds in which Slurm ends a job that it has told to end
TELL = 1.0  # seconds between two notices to a run that does not hear yet, as it still imports


class Worker:
    """The callable that submitit brings to the node, and back into the queue."""

    def __init__(self, job: Job, patience: float, result: Path):
        self.job, self.patience = job, patience  # seconds for a run that saves; then it is killed
        self.result = result  # process 0 writes the exit code or the error here, as JSON
        self.program, self.process = launch.PROGRAM, None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "process": None}

    def __call__(self) -> int:
        """Runs the run to its end, writes its result and returns its exit code."""
        try:
            code = self._run_until_it_ends()
        except Exception as error:  # submitit also raises here when it gives up queueing again
            lines = traceback.format_exception_only(error)[-1].strip().splitlines()
            self._write_result({"error": lines[-1]})
            raise
        self._write_result({"code": code})
        return code

    def _write_result(self, result: dict[str, int | str]) -> None:
        if int(os.environ.get("SLURM_PROCID", 0)) == 0:
            atomic_files.write_json(self.result, result)

    def _run_until_it_ends(self) -> int:
        if shutil.which("scontrol") is None:
            print(
                "scontrol is missing on this node: at the end of its time this job ends", flush=True
            )
        for _ in range(STARTS):
            code = self._run()
            if code in (-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT):
                time.sleep(ENDS)  # Slurm has told it to end, and ends or queues the job now
            if code >= 0 and code != process_watchdog.PEER_FAILED_CODE:
                return code
            why = f"was killed by signal {-code}" if code < 0 else "has lost another process"
            print(f"the run {why}; it is started again", flush=True)
        return 128 - code if code < 0 else code

    def checkpoint(self) -> Any:
        """Called at the signal: the run is saved, and the same is queued again."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        if shutil.which("scontrol") is None:
            print("the run is saved; the same command of the launcher goes on with it", flush=True)
            return None
        return DelayedSubmission(self)

    def _run(self) -> int:
        """Starts the run, once no other has its folder, and waits until it ends."""
        rank = int(os.environ.get("SLURM_PROCID", 0))
        tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
        if self._is_done():
            return 0
        log: Any = None
        if rank == 0:
            log = self._claimed()
            if log is None:
                return 0
            where = f"job {os.environ.get('SLURM_JOB_ID')} on {socket.gethostname()}"
            log.write(
                f"{where}, start {int(os.environ.get('SLURM_RESTART_COUNT', 0)) + 1}\n".encode()
            )
            log.flush()
        with log or contextlib.nullcontext():
            self.process = subprocess.Popen(
                child.together([*self.program, *self.job.words()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                env=dict(os.environ) if tasks > 1 else launch.environment(Place()),
            )
        while self.process.poll() is None:
            time.sleep(POLL)
        return self.process.returncode

    def _claimed(self) -> Any:
        """The log, once nobody else has the run; None if it is finished then."""
        said = False
        while not self._is_done():
            log = self.job.claim(keep=True)
            if log is not None:
                return log
            if not said:
                print("another has the run: waiting", flush=True)
                said = True
            time.sleep(1.0)
        return None

    def _is_done(self) -> bool:
        return self.job.is_finished() and not self.job.record and not self.job.is_held()

    def _stop(self) -> None:
        """Tells the run to save until it has ended.

        This interrupts `poll`, whose lock it must not need: the end is seen without it.
        """
        name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        notice = getattr(signal, f"SIG{name}")
        began = told = -1.0
        while self.process is not None and not self._has_ended():
            now = time.monotonic()
            began = now if began < 0 else began
            if now - told > TELL:
                late = now - began > self.patience or not self.job.resumes
                os.kill(self.process.pid, signal.SIGKILL if late else notice)
                told = now
            time.sleep(POLL)

    def _has_ended(self) -> bool:
        assert self.process is not None
        if self.process.returncode is not None:
            return True
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        except ChildProcessError:  # `poll` has just seen it
            return True
