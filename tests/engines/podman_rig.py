"""Podman for the tests: with the settings that some hosts need, an image that no registry had to give, GPUs in name only.

Test modules elsewhere import the fixtures `podman`, `image` and `fake_gpus`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rootfs import IMAGE, python_home, write_rootfs

from tonnage.engines.names import fresh_name

FAKE_GPUS = 3


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
    _remove_image()  # of another module in this process
    archive = write_rootfs(tmp_path_factory.mktemp("rootfs") / "root.tar")
    made = _podman("import", "--change", f"ENV PYTHONHOME={python_home()}", str(archive), IMAGE)
    tried = _podman("run", "--rm", "--network=none", IMAGE, "/usr/bin/python3", "-c", "print(6 * 7)")
    if made.returncode or tried.stdout.strip() != "42":
        pytest.skip(
            f"PODMAN DOES NOT RUN HERE: real containers are not tried: {made.stderr[-300:]}{tried.stderr[-300:]}"
        )
    yield IMAGE
    _remove_image()


@pytest.fixture
def fake_gpus() -> Iterator[str]:
    """The CDI kind of devices that are /dev/null, in a file of the folder for what is there until the next boot."""
    kind = f"{fresh_name('tonnage')}.example/gpu"
    document = {"cdiVersion": "0.5.0", "kind": kind, "devices": [_device(index) for index in range(FAKE_GPUS)]}
    path = Path("/var/run/cdi") / f"{kind.partition('.')[0]}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
    except OSError as error:
        pytest.skip(f"CDI is not tried: {error}")
    yield kind
    path.unlink()


def _device(index: int) -> dict[str, object]:
    node = {"path": f"/dev/fake-gpu-{index}", "hostPath": "/dev/null"}
    return {"name": str(index), "containerEdits": {"env": [f"FAKE_GPU_{index}=here"], "deviceNodes": [node]}}


def _remove_image() -> None:
    """With all that was built on it."""
    identity = _podman("image", "inspect", "--format", "{{.Id}}", IMAGE).stdout.strip()
    for base in (identity, f"sha256:{identity}") if identity else ():  # as podman and docker write it
        built = _podman("images", "--quiet", "--filter", f"label=tonnage.base={base}").stdout.split()
        _podman("rmi", "--force", *set(built))
    _podman("rmi", "--force", IMAGE)


def _podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=300)
