"""A real Slurm on this machine: munged, slurmctld and several slurmd, without systemd, in a directory of its own.

Not a cluster for work: the nodes share the machine's cores. Used by run.py. Everything it starts ends with it: all
of it descends from this process, which takes in orphans, and so can find them.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)

CONFIGURATION = """
ClusterName=entrodraft
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller_port}
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir={directory}/spool-%n
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmdLogFile={directory}/slurmd-%n.log
SlurmdParameters=config_overrides
TmpFS={directory}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={directory}/task-prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
KillOnBadExit=0
KillWait=5
SlurmdTimeout={node_timeout}
SlurmctldTimeout=30
MessageTimeout=20
InactiveLimit=0
MinJobAge=3600
ReturnToService=2
MailProg=/bin/true
GresTypes=gpu
{nodes}
PartitionName=work Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE
PartitionName=graceful Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 MaxTime=INFINITE
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
"""


# Two files that every machine has stand for a node's GPUs: Slurm counts them and sets CUDA_VISIBLE_DEVICES.
GPUS = """NodeName={nodes} Name=gpu File=/dev/null
NodeName={nodes} Name=gpu File=/dev/zero
"""

# Open MPI names its files of shared memory by host and rank on it: ranks of two nodes here would share them.
TASK_PROLOG = """#!/bin/sh
echo "export OMPI_MCA_btl_vader_backing_directory={memory}/$SLURMD_NODENAME"
echo "export OMPI_MCA_osc_sm_backing_directory={memory}/$SLURMD_NODENAME"
"""


class Failure(Exception):
    """Something did not come about; the text says what."""


def missing_tools():
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def wait_for(condition, seconds, what):
    """Returns what condition() gives as soon as that is true."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes():
    """{pid: parent} of all that run."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(name)] = int(parent)
    return parents


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0")]
    except OSError:
        return {}
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def end_descendants():
    """Kills all that descends from this process, until nothing is left."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        parents = processes()
        mine, grown = {os.getpid()}, True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in mine} - mine
            mine, grown = mine | more, bool(more)
        mine.discard(os.getpid())
        if not mine:
            return
        for pid in mine:
            kill(pid)
        reap()
        time.sleep(0.05)
    raise Failure("processes of the test cluster do not end")


