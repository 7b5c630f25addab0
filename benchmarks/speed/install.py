"""Size of the base installation, without torch, and the CPU time of `tonnage --help` in it.

    python benchmarks/speed/install.py [--write]

Installs this checkout into a fresh virtual environment. What the environment itself brings (pip, setuptools) is not
counted; bytecode that pip compiles is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPEATS = 11
MOST_BYTES, MOST_SECONDS = 120_000_000, 0.4


def size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command that has ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the row to results/")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        empty = size_of(environment)
        constraints = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([environment / "bin/pip", "install", "-q", *constraints, str(ROOT)], check=True)
        installed = size_of(environment) - empty
        command = [str(environment / "bin/tonnage"), "--help"]
        seconds = [cpu_seconds(command) for _ in range(REPEATS + 1)][1:]  # the first fills the caches
    row = {
        "date": date.today().isoformat(), "python": platform.python_version(), "cores": os.cpu_count(),
        "base_bytes": installed, "help_cpu_seconds": seconds, "help_cpu_median": statistics.median(seconds),
    }  # fmt: skip
    print(f"base installation       {installed / 1e6:8.1f} MB      <= {MOST_BYTES / 1e6:.0f} MB")
    print(f"tonnage --help, CPU     {row['help_cpu_median']:8.3f} s       <= {MOST_SECONDS} s")
    if options.write:
        target = Path(__file__).parent / "results" / f"install-{row['date']}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
