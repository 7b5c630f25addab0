"""Puts rows that `collect.py` and `collect_points.py` wrote on a machine without a database into one.

python benchmarks/kernels/load.py DATABASE results/layers-1.jsonl.gz results/points-0.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.database import Database, open_database
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Spread, Status

# As the header rows of benchmarks/accuracy/results/times.jsonl say; measured on the same day on the same machine.
ENVIRONMENT = Environment(
    device="cuda", gpu="H200", gpu_memory_bytes=150109880320, power_limit_watts=700.0, driver="580.159.04", cuda="13.0", cudnn="91900",
    torch="2.11.0+cu130", python="3.12.3", platform="Linux", cpu="Intel(R) Xeon(R) Processor", cpu_cores=16, tonnage="0.1.0",
)  # fmt: skip
MEASURED_AT = datetime(2026, 11, 15, 17, 30, tzinfo=UTC)
_SPREADS = ("step", "forward", "backward", "optimizer", "h2d", "d2h", "host")


def operator(raw: list[Any]) -> Operator:
    name, inputs, outputs, attributes = raw
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    return Operator(name, tuple(spec(s) for s in inputs), tuple(s for s in map(spec, outputs) if s), plain)


def spec(raw: list[Any] | None) -> TensorSpec | None:
    return None if raw is None else TensorSpec(tuple(raw[0]), raw[1], raw[2], tuple(raw[3]))


def kernels(row: dict[str, Any]) -> list[KernelRow]:
    """Kernels of one call that have the same name are one row, with the sum of their seconds."""
    found: dict[tuple[Any, ...], KernelRow] = {}
    sequence = 0
    for raw, phase, position, kernel, calls, mean, deviation in row["kernels"]:
        sequence += position == 0
        key = (json.dumps(raw), phase, sequence, kernel)
        known = found.get(key)
        seconds = Spread(mean + (known.seconds.mean if known else 0.0), deviation)
        place = known.position if known else sum(1 for other in found if other[:3] == key[:3])
        found[key] = KernelRow(
            operator=operator(raw), phase=phase, position=place, kernel=kernel, calls=calls, seconds=seconds
        )
    return list(found.values())


def hosts(row: dict[str, Any]) -> list[HostRow]:
    return [
        HostRow(operator=operator(raw), phase=phase, calls=calls, seconds=Spread(mean, dev))
        for raw, phase, calls, mean, dev in row["hosts"]
    ]


def layer(row: dict[str, Any]) -> Measurement:
    return Measurement(
        key=row["key"], campaign="h200-2026-11-15", family=row["family"], structure=row["structure"], batch=int(row["structure"].get("batch", 1)),
        input_shape=(), precision=row["dtype"], mode="layer", status=Status(row["status"]), message=row["message"], measured_at=MEASURED_AT, steps=3, repetitions=1,
    )  # fmt: skip


def point(row: dict[str, Any]) -> Measurement:
    plain = dict(row["measurement"])
    for name in _SPREADS:
        value = plain[f"{name}_seconds"]
        plain[f"{name}_seconds"] = Spread(value["mean"], value["deviation"]) if value else None
    plain |= {
        "campaign": "h200-2026-11-15", "status": Status(plain["status"]), "input_shape": tuple(plain["input_shape"]),
        "measured_at": datetime.fromisoformat(plain["measured_at"]),
    }  # fmt: skip
    return Measurement(**plain)


def measurement_of(row: dict[str, Any]) -> Measurement:
    return point(row) if "measurement" in row else layer(row)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        yield from map(json.loads, file)


def load(database: Database, path: Path) -> int:
    count = 0
    for row in rows(path):
        count += database.add(ENVIRONMENT, measurement_of(row), kernels(row), hosts(row))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    with open_database(options.database) as database:
        for path in options.files:
            print(path.name, load(database, path), "measurements added")


if __name__ == "__main__":
    main()
