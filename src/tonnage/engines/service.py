"""What a job has that answers clients: probes, files that it follows, restarts, and how many of it there shall be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SERVICE_LABEL = "tonnage.service"  # how it is asked: http or https


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Where it is asked, over HTTP, whether it lives and whether it is ready."""

    port: int  # of the job
    live_path: str
    ready_path: str
    is_https: bool = False
    start_seconds: float = 300.0  # that it may take until it is ready

    @property
    def live_url(self) -> str:
        """From inside."""
        return f"{'https' if self.is_https else 'http'}://127.0.0.1:{self.port}{self.live_path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Files that it reads, and reads again when they change; or a Secret of the cluster, which has them."""

    target: str
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    secret: str = ""
    is_private: bool = False  # not to be shown to whoever reads what would be submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscale:
    """So many that the mean of a metric of the pods is at its target."""

    least: int
    most: int
    metric: str
    target_thousandths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTraits:
    probes: Probes
    drain_seconds: float  # from SIGTERM until it has answered what has come in
    restarts: int  # of a container that failed
    port_names: Mapping[int, str] = field(default_factory=dict, hash=False)  # of ports of the job
    metrics_port: int = 0
    folders: tuple[Folder, ...] = ()
    autoscale: Autoscale | None = None

    @property
    def grace_seconds(self) -> int:
        """More than it needs to drain: a server that is killed while it answers loses the answers."""
        return int(self.drain_seconds) + 10
