"""Splits networks for throughput and says how good that is and how long it took.

    python throughput.py [--only public,scattered,classes,profile,exported]

- `public`: the networks of ../../../shared/data/networks/throughput, contiguous, beside the best values that are published.
- `scattered`: one of them with subnetworks that need not be contiguous.
- `classes`: the same networks on 2 + 3 + 4 accelerators of speeds 4 : 2 : 1, with connections of 4 : 2 : 1: loads by the
  format's rules, computing divided by the speed and transfers by the connection's. Nobody published these; the values
  that are proven here are the optima of the benchmark.
- `profile`: a network of 921 operations on 6 equal devices and on 9 of three classes, over links of several rates.
- `exported`: real networks of more than 1,000 operators on the same devices.

Seconds are those of the processor, one process at a time. The rows go to results/throughput-DATE.jsonl.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.split.check import check_public
from tonnage.split.devices import Device, Fabric, Lane, Way
from tonnage.split.distributing import best_for
from tonnage.split.making import public_problem
from tonnage.split.network import Network
from tonnage.split.pool import make_pool
from tonnage.split.problem import Problem
from tonnage.split.public_format import read_public
from tonnage.split.solving import split_public
from tonnage.split.sources.profile_text import read_profile
from tonnage.split.targets import Target
from tonnage.split.throughput import split_for_throughput

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared" / "data" / "networks"
PUBLISHED = {
    "layer_bert24_inference": 17.7899, "layer_bert24_training": 41.7458, "layer_gnmt_inference": 32.9107,
    "layer_resnet50_inference": 33.7747, "layer_resnet50_training": 78.6318, "layer_inceptionv3_inference": 51.5519,
    "op_bert_l-3_inference": 27.9186, "op_bert_l-6_inference": 29.5795, "op_resnet50_inference": 124.3488,
}  # fmt: skip
SCATTERED = {"op_bert_l-3_inference": 21.9084}
CLASSES = ((2, 4.0), (3, 2.0), (4, 1.0))
RATES_GBIT = (100, 25, 10)
LIMIT_SECONDS = 60.0
GPU = "H200"  # whose costs the exported networks have


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="public,scattered,classes,profile,exported")
    chosen = parser.parse_args().only.split(",")
    now = datetime.now(UTC)
    versions = {
        "date": now.isoformat(timespec="seconds"), "python": platform.python_version(), "cpu": platform.processor(),
        "cores": os.cpu_count(),
    }  # fmt: skip
    path = HERE / "results" / f"throughput-{now.date()}.jsonl"
    path.parent.mkdir(exist_ok=True)
    parts = {"public": public, "scattered": scattered, "classes": classes, "profile": profile, "exported": exported}
    with path.open("a") as file:
        for part in chosen:
            total = 0.0
            for row in parts[part]():
                total += row["cpu_seconds"]
                file.write(json.dumps({"part": part, **row, **versions}) + "\n")
                file.flush()
                show(row)
            print(f"{part}: {total:.1f} s of the processor in all\n", flush=True)


def show(row: dict[str, Any]) -> None:
    published = f" | published {row['published']}" if "published" in row else ""
    proven = "proven" if row["proven_optimal"] else f"gap {row['gap']:.2%}"
    print(f"| {row['network']} | {row['value']:.6g} | {proven} | {row['cpu_seconds']:.1f} s{published} |", flush=True)


def deadline() -> Any:
    end = time.monotonic() + LIMIT_SECONDS
    return lambda: time.monotonic() < end


def public() -> Iterator[dict[str, Any]]:
    for name, published in PUBLISHED.items():
        yield _public(name, published, contiguous=True)


def scattered() -> Iterator[dict[str, Any]]:
    for name, published in SCATTERED.items():
        yield _public(name, published, contiguous=False)


def _public(name: str, published: float, *, contiguous: bool) -> dict[str, Any]:
    network = read_public(DATA / "throughput" / f"{name}.json.gz")
    begin = time.process_time()
    found = split_public(network, contiguous=contiguous, clock=time.monotonic, seconds=LIMIT_SECONDS)
    seconds = time.process_time() - begin
    checked = check_public(network, found.assignment, contiguous=contiguous)
    if checked.faults or abs(checked.value - found.value) > 1e-9 * found.value:
        raise SystemExit(f"{name}: {checked}")
    return {
        "network": name, "contiguous": contiguous, "value": found.value, "bound": found.bound, "gap": found.gap,
        "proven_optimal": found.proven_optimal, "published": published, "cpu_seconds": seconds,
    }  # fmt: skip


def classes() -> Iterator[dict[str, Any]]:
    for name in PUBLISHED:
        problem = three_classes(public_problem(read_public(DATA / "throughput" / f"{name}.json.gz")))
        begin = time.process_time()
        answer = split_for_throughput(problem, keep_going=deadline())
        assert answer is not None
        value, bound = answer.chain.value, answer.bound
        yield {
            "network": name, "value": value, "bound": bound, "gap": value / bound - 1,
            "proven_optimal": answer.is_proven, "cpu_seconds": time.process_time() - begin,
            "stages": [[stage.device_class, stage.groups.bit_count()] for stage in answer.chain.stages],
        }  # fmt: skip


def three_classes(problem: Problem) -> Problem:
    """The accelerators of a file as nine of three classes, without CPUs."""
    one = problem.classes[0]
    kinds = [
        replace(
            one, name=f"speed {speed:g}", devices=tuple(f"speed{speed:g}-{index}" for index in range(count)),
            seconds=one.seconds / speed, seconds_per_unit=one.seconds_per_unit / speed,
            seconds_per_unit_out=one.seconds_per_unit_out / speed,
        )
        for count, speed in CLASSES
    ]  # fmt: skip
    return replace(problem, classes=tuple(kinds))


def profile() -> Iterator[dict[str, Any]]:
    yield from _on_fabrics(read_profile(DATA / "pipeline_profile_nasnetamobile.txt.gz"), "any")


def exported() -> Iterator[dict[str, Any]]:
    from models import cells, gpt2, t5

    from tonnage.benchmark.time_models import current_model
    from tonnage.hardware import find_gpu
    from tonnage.program.aliasing import aliasing_of
    from tonnage.program.exported import export_module
    from tonnage.stages.networks import Kinds, network_of

    kinds = Kinds(gpus=[find_gpu(GPU)], model=current_model(), on_cpu=False)
    built = {"cells": cells(16), "gpt2 of 36 layers": gpt2(8, 256, 36), "t5 of 12 + 12 layers": t5(8, 256, 12)}
    for name, (model, inputs) in built.items():
        graph = export_module(model, inputs, name=name)
        yield from _on_fabrics(network_of(graph, aliasing_of(graph.module), kinds), GPU)


def _on_fabrics(network: Network, kind: str) -> Iterator[dict[str, Any]]:
    for devices in ([(6, 1.0)], list(CLASSES)):
        for rate in RATES_GBIT:
            fabric = star(devices, kind, rate * 1e9 / 8)
            begin = time.process_time()
            found = best_for(make_pool(network, fabric, keep_going=deadline(), wide=False), Target.THROUGHPUT)
            names = " + ".join(f"{count} of speed {speed:g}" for count, speed in devices)
            yield {
                "network": f"{network.name} on {names}, {rate} Gbit/s", "operations": len(network.operations),
                "value": found.value, "bound": found.bound, "gap": found.gap,
                "proven_optimal": found.proven_optimal, "cpu_seconds": time.process_time() - begin,
            }  # fmt: skip


def star(devices: list[tuple[int, float]], kind: str, bytes_second: float) -> Fabric:
    """Devices around a switch; a device of speed s has links of s times the rate of the slowest kind."""
    speeds = [speed for count, speed in devices for _ in range(count)]
    slowest = min(speeds)
    members = tuple(
        Device(name=f"n{index}", node=f"n{index}", kind=kind, speed=speed) for index, speed in enumerate(speeds)
    )
    lanes = tuple(
        Lane(name=name, bytes_second=bytes_second * speed / slowest)
        for index, speed in enumerate(speeds)
        for name in (f"n{index}->switch", f"switch->n{index}")
    )
    count = len(speeds)
    ways = {(a, b): Way(lanes=(2 * a, 2 * b + 1)) for a in range(count) for b in range(count) if a != b}
    return Fabric(devices=members, lanes=lanes, ways=ways)


if __name__ == "__main__":
    main()
