"""A real Slurm of several unequal nodes on this machine: real daemons on loopback, fake GPU devices, gone afterwards.

Test modules import the fixtures `slurm_rig`, the cluster, and `slurm`, the engine.
Two rigs at once do not meet: each has its own ports, key and folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tonnage.engines.slurm import SlurmEngine

SECONDS = 120.0
LOOPBACK = "127.0.0.1"
_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch")


@dataclass(frozen=True)
class RigNode:
    """Devices are called nvidia0, nvidia1, ... as on a real node."""

    name: str
    gpu: str
    gpus: int
    shards: int = 0  # of all GPUs together


NODES = (
    RigNode("v100n0", "v100", 4, shards=16),
    RigNode("v100n1", "v100", 4, shards=16),
    RigNode("p100n0", "p100", 2),
    RigNode("p100n1", "p100", 2),
    RigNode("k80n0", "k80", 4),
)


@dataclass
class SlurmRig:
    """Daemons by name; `stop` and `start` one of them to see what happens."""

    folder: Path
    nodes: tuple[RigNode, ...] = NODES
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self, name: str) -> None:
        """`munged`, `slurmctld` or a node; in the foreground, so that its process number is ours."""
        command = {
            "munged": ["munged", "--foreground", "--force", *_munge_files(self.folder)],
            "slurmctld": ["slurmctld", "-D", "-f", str(self.configuration)],
        }.get(name, ["slurmd", "-D", "-f", str(self.configuration), "-N", name])
        place = self.folder / name  # all that a node starts itself can be told by it
        place.mkdir(exist_ok=True)
        with open(place / "output", "ab") as output:
            self.daemons[name] = subprocess.Popen(
                command, cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        daemon = self.daemons.pop(name)
        daemon.send_signal(number)
        daemon.wait(SECONDS)

    def lose(self, node: str) -> None:
        """All its processes are killed, and Slurm is told: it would wait for `SlurmdTimeout` until it believes it."""
        self.stop(node, signal.SIGKILL)
        self.end_steps(node)
        self.control("update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def end_steps(self, node: str) -> None:
        """What runs jobs outlives the node's daemon, so that this can be restarted."""
        for process in psutil.process_iter(["cwd"]):
            if process.info["cwd"] == str(self.folder / node):
                with suppress(psutil.NoSuchProcess):
                    for each in (*process.children(recursive=True), process):
                        each.kill()

    def find(self, node: str) -> None:
        """The lost node is back."""
        self.start(node)
        wait_until(lambda: "NOT_RESPONDING" not in (state := self.state_of(node)) and "DOWN" not in state)

    def control(self, *words: str) -> str:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout

    def state_of(self, node: str) -> str:
        said = self.control("show", "node", "--oneliner", node)
        return next(word for word in said.split() if word.startswith("State=")).removeprefix("State=")

    def listeners(self) -> set[str]:
        """Addresses that its daemons listen on."""
        said = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
        ours = {f"pid={daemon.pid}," for daemon in self.daemons.values()}
        return {line.split()[3].rpartition(":")[0] for line in said.splitlines() if any(pid in line for pid in ours)}

    def is_ready(self) -> bool:
        asked = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "all", "-o", "%T"], capture_output=True, text=True, check=False
        )
        return asked.returncode == 0 and asked.stdout.split() == ["idle"] * len(self.nodes)

    def up(self) -> None:
        write_configuration(self.folder, self.nodes)
        self.start("munged")
        wait_until((self.folder / "munge.sock").exists)
        for name in ("slurmctld", *(node.name for node in self.nodes)):
            self.start(name)
        wait_until(self.is_ready)

    def down(self) -> None:
        subprocess.run(["scancel", "--user=root"], check=False, capture_output=True)
        for name in reversed(tuple(self.daemons)):
            self.stop(name, signal.SIGKILL if name == "slurmctld" else signal.SIGTERM)
            self.end_steps(name)


def write_configuration(folder: Path, nodes: tuple[RigNode, ...]) -> None:
    """What slurm.conf(5) and gres.conf(5) call what; delays as short as they may be."""
    host, ports = socket.gethostname(), free_ports(len(nodes) + 1)
    for number in range(max(node.gpus for node in nodes)):
        (folder / "dev").mkdir(exist_ok=True)
        os.mknod(folder / f"dev/nvidia{number}", 0o600 | 0o020000, os.makedev(195, number))
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    lines = [
        f"NodeName={node.name} NodeHostname={host} NodeAddr={LOOPBACK} Port={port} CPUs=64 RealMemory=64000"
        f" Feature={node.gpu},type-{node.gpu} Gres=gpu:{node.gpu}:{node.gpus}"
        + (f",shard:{node.gpu}:{node.shards}" if node.shards else "")
        for node, port in zip(nodes, ports[1:], strict=True)
    ]
    text = _CONFIGURATION.format(folder=folder, host=host, port=ports[0], nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text)
    gres = [
        f"NodeName={node.name} Name=gpu Type={node.gpu} File={folder}/dev/nvidia[0-{node.gpus - 1}]" for node in nodes
    ]
    gres += [f"NodeName={node.name} Name=shard Type={node.gpu} Count={node.shards}" for node in nodes if node.shards]
    (folder / "gres.conf").write_text("\n".join(gres) + "\n")


def _munge_files(folder: Path) -> list[str]:
    names = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder}/munge.{suffix}" for option, suffix in names.items()]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [listener.getsockname()[1] for listener in listeners]


def wait_until(is_true: object, seconds: float = SECONDS) -> None:
    assert callable(is_true)
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "the rig did not get there"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def slurm_rig() -> Iterator[SlurmRig]:
    """A cluster that works, or a loud word why not. Its commands are told where it is by SLURM_CONF."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        pytest.skip(f"NO SLURM ({', '.join(missing)}): real jobs are not tried; scripts/test installs it where it may")
    if os.getuid() != 0:
        pytest.skip("NO SLURM: its daemons and devices need root here; real jobs are not tried")
    # Not under pytest's own folder: the path of a socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        rig, before = SlurmRig(Path(folder)), os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(rig.configuration)
        try:
            rig.up()
            yield rig
        finally:
            rig.down()
            os.environ.pop("SLURM_CONF")
            os.environ.update({"SLURM_CONF": before} if before else {})


@pytest.fixture
def slurm(slurm_rig: SlurmRig, tmp_path: Path) -> Iterator[SlurmEngine]:  # noqa: ARG001 - it must be up
    """An engine of its own on it, whose jobs end with the test."""
    engine = SlurmEngine(tmp_path / "slurm")
    yield engine
    for job_id, status, _ in engine.jobs():
        if not status.state.is_over:
            engine.cancel(job_id)


_CONFIGURATION = """\
ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
MessageTimeout=5
SlurmdTimeout=30
MaxJobCount=20000
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
GresTypes=gpu,shard
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=small Nodes=ALL MaxTime=10 State=UP
"""
