"""The worker of a Slurm job: runs `run.py` on a node, saves on a signal and is queued again.

time limit      Before the limit, and before some preemptions, Slurm sends submitit's signal (USR2
                by default). The run saves and ends. The job is queued again, and the run resumes.
SIGTERM         Slurm sends it at a preemption or after scancel. The run saves and ends. Then Slurm
                ends the job or queues it again.
lost node       Slurm queues the job again. If the old run still lives, the new job waits for it.
killed run      The worker starts a run again that was killed, for example because memory ran out,
                at most twice. If the run has several processes, all of them restart.

A finished run is not repeated, so a job that is queued once too often does no harm.
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
from experiments.schedule.devices import Slot
from experiments.schedule.jobs import Job
from jaxformer.io import atomic_files
from jaxformer.runtime import process_watchdog

POLL_SECONDS = 0.2
MAX_STARTS = 3  # of a run that is killed again and again
TERMINATION_SECONDS = 600.0  # the longest time in which Slurm ends a job after SIGTERM
# Time between two signals. They are repeated, because a run ignores them during its imports.
SIGNAL_SECONDS = 1.0
CLAIM_SECONDS = 1.0  # between two attempts to claim a log


class Worker:
    """The callable that submitit pickles, runs on the node and queues again.

    Args:
        job: the run.
        patience: seconds for the run to save after the signal; then it is killed.
        result: the file for the exit code or the error, as JSON. Process 0 writes it.
    """

    def __init__(self, job: Job, patience: float, result: Path):
        self.job, self.patience, self.result = job, patience, result
        self.program, self.process = launch.PROGRAM, None

    def __getstate__(self) -> dict[str, Any]:
        # submitit pickles the worker, and a process cannot be pickled.
        return {**vars(self), "process": None}

    def __call__(self) -> int:
        """Executes the run to its end, writes its result and returns its exit code."""
        try:
            code = self._run_with_restarts()
        except Exception as error:  # submitit also raises here when it gives up queueing again
            lines = traceback.format_exception_only(error)[-1].strip().splitlines()
            self._write_result({"error": lines[-1]})
            raise
        self._write_result({"code": code})
        return code

    def _write_result(self, result: dict[str, int | str]) -> None:
        if int(os.environ.get("SLURM_PROCID", 0)) == 0:
            atomic_files.write_json(self.result, result)

    def _run_with_restarts(self) -> int:
        if shutil.which("scontrol") is None:
            print(
                "scontrol is missing on this node: this job ends at its time limit and is not "
                "queued again",
                flush=True,
            )
        for _ in range(MAX_STARTS):
            code = self._run()
            if code in (-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT):
                time.sleep(TERMINATION_SECONDS)  # Slurm now ends the job or queues it again
            if code >= 0 and code != process_watchdog.PEER_FAILED_CODE:
                return code
            reason = f"was killed by signal {-code}" if code < 0 else "has lost another process"
            print(f"the run {reason}; it is started again", flush=True)
        return 128 - code if code < 0 else code

    def checkpoint(self) -> Any:
        """Saves and stops the run; returns the request to queue this worker again.

        submitit calls this method on the signal.
        """
        from submitit.helpers import DelayedSubmission

        self._stop()
        if shutil.which("scontrol") is None:
            print("the run is saved; run the same command again: it resumes", flush=True)
            return None
        return DelayedSubmission(self)

    def _run(self) -> int:
        """Starts the run once its folder is free, waits for its end and returns its exit code."""
        rank = int(os.environ.get("SLURM_PROCID", 0))
        tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
        if self._is_done():
            return 0
        log: Any = None
        if rank == 0:
            log = self._wait_for_log()
            if log is None:
                return 0
            job_id, start = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", 0)
            header = f"job {job_id} on {socket.gethostname()}, start {int(start) + 1}\n"
            log.write(header.encode())
            log.flush()
        with log or contextlib.nullcontext():
            self.process = subprocess.Popen(
                child.tied_command(self.job.command_line(self.program)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                # Several processes need Slurm's variables, which `run_environment` leaves out.
                env=dict(os.environ) if tasks > 1 else launch.run_environment(Slot()),
            )
        while self.process.poll() is None:
            time.sleep(POLL_SECONDS)
        return self.process.returncode

    def _wait_for_log(self) -> Any:
        """Waits until no other process has the run.

        Returns:
            The open log, or None if another process has finished the run.
        """
        is_announced = False
        while not self._is_done():
            log = self.job.claim_log(append=True)
            if log is not None:
                return log
            if not is_announced:
                print("waiting: another process has the run", flush=True)
                is_announced = True
            time.sleep(CLAIM_SECONDS)
        return None

    def _is_done(self) -> bool:
        """Returns whether run.py need not start. It must start to record a finished run."""
        return self.job.is_finished() and not self.job.record and not self.job.is_locked()

    def _stop(self) -> None:
        """Repeats the signal to save until the run has ended; kills a run that takes too long.

        This method runs in a signal handler and may interrupt `Popen.poll`. It must not wait for
        the lock of `poll`, so `_has_ended` detects the end without it.
        """
        name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        save_signal = getattr(signal, f"SIG{name}")
        began = last_signal = -1.0
        while self.process is not None and not self._has_ended():
            now = time.monotonic()
            began = now if began < 0 else began
            if now - last_signal > SIGNAL_SECONDS:
                must_kill = now - began > self.patience or not self.job.resumes
                os.kill(self.process.pid, signal.SIGKILL if must_kill else save_signal)
                last_signal = now
            time.sleep(POLL_SECONDS)

    def _has_ended(self) -> bool:
        assert self.process is not None
        if self.process.returncode is not None:
            return True
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, options) is not None
        except ChildProcessError:  # `poll` has just collected it
            return True
