"""`tonnage allocate` on the two files of a folder."""

import subprocess
import sys
from pathlib import Path


def write(folder: Path, *, cluster: str, tasks: str) -> Path:
    (folder / "cluster.yaml").write_text(cluster)
    (folder / "tasks.yaml").write_text(tasks)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tonnage", "allocate", "tasks.yaml", "--cluster", "cluster.yaml", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