def reap():
    """Collects orphans that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


class Cluster:
    def __init__(self, directory, nodes, cpus=4, node_timeout=60):
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.directory = directory
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.cpus = cpus
        self.node_timeout = node_timeout
        self.memory = None  # directory of what ranks of a node share
        self.daemons = {}
        self.environment = dict(os.environ)
        for name in [name for name in self.environment if name.startswith(("SLURM", "SBATCH", "SRUN"))]:
            del self.environment[name]
        self.environment.update(
            SLURM_CONF=f"{directory}/slurm.conf",
            OMPI_MCA_btl="self,vader,tcp",  # what nodes on one machine have between them
            OMPI_MCA_btl_tcp_if_include="lo",
            OMPI_MCA_mpi_yield_when_idle="1",
        )

    def start(self):
        os.makedirs(f"{self.directory}/state")
        self.memory = tempfile.mkdtemp(prefix="entrodraft-slurm-", dir="/dev/shm")
        for name in self.names:
            os.makedirs(f"{self.memory}/{name}")
            os.makedirs(f"{self.directory}/tmp-{name}")
            os.makedirs(f"{self.directory}/spool-{name}")
        self._start_munge()
        with open(f"{self.directory}/slurm.conf", "w", encoding="utf-8") as file:
            file.write(self._configuration())
        with open(f"{self.directory}/gres.conf", "w", encoding="utf-8") as file:
            file.write(GPUS.format(nodes=",".join(self.names)))
        with open(f"{self.directory}/task-prolog", "w", encoding="utf-8") as file:
            file.write(TASK_PROLOG.format(memory=self.memory))
        os.chmod(f"{self.directory}/task-prolog", 0o755)
        self._start("slurmctld", "slurmctld", "-D")
        for name in self.names:
            self.start_node(name)
        wait_for(lambda: all(self.node_state(name) == "IDLE" for name in self.names), 60, "nodes are not idle")

    def _start_munge(self):
        key = f"{self.directory}/munge.key"
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(1024))
        own = {name: f"--{name}-file={self.directory}/munge.{name}" for name in ("pid", "log", "seed")}
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.directory}/munge.socket", *own.values())
        wait_for(lambda: os.path.exists(f"{self.directory}/munge.socket"), 20, "munged gives no socket")

    def _configuration(self):
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={self.cpus} Gres=gpu:2 State=UNKNOWN"
            for name in self.names)
        user = self.command("id", "-un").strip()
        return CONFIGURATION.format(host=host, user=user, directory=self.directory, controller_port=free_port(),
                                    node_timeout=self.node_timeout, nodes=nodes)

    def _start(self, name, *arguments):
        def end_with_parent():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        with open(f"{self.directory}/{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                  env=self.environment, start_new_session=True,
                                                  preexec_fn=end_with_parent)

    def start_node(self, name):
        self._start(f"slurmd-{name}", "slurmd", "-D", "-N", name)

    def kill_node_daemon(self, name):
        daemon = self.daemons[f"slurmd-{name}"]
        daemon.kill()
        daemon.wait()

    def cut_power(self, name):
        """Kills slurmd and all that it runs: what losing the machine does."""
        self.kill_node_daemon(name)
        parents = processes()
        lost = [pid for pid in parents if environment_of(pid).get("SLURMD_NODENAME") == name]
        for pid in {parents[pid] for pid in lost}:  # first those that would still report
            if self._is_step_daemon(pid):
                kill(pid)
        for pid in lost:
            kill(pid)

    @staticmethod
    def _is_step_daemon(pid):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                return file.read().startswith("slurmstepd")
        except OSError:
            return False

    def stop(self):
        end_descendants()
        if self.memory:
            shutil.rmtree(self.memory, ignore_errors=True)

    def command(self, *arguments, cwd=None, check=True, environment=None):
        done = subprocess.run(arguments, cwd=cwd, env={**self.environment, **(environment or {})}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              timeout=120, check=False)
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(arguments[:3])} gave {done.returncode}: {done.stdout.strip()}")
        return done.stdout

    def _fields(self, *what):
        text = self.command("scontrol", "-o", "show", *what, check=False)
        return dict(pair.partition("=")[::2] for pair in text.split() if "=" in pair)

    def node_state(self, name):
        return self._fields("node", name).get("State", "")

    def job(self, job):
        """Fields of `scontrol show job`: JobState, Restarts, NodeList, ExitCode, ..."""
        return self._fields("job", str(job))

    def state(self, job):
        return self.job(job).get("JobState", "")

    def submit(self, *arguments, cwd, environment=None):
        reap()
        return self.command("sbatch", "--parsable", *arguments, cwd=cwd, environment=environment).strip()

    def ranks_of(self, job, binary):
        """{rank: pid} of a job's processes of this program."""
        found = {}
        for pid in processes():
            environment = environment_of(pid)
            if environment.get("SLURM_JOB_ID") == str(job) and "PMIX_RANK" in environment:
                try:
                    if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(binary):
                        found[int(environment["PMIX_RANK"])] = pid
                except OSError:
                    pass
        return found

    def wait_end(self, job, seconds=300, states=("COMPLETED",)):
        """Waits until the job has come to its end, and holds it to one of the states."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
        state = wait_for(lambda: self.state(job) in ended and self.state(job), seconds,
                         f"job {job} does not end: {self.state(job)}")
        if state not in states:
            fields = self.job(job)
            raise Failure(f"job {job} ended {state}, exit code {fields.get('ExitCode')}, not {' or '.join(states)}")
        return state
