"""Podman for the tests: with the settings that some hosts need, and an image that no registry had to give."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rootfs import IMAGE, python_home, write_rootfs


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Podman that works, or a loud word why not."""
    if shutil.which("podman") is None:
        pytest.skip("NO PODMAN: real containers are not tried; scripts/test installs it where it may")
    before = os.environ.get("CONTAINERS_CONF")
    if before is None and Path("/sys/fs/cgroup/memory").is_dir() and shutil.which("runc"):
        # Control groups of version 1: crun cannot, and without CAP_SYS_RESOURCE limits must not be raised.
        settings = tmp_path_factory.mktemp("podman") / "containers.conf"
        limits = '["nofile=16384:16384", "nproc=16384:16384"]'
        settings.write_text(f'[containers]\ndefault_ulimits = {limits}\n[engine]\nruntime = "runc"\n')
        os.environ["CONTAINERS_CONF"] = str(settings)
    yield
    if before is None:
        os.environ.pop("CONTAINERS_CONF", None)


@pytest.fixture(scope="session")
def image(podman: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: ARG001 - it must be there
    """An image with Python; skips, loudly, where containers cannot be run here at all."""
    archive = write_rootfs(tmp_path_factory.mktemp("rootfs") / "root.tar")
    made = _podman("import", "--change", f"ENV PYTHONHOME={python_home()}", str(archive), IMAGE)
    tried = _podman("run", "--rm", "--network=none", IMAGE, "/usr/bin/python3", "-c", "print(6 * 7)")
    if made.returncode or tried.stdout.strip() != "42":
        pytest.skip(
            f"PODMAN DOES NOT RUN HERE: real containers are not tried: {made.stderr[-300:]}{tried.stderr[-300:]}"
        )
    yield IMAGE
    identity = _podman("image", "inspect", "--format", "{{.Id}}", IMAGE).stdout.strip()
    for base in (identity, f"sha256:{identity}"):  # as podman and docker write it
        built = _podman("images", "--quiet", "--filter", f"label=tonnage.base={base}").stdout.split()
        _podman("rmi", "--force", *set(built))
    _podman("rmi", "--force", IMAGE)


def _podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=300)
