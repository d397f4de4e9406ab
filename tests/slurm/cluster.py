"""A Slurm cluster on this machine: munged, slurmctld and several slurmd, in a temporary folder.

    python -m tests.slurm.cluster       starts one, prints how to use it, ends it with Ctrl-C

The nodes 127.0.0.1, 127.0.0.2, .. are daemons of one machine, which pretends to have more cores
than it has. There are two partitions: `main`, and `urgent`, whose jobs push those of main back
into the queue.
"""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from experiments.schedule import child

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
SLOTS = ":/usr/sbin:/sbin"  # where Debian has the daemons
CONFIG = """
ClusterName=pretended
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MaxJobCount={most}
MaxArraySize=50
JobRequeue=1
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=off
"""


def missing() -> list[str]:
    """Returns the programs that this machine lacks."""
    path = os.environ.get("PATH", "") + SLOTS
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


class Cluster:
    """The folder of a cluster, its daemons, and the environment of Slurm's commands."""

    def __init__(self, folder: Path, nodes: int = 3, cores: int = 2, most: int = 200):
        self.folder, self.daemons = folder, {}
        ports = free_ports(nodes + 1)
        host = socket.gethostname().partition(".")[0]
        # A program that asks for the address of a node finds this machine.
        self.names = [f"127.0.0.{i + 1}" for i in range(nodes)]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} "
            "RealMemory=1000 State=UNKNOWN"
            for name, port in zip(self.names, ports[1:])
        ]
        settings = {"host": host, "user": getpass.getuser(), "folder": folder, "ports": ports}
        (folder / "state").mkdir()
        config = CONFIG.format(nodes="\n".join(lines), most=most, **settings)
        (folder / "slurm.conf").write_text(config)
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self.environment = os.environ | {
            "PATH": os.environ.get("PATH", "") + SLOTS,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def start(self) -> None:
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
        arguments = [f"--{flag}={self.folder}/munge.{name}" for flag, name in files.items()]
        self.daemon(
            "munged", "--foreground", "--force", *arguments, f"--seed-file={self.folder}/seed"
        )
        self.until(lambda: (self.folder / "munge.socket").exists())
        self.daemon("slurmctld", "-D")
        for name in self.names:
            self.start_node(name)
        self.until(lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split().count("idle") >= 2)

    def start_node(self, name: str) -> None:
        self.daemon("slurmd", "-D", "-N", name, key=name)

    def daemon(self, program: str, *arguments: str, key: str = "") -> None:
        path = shutil.which(program, path=self.environment["PATH"])
        with open(self.folder / f"{key or program}.out", "ab") as out:
            self.daemons[key or program] = subprocess.Popen(
                child.tied_command([str(path), *arguments]),  # it ends with this process
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def ask(self, *arguments: str) -> str:
        done = subprocess.run(arguments, env=self.environment, capture_output=True, text=True)
        return done.stdout

    def until(self, is_so, seconds: float = 60.0) -> None:
        """Waits for a condition; on a timeout raises an error with the daemons' logs."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                logs = [f"{f.name}: {f.read_text()[-1500:]}" for f in self.folder.glob("*.log")]
                logs += [f"{f.name}: {f.read_text()[-500:]}" for f in self.folder.glob("*.out")]
                raise AssertionError("it never was\n" + "\n".join(logs))
            time.sleep(0.2)

    def clear(self) -> None:
        """Ends all jobs, also held ones, and takes drained nodes back.

        Slurm holds a job and drains its node if it starts the job twice, which can happen after a
        death of the controller.
        """
        self.ask("scancel", "--user", getpass.getuser())
        self.until(lambda: not self.ask("squeue", "--noheader", "--all"), 300.0)
        for name in self.names:
            self.ask("scontrol", "update", f"nodename={name}", "state=resume")

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.ask("scancel", "--user", getpass.getuser())
            with contextlib.suppress(AssertionError):  # until KillWait is over
                self.until(lambda: not self.ask("squeue", "-h", "-o", "%i"), 15.0)
        for key in reversed([*self.daemons]):
            self.daemons[key].send_signal(signal.SIGTERM)
        for process in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def free_ports(n: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextlib.contextmanager
def running(**options) -> Iterator[Cluster]:
    """Runs a cluster inside the context. Its paths are short: sockets have at most 100 letters."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder), **options)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def main() -> int:
    if lacks := missing():
        print(f"error: no {', '.join(lacks)}: apt-get install slurm-wlm munge", file=sys.stderr)
        return 2
    with running() as cluster:
        print(f"export SLURM_CONF={cluster.folder}/slurm.conf", flush=True)
        print("Ctrl-C ends the cluster.", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit(0))
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
