"""`tonnage.split`: a network, a cluster and what is wanted, made into distributions. CLI and Python call this."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import UsageError
from tonnage.hardware import Cluster, find_gpu, read_cluster
from tonnage.program.program import Program
from tonnage.split.cluster_problem import Training
from tonnage.split.devices import Fabric
from tonnage.split.distributing import best_for, front
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_now import fabric_now
from tonnage.split.fabric_of import fabric_of
from tonnage.split.network import ANY, Network
from tonnage.split.pool import Pool, make_pool
from tonnage.split.public_format import ACCELERATOR, CPU, PublicNetwork, public_network
from tonnage.split.replanning import Replan, replan
from tonnage.split.solving import public_front, split_public, split_public_for_latency
from tonnage.split.sources.opening import open_network
from tonnage.split.statistics import Statistics
from tonnage.split.targets import Target

if TYPE_CHECKING:
    from tonnage.program.exported import Exported

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """How the network will be trained."""

    micro_batches: int = 8
    optimizer: str = "sgd"
    recompute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """One distribution for each target, the front if one was asked for, and what they were chosen from."""

    distributions: tuple[Distribution, ...]
    front: tuple[Distribution, ...] = ()
    axes: tuple[Target, ...] = ()
    replanned: Replan | None = None
    pool: Pool | None = None  # None for a file that states its own devices
    exported: Exported | None = None  # what can be run
    seconds: float = 0.0


def split(
    network: str | Path | Network,
    *,
    cluster: str | Path | Cluster | None = None,
    targets: Sequence[str] = ("throughput",),
    axes: Sequence[str] = (),
    contiguous: bool | None = None,
    training: TrainingOptions | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    statistics: Statistics | None = None,
    pessimistic: bool = False,
    last: Mapping[str | int, str] | None = None,
    replicas: bool = False,
    seconds: float = 60.0,
    progress: Progress = lambda text: None,
) -> Split:
    """Split a network over the devices of a cluster, or of its own file.

    `network` is what you would type after `tonnage split`: `model.py:build`, an ONNX file, a profile, a network's file.
    `last` is an earlier assignment: the new one is looked for from there, and `replanned` says what moves.
    With `replicas`, several devices may hold the same stage and take turns with samples.
    `targets` are throughput, latency, energy, memory, nodes and step; `axes` two or three of them for a front. Files of the
    public format state their devices themselves and need no cluster; subnetworks there are contiguous only if asked.
    """
    wanted, chosen = [_target(each) for each in targets], [_target(each) for each in axes]
    if axes and not 2 <= len(set(chosen)) <= 3:
        raise UsageError("a front is over two or three targets", "for example --front latency,throughput")
    begin = time.monotonic()
    machines = read_cluster(cluster) if isinstance(cluster, str | Path) else cluster
    opener = _Opener(machines, training, batch, sizes or {}, progress)
    opened = network if isinstance(network, Network) else opener.open(network)
    if replicas and (isinstance(opened, PublicNetwork) or last is not None):
        what = "a re-plan has" if last is not None else "files that state their own devices have"
        raise UsageError(f"{what} no replicated stages", "leave out --replicas")
    if isinstance(opened, PublicNetwork):
        found = _split_public(opened, wanted, chosen, bool(contiguous), seconds)
        return replace(found, seconds=time.monotonic() - begin)
    if machines is None:
        raise UsageError("which machines there are is not said", "name a file: --cluster cluster.yaml")
    fabric = fabric_of(machines)
    if statistics is not None:
        fabric = fabric_now(machines, statistics, now=time.time(), pessimistic=pessimistic)
    progress("looking for distributions")
    end = time.monotonic() + seconds
    if last is not None:
        if wanted != [Target.THROUGHPUT] or chosen:
            raise UsageError("a re-plan is for throughput", "leave out other targets and --front")
        again = _replan(opened, fabric, last, _pipeline(training), lambda: time.monotonic() < end)
        return Split(
            distributions=(again.distribution,), replanned=again, pool=again.pool, exported=opener.exported,
            seconds=time.monotonic() - begin,
        )  # fmt: skip
    pool = make_pool(
        opened,
        fabric,
        training=_pipeline(training),
        keep_going=lambda: time.monotonic() < end,
        wide=bool(chosen) or any(target is not Target.THROUGHPUT for target in wanted),
        replicas=replicas,
    )
    return Split(
        distributions=tuple(best_for(pool, target) for target in wanted),
        front=tuple(front(pool, chosen)) if chosen else (),
        axes=tuple(chosen),
        pool=pool,
        exported=opener.exported,
        seconds=time.monotonic() - begin,
    )


def _replan(
    network: Network,
    fabric: Fabric,
    last: Mapping[str | int, str],
    training: Training | None,
    keep_going: Callable[[], bool],
) -> Replan:
    """Ids of a JSON document are text, whatever they were; a lost device's weights come from the first one left."""
    old = {operation.id: last.get(operation.id, last.get(str(operation.id), "")) for operation in network.operations}
    known = {device.name for device in fabric.devices}
    keeper = next((device for device in old.values() if device in known), None)
    return replan(network, fabric, old, training=training, keep_going=keep_going, keeper=keeper)


