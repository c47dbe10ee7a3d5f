"""A Slurm cluster of two nodes on this machine, for tests."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from daemons import daemon, free_ports, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")

CONFIGURATION = """\
ClusterName=attnlab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# A job that is queued again starts after the lifetime of its credential
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MailProg=/bin/true
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# No control groups, no limits of memory, no accounting database
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=1
KillWait=10
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=n1,n2 MaxTime=1 State=UP
"""


def missing_programs() -> list[str]:
    """Return the programs of Slurm and MUNGE that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def search_path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start MUNGE, the controller and two nodes in a folder; stop them and their jobs at the end.

    Yields the environment variables of Slurm's commands.
    """
    ports = free_ports(3)
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    configuration = folder / "slurm.conf"
    user, host = getpass.getuser(), socket.gethostname()
    configuration.write_text(CONFIGURATION.format(folder=folder, ports=ports, user=user, host=host))
    environment = {"SLURM_CONF": str(configuration), "PATH": search_path()}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    commands = {
        "munged": ["--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
        "slurmctld": ["-D", "-c"],
        "slurmd": ["-D", "-N", "n1"],
        "slurmd ": ["-D", "-N", "n2"],
    }
    with ExitStack() as stack:
        for name, arguments in commands.items():
            stack.enter_context(daemon([name.strip(), *arguments], folder, environment))
            if name == "munged":
                wait_for(lambda: (folder / "munge.socket").exists())
        wait_for(lambda: slurm("sinfo", "-h", "-o%T", "-pmain", environment=environment) == "idle")
        try:
            yield environment
        finally:
            slurm("scancel", f"--user={user}", environment=environment)
            wait_for(lambda: not slurm("squeue", "-h", environment=environment))


def slurm(*command: str, environment: dict[str, str]) -> str:
    """Run a command of Slurm and return its output; empty if it fails."""
    completed = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return completed.stdout.strip() if completed.returncode == 0 else ""
