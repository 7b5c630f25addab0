"""What each worker is told: its stage, its neighbours, who else holds its weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from tonnage.errors import UsageError
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.stage import Cut, Stage
from tonnage.stages.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The stages of a cut with the devices that run them: one each, or several that take turns."""

    cut: Cut
    replicas: Mapping[str, tuple[str, ...]] = field(hash=False)  # by stage; the stage's own device first

    @property
    def stage_of(self) -> dict[str, Stage]:
        """By device."""
        return {device: stage for stage in self.cut.stages for device in self.replicas[stage.device]}

    def holders(self) -> dict[str, tuple[str, ...]]:
        """Of each weight: the last stage first, as gradients come in one process."""
        return {
            weight: tuple(device for stage in reversed(stages) for device in self.replicas[stage])
            for weight, stages in self.cut.holders.items()
        }

    def under_way(self, stage: Stage) -> int:
        """Micro-batches that a device of the stage may have begun and not finished, as 1F1B has them: its share of as many
        as there are devices from here to the loss."""
        widest: dict[int, int] = {}
        for each in self.cut.stages:
            for segment in each.segments:
                widest[segment.level] = max(widest.get(segment.level, 0), len(self.replicas[each.device]))
        first = min(segment.level for segment in stage.segments)
        ahead = sum(count for level, count in widest.items() if level >= first)
        return -(-ahead // len(self.replicas[stage.device]))

    def links(self, *, training: bool) -> set[tuple[str, str]]:
        """Ordered pairs of devices that have something to say to each other."""
        stages = self.cut.links + (self.cut.returns if training else ())
        pairs = {
            (source, target)
            for one, other in stages
            for source in self.replicas[one]
            for target in self.replicas[other]
        }
        if training:
            pairs |= {pair for devices in self.holders().values() for pair in permutations(devices, 2)}
        return pairs


def team_of(cut: Cut, replicas: Mapping[str, Sequence[str]], hosts: Sequence[StageHost]) -> Team:
    """`replicas` are further devices by stage; every device needs a host."""
    stages = [stage.device for stage in cut.stages]
    strange = [name for name in replicas if name not in stages]
    if strange:
        raise UsageError(f"{strange[0]} has no stage that could be replicated", f"stages are {', '.join(stages)}")
    found = {stage: (stage, *replicas.get(stage, ())) for stage in stages}
    devices = [device for group in found.values() for device in group]
    twice = {device for device in devices if devices.count(device) > 1}
    if twice:
        raise UsageError(f"{sorted(twice)[0]} cannot run two stages at once")
    missing = [device for device in devices if device not in {host.device for host in hosts}]
    if missing:
        raise UsageError(f"there is no host for the device {missing[0]}", "give one for each device of the assignment")
    return Team(cut=cut, replicas=found)


def refuse_unshared(team: Team) -> None:
    """Of a stage whose buffers change with each sample, every replica would see its own samples alone."""
    for stage in team.cut.stages:
        if stage.written_weights and len(team.replicas[stage.device]) > 1:
            raise UsageError(
                f"samples change {stage.written_weights[0]}, so {stage.device} cannot take turns with other devices",
                "leave its stage to one device",
            )


def orders_of(
    team: Team, *, transport: str, timeouts: Timeouts, training: Training | None, loss: str, returns_weights: bool
) -> dict[str, dict[str, Any]]:
    """By device."""
    links, holders = team.links(training=training is not None), team.holders()
    devices = list(team.stage_of)
    common = {
        "kind": "order", "transport": transport, "devices": devices, "links": sorted(links),
        "replicas": team.replicas, "loss": loss,
        "training": training.to_json() if training else None, "holders": holders,
        "setup_seconds": timeouts.setup_seconds, "stall_seconds": timeouts.stall_seconds,
    }  # fmt: skip
    return {
        device: common
        | {
            "stage": stage.to_json(),
            "under_way": team.under_way(stage),
            "targets": [target for target in devices if (device, target) in links],
            "sources": [source for source in devices if (source, device) in links],
            "returns": [name for name, found in holders.items() if found[0] == device] if returns_weights else [],
        }
        for device, stage in team.stage_of.items()
    }
