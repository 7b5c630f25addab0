"""Packages that would report what they are used for are kept from it."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import os, sys
from tonnage.program.no_telemetry import keep_quiet
keep_quiet()
import {package}
print(len(os.listdir("/proc/self/task")), [name for name in sys.modules if name.startswith("openvino_telemetry.")])
"""


@pytest.mark.parametrize("package", ["onnxruntime", "openvino"])
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="only Linux tells the threads of a process")
def test_no_thread_that_reports_is_started(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # otherwise numpy has threads of its own
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(package=package)], capture_output=True, text=True, check=True, env=alone
    )
    assert found.stdout == "1 []\n"