def _target(name: str) -> Target:
    try:
        return Target(name)
    except ValueError:
        raise UsageError(f"there is no target {name!r}", f"choose from {', '.join(Target)}") from None


def _pipeline(training: TrainingOptions | None) -> Training | None:
    if training is None:
        return None
    return Training(micro_batches=training.micro_batches, recompute=training.recompute)


def _split_public(
    public: PublicNetwork, targets: Sequence[Target], axes: Sequence[Target], contiguous: bool, seconds: float
) -> Split:
    known = (Target.THROUGHPUT, Target.LATENCY)
    for target in (*targets, *axes):
        if target not in known:
            raise UsageError(f"{target.value} is not known for a file that states its own devices", "add --cluster")
    found = []
    for target in targets:
        if target is Target.LATENCY:
            found.append(split_public_for_latency(public, seconds=seconds, clock=time.monotonic))
        else:
            found.append(split_public(public, contiguous=contiguous, seconds=seconds, clock=time.monotonic))
    between = public_front(public, seconds=seconds, clock=time.monotonic) if axes else []
    return Split(distributions=tuple(found), front=tuple(between), axes=tuple(axes))


@dataclass
class _Opener:
    """Opens whatever the user named; a program is exported, and its costs found for the kinds of devices there are."""

    cluster: Cluster | None
    training: TrainingOptions | None
    batch: int | None
    sizes: Mapping[str, int]
    progress: Progress
    exported: Exported | None = None

    def open(self, target: str | Path) -> Network | PublicNetwork:
        public: list[PublicNetwork] = []

        def from_public(record: Mapping[str, Any], name: str) -> Network:
            public.append(public_network(record, name))
            return on_cluster(public[0])

        network = open_network(target, from_program=self._from_program, from_public=from_public)
        if public and self.cluster is None:
            return public[0]
        if self.training is not None and not network.is_training:
            raise UsageError(f"{network.name} says nothing about training", "leave out --train, or name a program")
        return network

    def _from_program(self, program: Program) -> Network:
        if self.cluster is None:
            raise UsageError("which machines there are is not said", "name a file: --cluster cluster.yaml")
        if program.kind == "onnx":
            return self._from_onnx(program)
        from tonnage.program.aliasing import aliasing_of
        from tonnage.program.exported import export_program
        from tonnage.stages.networks import network_of

        self.progress("exporting the program")
        self.exported = export_program(program, training=self.training is not None, batch=self.batch)
        self.progress("finding the costs of its operators")
        return network_of(self.exported, aliasing_of(self.exported.module), self._kinds(), optimizer=self._optimizer())

    def _from_onnx(self, program: Program) -> Network:
        from tonnage.split.sources.onnx_network import network_from_onnx

        if self.training is not None:
            raise UsageError(f"{program.target} can only be run, not trained", "leave out --train")
        kinds = self._kinds()
        return network_from_onnx(
            program.target, kinds.gpus, kinds.model, processor=_processor() if kinds.on_cpu else None,
            batch=self.batch, sizes=self.sizes,
        )  # fmt: skip

    def _kinds(self) -> Any:
        from tonnage.benchmark.time_models import current_model
        from tonnage.stages.networks import Kinds

        assert self.cluster is not None
        devices = fabric_of(self.cluster).devices
        gpus = tuple(find_gpu(kind) for kind in dict.fromkeys(each.kind for each in devices if each.kind != CPU))
        return Kinds(gpus=gpus, model=current_model(), on_cpu=any(each.kind == CPU for each in devices), threads=1)

    def _optimizer(self) -> Any:
        if self.training is None:
            return None
        from tonnage.stages.training import Training as Trained

        return Trained(optimizer=self.training.optimizer).make_optimizer


def _processor() -> Any:
    from tonnage.estimate.graph_costs import Processor

    return Processor()


def on_cluster(public: PublicNetwork) -> Network:
    """A network of the public format for any devices: its milliseconds on an accelerator are those of a device of speed 1,
    and CPUs are CPUs."""
    operations = []
    for operation in public.network.operations:
        seconds = {ANY: operation.seconds[ACCELERATOR] / 1e3} if ACCELERATOR in operation.seconds else {}
        operations.append(
            replace(operation, seconds=seconds | {CPU: operation.seconds[CPU] / 1e3}, transfer_seconds=None)
        )
    return replace(public.network, operations=tuple(operations))
