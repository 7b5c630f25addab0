"""A Ray of several unequal nodes on this machine: real daemons on loopback, GPUs in name only.

The cluster is held by a process of its own, `python ray_rig.py`, which takes orders as lines of JSON and ends with its
standard input. So nothing of it is left behind by tests that were killed, and Ray's threads are not in pytest's process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

GIB = 1 << 30
_STORE_BYTES = 80 << 20  # the least that Ray takes
_SYSTEM = {
    "enable_worker_prestart": False,  # a worker a core on each node, which jobs with files of their own cannot use
    "prestart_worker_first_driver": False,
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    "memory_monitor_refresh_ms": 0,  # what else this machine does is not the tests' concern
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RigNode:
    """A node by the name that plans use."""

    name: str
    model: str  # as Ray calls it
    gpus: int
    cpu_cores: int = 8
    memory_bytes: int = 16 * GIB


# The first is the head, which cannot be removed.
NODES = (
    RigNode(name="volta-0", model="V100", gpus=2),
    RigNode(name="volta-1", model="V100", gpus=2),
    RigNode(name="pascal-0", model="P100", gpus=2),
    RigNode(name="kepler-0", model="K80", gpus=1),
)


class RayRig:
    """A cluster that runs; `address` is that of its dashboard."""

    def __init__(self, holder: subprocess.Popen[str], log: Path) -> None:
        self._holder, self._log = holder, log
        self.address = self._answer()

    def add(self, node: RigNode) -> None:
        self._ask(add=asdict(node))

    def remove(self, name: str) -> None:
        """As by a loss of power: nobody is told."""
        self._ask(remove=name)

    def _ask(self, **order: object) -> str:
        assert self._holder.stdin is not None
        self._holder.stdin.write(json.dumps(order) + "\n")
        self._holder.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._holder.stdout is not None
        for line in self._holder.stdout:
            if line.startswith("{"):
                return str(json.loads(line)["done"])
        raise RuntimeError(f"the cluster's process ended: {self._log.read_text(errors='replace')[-2000:]}")


@contextmanager
def ray_rig(nodes: tuple[RigNode, ...] = NODES) -> Iterator[RayRig]:
    """Skips, loudly, where there is no Ray."""
    if find_spec("ray") is None:
        pytest.skip("NO RAY: a real cluster is not tried; pip install 'ray[default]'")
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short path: sockets are in it
    arguments = [json.dumps([asdict(node) for node in nodes]), folder]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    log_path = Path(folder, "rig.log")
    with open(log_path, "wb") as log:
        holder = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            text=True, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        yield RayRig(holder, log_path)
    finally:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.close()
        holder.wait(60)
        holder.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


# -- the process that holds the cluster -----------------------------------------------------------------------------------


def _hold(nodes: list[dict[str, Any]], folder: str) -> None:
    from ray._common.utils import get_default_system_temp_dir
    from ray.cluster_utils import Cluster

    os.makedirs(
        Path(get_default_system_temp_dir(), "ray"), exist_ok=True
    )  # where it notes its address; it does not make this folder itself
    port, agent_port = _free_ports(2)
    head = _arguments(nodes[0], folder) | {
        "include_dashboard": True, "dashboard_host": "127.0.0.1", "dashboard_port": port,
        "dashboard_agent_listen_port": agent_port, "_system_config": _SYSTEM,
    }  # fmt: skip
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        running = {node["name"]: cluster.add_node(wait=False, **_arguments(node, folder)) for node in nodes[1:]}
        cluster.wait_for_nodes()
        _say(f"http://{cluster.head_node.webui_url}")
        for line in sys.stdin:
            order = json.loads(line)
            if "add" in order:
                running[order["add"]["name"]] = cluster.add_node(**_arguments(order["add"], folder))
            else:
                cluster.remove_node(running.pop(order["remove"]), allow_graceful=False)
            _say("")
    finally:
        cluster.shutdown()


def _arguments(node: dict[str, Any], folder: str) -> dict[str, Any]:
    """Each with a disk of its own, so to speak: a node unpacks the files of a job over what is there."""
    return {
        "temp_dir": f"{folder}/{node['name']}",
        "node_ip_address": "127.0.0.1", "num_cpus": node["cpu_cores"], "num_gpus": node["gpus"],
        "memory": node["memory_bytes"], "object_store_memory": _STORE_BYTES,
        "resources": {f"accelerator_type:{node['model']}": 1}, "labels": {"tonnage.node": node["name"]},
    }  # fmt: skip


def _free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _say(done: str) -> None:
    print(json.dumps({"done": done}), flush=True)


if __name__ == "__main__":
    _hold(json.loads(sys.argv[1]), sys.argv[2])
