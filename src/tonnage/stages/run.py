"""Carries out a distribution: one call from an assignment to measured times, for the command line and for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from tonnage.errors import UsageError
from tonnage.program.exported import Exported, export_program
from tonnage.program.program import Program
from tonnage.stages import driving, reference
from tonnage.stages.calling import check_alike, flat_inputs, structured_output
from tonnage.stages.controller import Controller
from tonnage.stages.cutting import cut, weights_of
from tonnage.stages.driving import Drive, Driven
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.launchers import Launcher, ProcessLauncher
from tonnage.stages.orders import Team, orders_of, refuse_unshared, team_of
from tonnage.stages.report import RunReport, Spread, StageTimes, links_of, period_of, seconds_by
from tonnage.stages.stage import Cut
from tonnage.stages.training import Training

TRANSPORTS = ("sockets", "gloo", "nccl")


def run_distribution(
    network: Exported | Program | GraphModule,
    assignment: Mapping[str, str],
    *,
    hosts: Sequence[StageHost] = (),
    samples: int | Sequence[Any] = 32,
    in_flight: int = 0,
    training: Training | None = None,
    replicas: Mapping[str, Sequence[str]] | None = None,
    transport: str = "sockets",
    launcher: Launcher | None = None,
    timeouts: Timeouts | None = None,
    compare: bool = False,
    on_output: Callable[[int, Any], None] | None = None,
    on_weights: Callable[[Mapping[str, torch.Tensor]], None] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> RunReport:
    """Run a network on the devices of an assignment, and measure it.

    network: what was exported, or a program `file.py:build`; a bare graph needs `samples` with inputs.
    assignment: the device of each operation (names of the graph's nodes); those left out follow what they read.
    hosts: how each device is reached; without them, each device is a process of this machine.
    samples: how many of the example are measured, or the inputs of each sample (for training: of each micro-batch).
    in_flight: samples under way at once; 0 for enough to keep all stages and links busy.
    training: steps, micro-batches and optimizer; None for inference.
    replicas: further devices that hold the same stage and take turns, by the device of the assignment.
    transport: `sockets`, or torch.distributed's `gloo`, or `nccl` for stages on GPUs.
    launcher: starts the workers; processes of this machine unless given.
    compare: run it here as well, unsplit, and say whether all outputs (or losses and weights) are equal.
    on_output: gets each output, in the structure that the network returns, by the number of its sample.
    on_weights: gets the weights after training.

    Raises `Unreachable` (exit 5) when a worker dies, falls silent or a link stalls, within the times of `timeouts`, and
    `TonnageError` (exit 1) when one fails by itself; in all cases no process is left behind.
    """
    start = time.perf_counter()
    if transport not in TRANSPORTS:
        raise UsageError(f"there is no transport {transport!r}", f"choose from {', '.join(TRANSPORTS)}")
    exported = _exported(network, is_training=training is not None)
    parts = cut(exported.module, assignment, loss=exported.loss if training else "")
    team = team_of(parts, replicas or {}, hosts or _processes(parts, replicas or {}))
    if training is None:
        refuse_unshared(team)
    run = _Run(
        exported=exported, team=team, training=training, transport=transport, timeouts=timeouts or Timeouts(),
        in_flight=in_flight or driving.default_in_flight(team), progress=progress, on_output=on_output,
        keeps_outputs=compare,
    )  # fmt: skip
    run.choose_samples(samples)
    used = [host for host in hosts or _processes(parts, replicas or {}) if host.device in team.stage_of]
    driven = run.execute(used, launcher or ProcessLauncher())
    if on_weights is not None and training is not None:
        on_weights(driven.weights)
    report = replace(_report(run, driven), **(_compare(run, driven) if compare else {}))
    return replace(report, total_seconds=time.perf_counter() - start)


@dataclass
class _Run:
    """All that is decided before the first worker starts."""

    exported: Exported
    team: Team
    training: Training | None
    transport: str
    timeouts: Timeouts
    in_flight: int
    progress: Callable[[str], None]
    on_output: Callable[[int, Any], None] | None
    keeps_outputs: bool
    samples: list[list[Any]] = field(default_factory=list)
    measured: int = 0  # samples in the steady state
    outputs: dict[int, list[Any]] = field(default_factory=dict)

    def choose_samples(self, samples: int | Sequence[Any]) -> None:
        """With a number, the example: as often as wanted, and so often more that the pipeline is full before and after."""
        module, training = self.exported.module, self.training
        if isinstance(samples, int):
            inputs = self.exported.keywords or self.exported.arguments
            alone = driving.WARM_SAMPLES + driving.ALONE_SAMPLES
            count = training.steps * training.micro_batches if training else alone + samples + 2 * self.in_flight
            self.samples, self.measured = [flat_inputs(module, inputs)] * count, samples
        else:
            self.samples = [flat_inputs(module, inputs) for inputs in samples]
            self.measured = max(1, len(samples) // 2)
        wanted = training.steps * training.micro_batches if training else max(self.measured, 1)
        if len(self.samples) < wanted:
            raise UsageError(f"{len(self.samples)} samples are too few: {wanted} are needed")
        for flat in {id(flat): flat for flat in self.samples}.values():
            check_alike(module, flat)

    def execute(self, hosts: Sequence[StageHost], launcher: Launcher) -> Driven:
        limits, weights = self.timeouts, weights_of(self.exported.module)
        self.progress(f"starting {len(hosts)} workers")
        with Controller(hosts, launcher, limits, self.progress) as controller:
            controller.gather("hello", limits.start_seconds)
            self._set_up(controller, weights)
            self.progress("running")
            drive = Drive(self.team, controller, self.samples, weights, self._take)
            if self.training is not None:
                return driving.train(drive, self.training, limits.setup_seconds)
            return driving.infer(drive, self.in_flight, self.measured, limits.setup_seconds)

    def _set_up(self, controller: Controller, weights: Mapping[str, torch.Tensor]) -> None:
        """Stages and weights to the workers, and then their addresses to each other."""
        orders = orders_of(
            self.team, transport=self.transport, timeouts=self.timeouts, training=self.training,
            loss=self.exported.loss, returns_weights=self.training is not None,
        )  # fmt: skip
        for device, order in orders.items():
            names = self.team.stage_of[device].weights.values()
            controller.send(device, order, {name: weights[name] for name in names})
        offers = controller.gather("offer", self.timeouts.setup_seconds)
        addresses = {device: received.header["name"] for device, received in offers.items()}
        for device in orders:
            controller.send(device, {"kind": "offers", "offers": addresses})
        controller.gather("ready", self.timeouts.setup_seconds)

    def _take(self, number: int, flat: list[Any]) -> None:
        if self.keeps_outputs:
            self.outputs[number] = flat
        if self.on_output is not None:
            self.on_output(number, structured_output(self.exported.module, flat))


def _exported(network: Exported | Program | GraphModule, *, is_training: bool) -> Exported:
    if isinstance(network, Program):
        return export_program(network, training=is_training)
    exported = Exported(name="network", module=network) if isinstance(network, GraphModule) else network
    if is_training and not exported.loss:
        raise UsageError(f"{exported.name} was exported for inference", "export it with training=True")
    return exported


def _processes(parts: Cut, replicas: Mapping[str, Sequence[str]]) -> list[StageHost]:
    devices = [stage.device for stage in parts.stages] + [device for more in replicas.values() for device in more]
    return [StageHost(device=device) for device in devices]


# -- results --------------------------------------------------------------------------------------------------------------


def _report(run: _Run, driven: Driven) -> RunReport:
    training = run.training
    return RunReport(
        network=run.exported.name,
        mode="training" if training else "inference",
        transport=run.transport,
        samples=training.steps if training else len(driven.moments),
        micro_batches=training.micro_batches if training else 1,
        period_seconds=period_of(driven.moments, 1 if training else 0),
        latency_seconds=Spread.of(driven.latencies),
        stages=tuple(_stage_times(run, driven, device) for device in run.team.stage_of),
        links=links_of(driven.timings, driven.steady, driven.steady_steps),
        losses=driving.mean_losses(driven, training) if training else (),
    )


def _stage_times(run: _Run, driven: Driven, device: str) -> StageTimes:
    stage, timings = run.team.stage_of[device], driven.timings[device]
    weights = weights_of(run.exported.module)
    return StageTimes(
        device=device,
        stage=stage.device,
        segments=len(stage.segments),
        operations=sum(len(segment.code) for segment in stage.segments),
        weight_bytes=sum(weights[name].nbytes for name in set(stage.weights.values())),
        peak_bytes=driven.peak_bytes[device],
        forward_seconds=seconds_by(timings, "forward", driven.steady),
        backward_seconds=seconds_by(timings, "backward", driven.steady),
        update_seconds=seconds_by(timings, "update", driven.steady_steps),
        processor_seconds=seconds_by(timings, "forward", driven.steady, of_processor=True),
    )


def _compare(run: _Run, driven: Driven) -> dict[str, Any]:
    """With the same network in this process."""
    module = run.exported.module
    if run.training is not None:
        losses, weights = reference.train(module, run.exported.loss, run.samples, run.training)
        found = list(driving.mean_losses(driven, run.training))
        trained = {name: weights[name] for name in driven.weights}
        most = max(reference.difference(losses, found), reference.difference(trained, driven.weights))
    else:
        # Without buffers that change, the same sample gives the same each time.
        has_state = any(stage.written_weights for stage in run.team.cut.stages)
        keys = [number if has_state else id(sample) for number, sample in enumerate(run.samples)]
        distinct = dict(zip(keys, run.samples, strict=True))
        expected = dict(zip(distinct, reference.infer(module, list(distinct.values())), strict=True))
        most = max(reference.difference(expected[key], run.outputs[number]) for number, key in enumerate(keys))
    return {"is_equal": most == 0.0, "largest_difference": most}
