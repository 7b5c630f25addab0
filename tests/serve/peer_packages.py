"""Finds or installs what the server is compared with and driven by: a real Triton server and perf_analyzer, each in an
environment of its own that later runs find again. Where they cannot be had the test is skipped, and says why."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import platformdirs
import pytest

TRITON = ("nvidia-pytriton==0.7.0",)
PERF_ANALYZER = ("tritonclient==2.51.0", "nvidia-cuda-runtime-cu12==12.9.79", "numpy")
_INSTALL_SECONDS = 300.0


def triton_folder() -> Path:
    """An environment with Triton: the one that TONNAGE_TRITON names, or one that is kept in the user's cache."""
    named = os.environ.get("TONNAGE_TRITON")
    return Path(named) if named else _environment("triton", TRITON)


def perf_analyzer() -> tuple[Path, dict[str, str]]:
    """The program, and the environment variables that it needs."""
    folder = _environment("perf-analyzer", PERF_ANALYZER, "--no-deps")
    program = folder / "bin/perf_analyzer"
    libraries = next(folder.glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib"), None)
    if not program.exists() or libraries is None:
        pytest.skip("the wheel of tritonclient 2.51.0 for this machine has no perf_analyzer")
    return program, {**os.environ, "LD_LIBRARY_PATH": str(libraries)}


def _environment(name: str, packages: tuple[str, ...], *options: str) -> Path:
    folder = (
        platformdirs.user_cache_path("tonnage") / "tests" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    )
    if (folder / "complete").exists():
        return folder
    try:
        venv.create(folder, with_pip=True, clear=True)
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *options, *packages]
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{' '.join(packages)} cannot be installed here: {error}")
    (folder / "complete").touch()
    return folder
