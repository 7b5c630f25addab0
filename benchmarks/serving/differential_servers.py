"""Starts the two servers, each in a process of its own on free ports of this machine, and stops them."""

import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 180.0


@contextmanager
def tonnage_server(repository: Path) -> Iterator[tuple[str, str]]:
    """The addresses of REST and gRPC."""
    http, grpc, metrics = free_ports(3)
    command = [sys.executable, "-m", "tonnage", "serve", str(repository), "--http-port", str(http)]
    command += ["--grpc-port", str(grpc), "--metrics-port", str(metrics)]
    with _running(command, dict(os.environ), repository.parent / "tonnage.log", http):
        yield f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"


@contextmanager
def triton_server(folder: Path, repository: Path) -> Iterator[tuple[str, str]]:
    """`folder` is an environment with nvidia-pytriton; see `differential.py`."""
    site = site_packages(folder)
    backends = _backends(site, repository.parent / "backends")
    http, grpc, metrics = free_ports(3)
    command = [
        str(site / "pytriton/tritonserver/bin/tritonserver"), f"--model-repository={repository}",
        f"--backend-directory={backends}", "--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1",
        f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--model-control-mode=explicit",
        "--load-model=*", "--exit-timeout-secs=5",
        "--model-load-thread-count=2", "--backend-config=python,stub-timeout-seconds=120",  # on busy machines
    ]  # fmt: skip
    libraries = (str(site / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR")))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "PYTHONPATH": str(site),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    with _running(command, environment, repository.parent / "triton.log", http):
        yield f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"


def site_packages(folder: Path) -> Path:
    """Raises `FileNotFoundError` where Triton is not in this environment."""
    for site in folder.glob("lib/python3*/site-packages"):
        if (site / "pytriton/tritonserver/bin/tritonserver").exists():
            return site
    raise FileNotFoundError(f"{folder} has no nvidia-pytriton")


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _backends(site: Path, folder: Path) -> Path:
    """Triton looks for the library of its Python backend and for the stub that runs models in one place."""
    python = folder / "python"
    if python.exists():
        return folder
    python.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = "triton_python_backend_stub"
    found = next(iter(site.glob(f"pytriton/**/{version}/{stub}")), None)
    if found is None:
        raise FileNotFoundError(f"{site} has no {stub} for Python {version}")
    for each in (site / "pytriton/tritonserver/backends/python").iterdir():
        if each.name != stub:
            (python / each.name).symlink_to(each)
    (python / stub).symlink_to(found)
    return folder


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path, port: int) -> Iterator[None]:
    with log.open("a") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait(process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"{Path(process.args[0]).name} did not become ready:\n{log.read_text()[-3000:]}")  # type: ignore[index]
