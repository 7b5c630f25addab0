"""Finds or installs what the server is compared with and driven by: a real Triton server and perf_analyzer, each in an
environment of its own that later runs find again. Where they cannot be had the test is skipped, and says why."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from ctypes.util import find_library
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
    libraries = [*folder.glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib"), *_base64_library(folder)]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    try:
        tried = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True, timeout=60)
    except OSError as error:
        pytest.skip(f"the wheel of tritonclient 2.51.0 for this machine has no perf_analyzer: {error}")
    if tried.returncode == 127:
        pytest.skip(f"perf_analyzer does not start here: {tried.stderr.strip()}")
    return program, environment


def _base64_library(folder: Path) -> list[Path]:
    """libb64, which perf_analyzer needs and no wheel has: Debian's, unpacked beside it where it is not installed."""
    if find_library("b64") is None and not list(folder.glob("usr/lib/*/libb64.so*")):
        try:
            subprocess.run(
                ["apt-get", "download", "libb64-0d"], cwd=folder, check=True, capture_output=True, timeout=60
            )
            package = next(folder.glob("libb64*.deb"))
            subprocess.run(["dpkg", "-x", package, folder], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError, StopIteration):
            return []  # it is told when the program does not start
    return list(folder.glob("usr/lib/*"))


def _environment(name: str, packages: tuple[str, ...], *options: str) -> Path:
    python = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode()).hexdigest()[:8]  # Triton embeds this very one
    folder = platformdirs.user_cache_path("tonnage") / "tests" / f"{name}-{python}"
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
