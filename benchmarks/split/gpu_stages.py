"""Do the costs of operators predict the stages of a network on a real GPU?

    python gpu_stages.py [--output rows.jsonl] [--stages 3] [MODEL ...]              on a machine with an NVIDIA GPU

Each model is exported and split into stages of equal predicted time. Stages run one at a time as workers run them, on the GPU, with
batches that keep it busy: the seconds of each (median of many runs, until the GPU is done) stand beside the sum of its
operators' predicted seconds, and what comes out beside the outputs of the network in one stage, to the last bit. One worker for
each stage then runs the whole pipeline on the one GPU, which they share.
"""

import argparse
import json
import statistics
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from models import MODELS

from tonnage.benchmark.time_models import current_model
from tonnage.hardware import Gpu, find_gpu
from tonnage.program.aliasing import aliasing_of
from tonnage.program.exported import export_module
from tonnage.split.network import Network
from tonnage.stages.calling import flat_inputs
from tonnage.stages.cutting import cut, weights_of
from tonnage.stages.graph_code import compile_code
from tonnage.stages.hosts import StageHost
from tonnage.stages.networks import Kinds, network_of
from tonnage.stages.run import run_distribution
from tonnage.stages.stage import Cut

BATCHES = {"gpt2": 16, "gpt2_medium": 16, "bert": 32, "vit": 64, "t5": 32, "llama": 32, "resnet50": 64, "cells": 64}
REPEATS, WARM_UPS = 15, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("models", nargs="*", default=list(BATCHES))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    gpu = find_gpu(torch.cuda.get_device_name().removeprefix("NVIDIA "))
    common = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": gpu.name, "torch": torch.__version__,
    }  # fmt: skip
    errors = []
    for name in options.models:
        for row in rows_of(name, gpu, options.stages):
            if "error" in row:
                errors.append(abs(row["error"]))
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row | common) + "\n")
            print(json.dumps(row), flush=True)
    print(f"{len(errors)} stages: error median {statistics.median(errors):.1%}, largest {max(errors):.1%}")


def rows_of(name: str, gpu: Gpu, count: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model, inputs = MODELS[name](BATCHES[name])
    exported = export_module(model, inputs, name=name)
    network = network_of(exported, aliasing_of(exported.module), Kinds(gpus=[gpu], model=current_model(), on_cpu=False))
    assignment = equal_parts(network, gpu.name, count)
    parts = cut(exported.module, assignment)
    weights = {key: value.cuda() for key, value in weights_of(exported.module).items()}
    flat = [each.cuda() if isinstance(each, torch.Tensor) else each for each in flat_inputs(exported.module, inputs)]
    measured, made = stage_seconds(parts, weights, flat)
    whole, expected = stage_seconds(cut(exported.module, dict.fromkeys(assignment, "all")), weights, flat)
    predicted = dict.fromkeys(measured, 0.0)
    for operation in network.operations:
        predicted[assignment[str(operation.id)]] += operation.seconds[gpu.name]
    rows = [
        {"model": name, "batch": BATCHES[name], "stage": device, "predicted_seconds": predicted[device],
         "measured_seconds": measured[device], "error": predicted[device] / measured[device] - 1}
        for device in measured
    ]  # fmt: skip
    hosts = [StageHost(device=stage.device, torch_device="cuda:0") for stage in parts.stages]
    report = run_distribution(exported, assignment, hosts=hosts, samples=4, compare=False)
    rows.append(
        {"model": name, "stages": len(parts.stages), "whole_seconds": whole["all"], "sum_seconds": sum(measured.values()),
         "is_equal": all(torch.equal(one, other) for one, other in zip(made, expected, strict=True)),
         "shared_period_seconds": report.period_seconds.median}
    )  # fmt: skip
    return rows


def equal_parts(network: Network, kind: str, count: int) -> dict[str, str]:
    total, done = sum(operation.seconds[kind] for operation in network.operations), 0.0
    together: dict[Any, str] = {}
    found = {}
    for operation in network.operations:
        device = f"s{min(int(done / total * count), count - 1)}"
        if operation.together is not None:
            device = together.setdefault(operation.together, device)
        found[str(operation.id)] = device
        done += operation.seconds[kind]
    return found


def stage_seconds(
    parts: Cut, weights: dict[str, torch.Tensor], flat: list[Any]
) -> tuple[dict[str, float], list[torch.Tensor]]:
    """Segments in their order, each timed by itself, and the tensors that the network returns."""
    values: dict[str, Any] = dict(zip(parts.inputs, flat, strict=True))
    seconds: dict[str, float] = {stage.device: 0.0 for stage in parts.stages}
    segments = [(segment.level, stage, segment) for stage in parts.stages for segment in stage.segments]
    for _, stage, segment in sorted(segments, key=lambda each: each[0]):
        function = compile_code(
            segment.code, (*segment.inputs, *segment.weights), segment.outputs, torch.device("cuda:0")
        )
        held = [weights[stage.weights[name]] for name in segment.weights]
        arguments = [values[name] for name in segment.inputs]
        times = []
        for _ in range(WARM_UPS + REPEATS):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            with torch.no_grad():
                made = function(*arguments, *held)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        seconds[stage.device] += statistics.median(times[WARM_UPS:])
        values |= dict(zip(segment.outputs, made, strict=True))
    returned = [values[name] for kind, name in parts.outputs if kind == "value"]
    return seconds, [each for each in returned if isinstance(each, torch.Tensor)]


if __name__ == "__main__":
    main()
