"""Runs the configurations on a real GPU, one process each, and writes how long their steps really take.

    python benchmarks/accuracy/measure_time.py --out DIR [--only REGEX] [--seconds BUDGET]

Writes DIR/times.jsonl: a header row that describes the machine, then one row a configuration, flushed as they come.
"""

import argparse
import contextlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from configurations import Configuration
from measure import describe_machine, preload
from nvml import open_nvml
from selection import SPLITS, selected
from step_clock import Done, StepClock

STEPS = 4000  # more than are ever waited for: the clock ends the program


def run_child(configuration: Configuration | None, result: Path, options: argparse.Namespace) -> None:
    row: dict[str, Any] = {"error": None}
    try:
        if configuration is None:
            row |= describe_machine()
        else:
            clock = StepClock(open_nvml(), options.power_seconds, options.most_seconds)
            clock.install()
            program = str(configuration.path)
            sys.argv = [program, *configuration.arguments, "--steps", str(STEPS)]
            sys.path.insert(0, str(configuration.path.parent))
            try:
                runpy.run_path(program, run_name="__main__")
                row["error"] = f"the program ended after {clock.steps} steps"
            except Done:
                pass
            row |= clock.result
    except BaseException:
        row["error"] = traceback.format_exc()[-2000:]
    result.write_text(json.dumps(row))


def in_child(configuration: Configuration | None, scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    result, log = scratch / "result.json", os.open(scratch / "log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    result.unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            run_child(configuration, result, options)
        finally:
            os._exit(0)
    os.close(log)
    deadline = time.monotonic() + options.limit
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return json.loads(result.read_text()) if result.exists() else {"error": "no result"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--split", choices=SPLITS, default="all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no configuration after this long")
    parser.add_argument("--limit", type=float, default=40.0, help="most seconds for one configuration")
    parser.add_argument("--power-seconds", type=float, default=1.0)
    parser.add_argument("--most-seconds", type=float, default=4.0, help="of timed steps")
    options = parser.parse_args()
    started = time.monotonic()
    preload()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (out / "times.jsonl").open("a") as file:
        nvml = open_nvml()
        header = {"machine": in_child(None, Path(folder), options), "driver": nvml.driver() if nvml else None}
        header["date"] = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(json.dumps(header) + "\n")
        print(json.dumps(header), flush=True)
        for configuration in selected(options.split, options.only):
            if time.monotonic() - started > options.seconds:
                print("time is up", flush=True)
                break
            began = time.monotonic()
            row = {
                "name": configuration.name,
                "program": configuration.program,
                "arguments": list(configuration.arguments),
                "split": configuration.split,
            }
            row |= in_child(configuration, Path(folder), options)
            row["wall_seconds"] = round(time.monotonic() - began, 2)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(text_of(row), flush=True)


def text_of(row: dict[str, Any]) -> str:
    steps = row.get("step_seconds") or [0.0]
    mean = sum(steps) / len(steps)
    busy = sum(row.get("busy_seconds", {"": 0.0}).values())
    error = (row["error"] or "").strip().splitlines()
    numbers = (mean, row.get("backward_seconds", 0.0), row.get("optimizer_seconds", 0.0), busy)
    text = "".join(f"{1000 * n:>10.3f}" for n in numbers)
    return f"{row['name']:<40}{row['wall_seconds']:>6.1f}{len(steps):>4}{text}{row.get('power_watts', 0):>8.1f}  {error[-1][:80] if error else ''}"


if __name__ == "__main__":
    main()
