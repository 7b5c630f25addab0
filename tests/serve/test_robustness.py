"""The parts of benchmarks/serving/robustness.py, for seconds instead of an hour: does everything come out as it should?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serving" / "robustness.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    ["reloads --reloads 5", "drain --requests 1500", "kill --seconds 8", "soak --seconds 20", "fuzz --count 2000"],
)
def test_nothing_is_lost(arguments: str) -> None:
    command = [sys.executable, str(SCRIPT), *arguments.split()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
