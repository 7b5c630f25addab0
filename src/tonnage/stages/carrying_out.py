"""Runs a distribution of a cluster for real, and puts what was measured beside what was predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tonnage.engines.base import Engine, EngineOptions, Job, Resources
from tonnage.errors import UsageError
from tonnage.hardware import Cluster
from tonnage.hardware.addresses import split_address
from tonnage.split.distribution import Distribution
from tonnage.split.metrics import Metrics
from tonnage.split.pool import Pool
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.launchers import EngineLauncher, Launcher, ProcessLauncher

if TYPE_CHECKING:
    from tonnage.program.exported import Exported
    from tonnage.stages.report import RunReport
    from tonnage.stages.training import Training

_WORKER_BYTES = 2 << 30  # torch and its libraries, beside the stage itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """How workers are started: processes of this machine, or jobs of an engine."""

    engine: Engine | None = None
    options: EngineOptions | None = None
    image: str = ""
    control_host: str = "127.0.0.1"  # this machine, as the workers reach it
    emulates: bool = False  # nodes slower than this machine are emulated by waiting
    transport: str = "sockets"
    timeouts: Timeouts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One quantity, predicted and measured."""

    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run measured, and what had been predicted."""

    report: RunReport
    beside: tuple[Beside, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "report": self.report.to_json(),
            "beside": [asdict(each) | {"error": each.error} for each in self.beside],
        }


def carry_out(
    exported: Exported,
    distribution: Distribution,
    pool: Pool,
    cluster: Cluster,
    where: Where,
    *,
    samples: int = 32,
    training: Training | None = None,
    compare: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Start a worker for each stage, run, and compare with the metrics of the distribution."""
    from tonnage.stages.run import run_distribution

    if distribution.metrics is None:
        raise UsageError("a distribution without a cluster cannot be run", "add --cluster")
    report = run_distribution(
        exported,
        {str(operation): device for operation, device in distribution.assignment.items()},
        hosts=list(_hosts(distribution, cluster, where)),
        samples=samples,
        training=training,
        replicas=distribution.replicas,
        transport=where.transport,
        launcher=_launcher(distribution, where),
        timeouts=where.timeouts,
        compare=compare,
        progress=progress,
    )
    return Outcome(report=report, beside=tuple(beside(distribution.metrics, report, pool)))


def _hosts(distribution: Distribution, cluster: Cluster, where: Where) -> Iterator[StageHost]:
    for device in distribution.devices:
        name, _, gpu = device.partition("/gpu")
        node = cluster.node(name)
        slower = where.emulates and node.speed < 1
        yield StageHost(
            device=device,
            address=split_address(node.address)[0] if node.address else "127.0.0.1",  # its port is the agent's
            # A job sees the GPU that its engine gave it and no other.
            torch_device=("cuda:0" if where.engine is not None else f"cuda:{gpu}") if gpu else "cpu",
            pace=1 / node.speed if slower else 1.0,
            node=name if where.engine is not None and where.engine.name not in ("local", "podman", "docker") else "",
            gpu=node.gpus[int(gpu)].name if gpu else "",
            gpu_index=int(gpu or 0),
        )


def _launcher(distribution: Distribution, where: Where) -> Launcher:
    if where.engine is None:
        return ProcessLauncher()
    assert distribution.metrics is not None
    largest = max(distribution.metrics.memory_bytes.values())
    job = Job(
        name="stage",
        command=(),
        image=where.image,
        resources=Resources(memory_bytes=2 * largest + _WORKER_BYTES),
    )
    return EngineLauncher(
        engine=where.engine,
        options=where.options or EngineOptions(),
        job=job,
        python="python3" if where.image else _python(),
        control_host=where.control_host,
    )


def _python() -> str:
    import sys

    return sys.executable


def predicted_seconds(metrics: Metrics) -> float:
    """From one sample to the next, or from one training step to the next."""
    return metrics.step_seconds or metrics.period_seconds


def beside(metrics: Metrics, report: RunReport, pool: Pool) -> Iterator[Beside]:
    """Period (or step) and latency, every device's computing of a sample that is its own, every link's transfer."""
    what = "step" if report.mode == "training" else "period"
    yield Beside(what=what, predicted=predicted_seconds(metrics), measured=report.period_seconds.median)
    if report.latency_seconds.count:
        yield Beside(what="latency", predicted=metrics.latency_seconds, measured=report.latency_seconds.median)
    turns = Counter(stage.stage for stage in report.stages)
    for stage in report.stages:
        computed = stage.forward_seconds.median + stage.backward_seconds.median
        whole = metrics.busy_seconds[stage.device] * turns[stage.stage]
        yield Beside(what=stage.device, predicted=whole, measured=computed)
    place = {device.name: index for index, device in enumerate(pool.fabric.devices)}
    for link in report.links:
        if link.source in place and link.target in place and link.bytes_sample:
            seconds = pool.fabric.transfer_seconds(place[link.source], place[link.target], round(link.bytes_sample))
            yield Beside(what=f"{link.source}->{link.target}", predicted=seconds, measured=link.seconds.median)
