"""The three servers of throughput.py: this one, Triton with its Python backend, and MLServer; each a process with a port."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import onnx

HERE = Path(__file__).parent
READY_SECONDS = 120


def tensor_names(model: onnx.ModelProto) -> tuple[str, str]:
    return model.graph.input[0].name, model.graph.output[0].name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], port: int, ready: str, log: Path, **more: str) -> Iterator[str]:
    """A server until it is no longer needed; its address."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **more}, start_new_session=True
        )
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not answers(f"http://127.0.0.1:{port}{ready}"):
                if running.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command[0]} did not come up:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(running.pid, signal.SIGTERM)
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def tonnage_server(folder: Path, found: dict[str, onnx.ModelProto], log: Path) -> AbstractContextManager[str]:
    for name, model in found.items():
        (folder / name / "1").mkdir(parents=True)
        onnx.save(model, folder / name / "1" / "model.onnx")
        (folder / name / "config.yaml").write_text(
            "max_batch_size: 32\ndynamic_batching: {}\nparameters: {intra_op_thread_count: '1'}\n"
        )
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "serve",
        str(folder),
        "--http-port",
        str(port),
        "--grpc-port",
        "0",
        "--metrics-port",
        "0",
    ]
    return process(command, port, "/v2/health/ready", log)


def triton_server(
    environment: Path, folder: Path, found: dict[str, onnx.ModelProto], log: Path
) -> AbstractContextManager[str]:
    for name, model in found.items():
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        onnx.save(model, version / "model.onnx")
        shutil.copy(HERE / "peers" / "triton_model.py", version / "model.py")
        given, made = tensor_names(model)
        (folder / "models" / name / "config.pbtxt").write_text(
            f'backend: "python"\nmax_batch_size: 32\ndynamic_batching {{ }}\n'
            f'input [ {{ name: "{given}" data_type: TYPE_FP32 dims: {_row(model.graph.input[0])} }} ]\n'
            f'output [ {{ name: "{made}" data_type: TYPE_FP32 dims: {_row(model.graph.output[0])} }} ]\n'
            "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        )
    site = next((environment / "lib").glob("python3*/site-packages"))
    package = site / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    backend = folder / "backends" / "python"
    shutil.copytree(package / "backends" / "python", backend)
    shutil.copy(package / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
    library = subprocess.run(
        [environment / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    port = free_port()
    command = [
        str(package / "bin" / "tritonserver"), f"--model-repository={folder / 'models'}", f"--backend-directory={folder / 'backends'}",
        "--http-address", "127.0.0.1", "--http-port", str(port), "--allow-grpc=false", "--allow-metrics=false",
    ]  # fmt: skip
    libraries = f"{site / 'nvidia_pytriton.libs'}:{library}"
    # The stub takes its packages from the first Python of the path: with numpy 2 its tensors come out empty.
    search = f"{environment / 'bin'}:{os.environ['PATH']}"
    return process(command, port, "/v2/health/ready", log, LD_LIBRARY_PATH=libraries, PYTHONPATH=str(site), PATH=search)


def mlserver_server(
    environment: Path, folder: Path, found: dict[str, onnx.ModelProto], log: Path
) -> AbstractContextManager[str]:
    port = free_port()
    folder.mkdir(parents=True)
    shutil.copy(HERE / "peers" / "mlserver_model.py", folder)
    (folder / "settings.json").write_text(
        json.dumps({
            "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port(),
            "debug": False, "parallel_workers": 1,
        })
    )  # fmt: skip
    for name, model in found.items():
        (folder / name).mkdir()
        onnx.save(model, folder / name / "model.onnx")
        settings = {
            "name": name,
            "implementation": "mlserver_model.OnnxModel",
            "parameters": {"uri": str(folder / name / "model.onnx")},
        }
        (folder / name / "model-settings.json").write_text(json.dumps(settings))
    command = [str(environment / "bin" / "mlserver"), "start", str(folder)]
    return process(command, port, "/v2/health/ready", log, PYTHONPATH=str(folder))


def _row(value: onnx.ValueInfoProto) -> list[int]:
    """The shape without the axis of the batch."""
    return [size.dim_value for size in value.type.tensor_type.shape.dim][1:]
