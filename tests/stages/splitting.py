"""Assignments for tests, and a cut that runs in one process."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from tonnage.program.exported import kept_together
from tonnage.stages.cutting import weights_of
from tonnage.stages.graph_code import compile_code
from tonnage.stages.stage import CONTROLLER, Cut, Stage


def operations(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "call_function"]


def mended(module: GraphModule, assignment: dict[str, str]) -> dict[str, str]:
    """What belongs together goes where the first of it is."""
    order = operations(module)
    for group in kept_together(module):
        first = min(group, key=order.index)
        assignment |= dict.fromkeys(group, assignment[first])
    return assignment


def in_a_row(module: GraphModule, count: int) -> dict[str, str]:
    """Equal numbers of operations, one device after the other."""
    names = operations(module)
    return mended(module, {name: f"d{place * count // len(names)}" for place, name in enumerate(names)})


def scattered(module: GraphModule, count: int, seed: int) -> dict[str, str]:
    """Anything anywhere: the way of the data leaves devices and returns."""
    chance = random.Random(seed)
    return mended(module, {name: f"d{chance.randrange(count)}" for name in operations(module)})


def run_here(parts: Cut, module: GraphModule, flat: Sequence[Any], seed: int = 0) -> list[Any]:
    """Segments in any order that their inputs allow, with copies in place of messages."""
    chance = random.Random(seed)
    weights = {name: value.detach().clone() for name, value in weights_of(module).items()}
    stages = {stage.device: Stage.from_json(json.loads(json.dumps(stage.to_json()))) for stage in parts.stages}
    given = dict(zip(parts.inputs, flat, strict=True))
    held: dict[str, dict[str, Any]] = {device: dict(given) for device in (*stages, CONTROLLER)}
    waiting = [(device, place) for device, stage in stages.items() for place in range(len(stage.segments))]
    while waiting:
        ready = [each for each in waiting if _is_ready(stages, held, waiting, *each)]
        device, place = chance.choice(ready)
        waiting.remove((device, place))
        _run(stages[device], place, held, weights)
    tables: dict[str, dict[str, Any]] = {"value": held[CONTROLLER], "weight": weights}
    return [tables[kind][what] if kind in tables else what for kind, what in parts.outputs]


def _is_ready(stages: dict[str, Stage], held: dict[str, Any], waiting: list[Any], device: str, place: int) -> bool:
    segment = stages[device].segments[place]
    return set(segment.inputs) <= set(held[device]) and not {(device, each) for each in segment.after} & set(waiting)


def _run(stage: Stage, place: int, held: dict[str, dict[str, Any]], weights: dict[str, torch.Tensor]) -> None:
    segment, own = stage.segments[place], held[stage.device]
    function = compile_code(segment.code, (*segment.inputs, *segment.weights), segment.outputs, torch.device("cpu"))
    read = [own[name] for name in segment.inputs] + [weights[stage.weights[name]] for name in segment.weights]
    with torch.no_grad():
        own |= zip(segment.outputs, function(*read), strict=True)
    for name in segment.publishes:
        for reader in stage.readers[name]:
            held[reader][name] = own[name].clone() if isinstance(own[name], torch.Tensor) else own[name]
