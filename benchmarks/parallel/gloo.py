"""Measures all-reduces and DDP steps of real processes over links of known rate, beside what the model predicts.

    python gloo.py [--ranks 2,3,4] [--mbit 200,400] [--repeats 5]         as root; some minutes

Each rank is a process in a network namespace of its own (see `tonnage.stages.namespaces`) and uses torch.distributed with gloo. The
rate and the latency of one link are measured first and given to the model; everything else is predicted. The rows go to
results/gloo-DATE.jsonl. The network's layers wait instead of computing, as a processor does for a GPU: ranks that share a
few cores would otherwise measure each other. Gloo is not NCCL: this checks the ring's formula, the buckets and the overlap,
not NCCL's constants.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tonnage.estimate.collectives import all_reduce
from tonnage.estimate.communication import gloo
from tonnage.estimate.data_parallel import data_parallel
from tonnage.estimate.parallel import Gradient, ParallelOptions, Timeline
from tonnage.estimate.topology import Fabric, Topology
from tonnage.stages.namespaces import INTERFACE, switched_hosts
from tonnage.units import MIB, format_bytes

HERE = Path(__file__).parent
PORT = 29611
LIMIT_SECONDS = 180


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--mbit", default="200,400")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    now = datetime.now(UTC)
    versions = {
        "date": now.isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
    }
    path = HERE / "results" / f"gloo-{now.date()}.jsonl"
    path.unlink(missing_ok=True)
    for mbit in map(int, options.mbit.split(",")):
        for ranks in map(int, options.ranks.split(",")):
            found = measure(ranks, mbit * 10**6, options.repeats)
            rows = [{"ranks": ranks, "mbit": mbit, **row, **versions} for row in compare(found, ranks)]
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            show(rows)


def measure(ranks: int, rate_bits_second: int, repeats: int) -> dict[str, Any]:
    """Run all ranks and read what rank 0 wrote."""
    rates = {f"rank-{rank}": rate_bits_second for rank in range(ranks)}
    with tempfile.TemporaryDirectory() as folder, switched_hosts(rates) as rig:
        output = Path(folder) / "found.json"
        command = [sys.executable, str(HERE / "rank.py"), "--ranks", str(ranks), "--repeats", str(repeats)]
        command += ["--meet", f"tcp://{rig.addresses['rank-0']}:{PORT}", "--output", str(output)]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
        processes = [
            subprocess.Popen([*rig.prefix(name), *command, "--rank", str(rank)], env=environment)
            for rank, name in enumerate(rates)
        ]
        try:
            codes = [process.wait(LIMIT_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if not output.exists():  # else all was measured, and gloo at most stumbled while leaving
            raise SystemExit(f"ranks ended with {codes}")
        found: dict[str, Any] = json.loads(output.read_text())
        return found


def compare(found: dict[str, Any], ranks: int) -> Iterator[dict[str, Any]]:
    """A row for each thing measured, with the prediction for the same link."""
    link = Fabric(kind="ethernet", bytes_second=found["link_bytes_second"])
    topology = Topology(ranks=ranks, nodes=ranks, between=link)
    library = gloo(found["hop_seconds"])
    common = {name: found[name] for name in ("link_bytes_second", "hop_seconds")}
    for row in found["all_reduce"]:
        predicted = all_reduce(row["nbytes"], topology, library).seconds
        yield {"what": "all_reduce", "nbytes": row["nbytes"], **_beside(row["seconds"], predicted), **common}
    timeline = _timeline(found["single"])
    for row in found["ddp"]:
        bucket = (row["bucket_mib"] or 25) * MIB
        first = bucket if row["bucket_mib"] else MIB
        options = ParallelOptions(bucket_bytes=bucket, first_bucket_bytes=first, library=library)
        step = data_parallel(timeline, topology, options)
        yield {
            "what": "ddp_step",
            "nbytes": timeline.gradient_bytes,
            "bucket_mib": row["bucket_mib"],
            **_beside(row["seconds"], step.step_seconds),
            "single_seconds": timeline.seconds,
            "exposed_seconds": step.exposed_seconds,
            "single": found["single"],
            **common,
        }


def _timeline(single: dict[str, Any]) -> Timeline:
    return Timeline(
        forward_seconds=single["forward"],
        backward_seconds=single["backward"],
        optimizer_seconds=single["optimizer"],
        gradients=tuple(Gradient(ready_seconds=seconds, nbytes=size) for seconds, size in single["gradients"]),
    )


def _beside(measured: float, predicted: float) -> dict[str, float]:
    return {"measured_seconds": measured, "predicted_seconds": predicted, "error": predicted / measured - 1}


def show(rows: list[dict[str, Any]]) -> None:
    rate, hop = rows[0]["link_bytes_second"], rows[0]["hop_seconds"]
    print(f"link: {rate / 1e6:.1f} MB/s, {hop * 1e6:.0f} us")
    for row in rows:
        name = row["what"] + (f" bucket {row['bucket_mib'] or 25} MiB" if row["what"] == "ddp_step" else "")
        times = f"{row['measured_seconds'] * 1e3:.1f} | {row['predicted_seconds'] * 1e3:.1f} | {row['error']:+.0%}"
        print(f"| {row['mbit']} | {row['ranks']} | {name} | {format_bytes(row['nbytes'])} | {times} |", flush=True)


if __name__ == "__main__":
    main()
