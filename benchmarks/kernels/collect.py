"""Measures single layers on this machine's GPU and writes one JSON line for each, kernels and host times included.

    python benchmarks/kernels/collect.py --out DIR --seconds 480 [--seed 1]

`tonnage bench run` does the same into the database; this script has no time limits and no process of its own.
"""

import argparse
import gzip
import itertools
import json
import time
from pathlib import Path
from typing import Any

from tonnage.benchmark.layers import sample_layers
from tonnage.benchmark.measure_layers import measure_layers
from tonnage.benchmark.results import Measured

BATCH = 40  # layers in one profile


def plain_operator(operator: Any) -> list[Any]:
    specs = [
        [None if s is None else [list(s.shape), s.dtype, s.layout, list(s.strides)] for s in group]
        for group in (operator.inputs, operator.outputs)
    ]
    return [operator.name, *specs, dict(operator.attributes)]


def plain(measured: Measured) -> dict[str, Any]:
    m = measured.measurement
    return {
        "key": m.key, "family": m.family, "structure": dict(m.structure), "dtype": m.precision, "status": m.status.value, "message": m.message,
        "kernels": [[plain_operator(k.operator), k.phase, k.position, k.kernel[:200], k.calls, k.seconds.mean, k.seconds.deviation] for k in measured.kernels],
        "hosts": [[plain_operator(h.operator), h.phase, h.calls, h.seconds.mean, h.seconds.deviation] for h in measured.hosts],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kinds", default="")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    started, done, rows, failed = time.monotonic(), 0, 0, 0
    layers = sample_layers(1_000_000, options.seed, [k for k in options.kinds.split(",") if k])
    while time.monotonic() - started < options.seconds:
        batch = list(itertools.islice(layers, BATCH))
        began = time.monotonic()
        found = list(measure_layers(batch, device=options.device))
        lines = "".join(json.dumps(plain(measured), separators=(",", ":")) + "\n" for measured in found)
        with gzip.open(out / f"layers-{options.seed}.jsonl.gz", "ab") as file:
            file.write(lines.encode())
        done += len(found)
        rows += sum(len(measured.kernels) for measured in found)
        bad = [measured.measurement for measured in found if measured.measurement.status != "ok"]
        failed += len(bad)
        for measurement in bad:
            print(
                measurement.family,
                dict(measurement.structure),
                measurement.precision,
                measurement.message[:120],
                flush=True,
            )
        print(
            f"{done} layers, {rows} kernels, {failed} failed, {time.monotonic() - started:.0f} s (+{time.monotonic() - began:.1f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
