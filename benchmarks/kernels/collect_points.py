"""Measures the points of a campaign on this machine's GPU and writes one JSON line for each.

python benchmarks/kernels/collect_points.py --out DIR --seconds 400 [--campaign default]
"""

import argparse
import gzip
import json
import time
from dataclasses import asdict
from pathlib import Path

import pynvml
import torch
from collect import plain

from tonnage.benchmark.campaign import points
from tonnage.benchmark.campaign_file import find_campaign
from tonnage.benchmark.measure import measure_point
from tonnage.benchmark.messages import Method
from tonnage.benchmark.power import PowerMeter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--campaign", default="default")
    parser.add_argument("--skip", type=int, default=0)
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    pynvml.nvmlInit()
    meter = PowerMeter(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
    started = time.monotonic()
    for number, point in enumerate(points(find_campaign(options.campaign))[options.skip :], options.skip):
        if time.monotonic() - started > options.seconds:
            break
        began = time.monotonic()
        try:
            measured = measure_point(point, device="cuda", meter=meter, method=Method(repetitions=2))
        except torch.OutOfMemoryError as error:
            print(number, point.as_dict(), str(error)[:100], flush=True)
            continue
        m = asdict(measured.measurement) | {"measured_at": measured.measurement.measured_at.isoformat()}
        row = {"point": point.as_dict(), "measurement": m} | {
            k: v for k, v in plain(measured).items() if k in ("kernels", "hosts")
        }
        with gzip.open(out / f"points-{options.skip}.jsonl.gz", "ab") as file:
            file.write((json.dumps(row, separators=(",", ":"), default=str) + "\n").encode())
        print(
            f"{number} {point.family} b{point.batch} {point.precision} {point.mode} {m['step_seconds']['mean'] * 1000:.3f} ms host {m['host_seconds']['mean'] * 1000:.3f} {m['power_watts'] or 0:.0f} W, {time.monotonic() - began:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
