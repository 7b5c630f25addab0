"""How many requests a second, and how soon: this server beside Triton's Python backend and MLServer, with the same ONNX files.

    python throughput.py --triton ENVIRONMENT --mlserver ENVIRONMENT [--repeats 5] [--seconds 5]

All servers run on this machine at the same time, each with one instance of one thread and requests batched as they come; `wrk`
(Debian's package) asks one after the other in turns, so that whatever else the machine does falls on all of them. Environments are
virtual ones with the peers and onnxruntime:

    pip install nvidia-pytriton==0.7.0 onnxruntime         Triton 2.51 and its Python backend
    pip install mlserver==1.7.1 onnxruntime                MLServer

The rows go to results/throughput-DATE.jsonl, one for each run of wrk.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
READY_SECONDS = 120


@dataclass(frozen=True)
class Load:
    """A model and who asks it."""

    model: str
    clients: int
    shape: tuple[int, ...]


LOADS = (Load("small", 16, (1, 16)), Load("squeezenet", 4, (1, 3, 227, 227)))


# -- models ---------------------------------------------------------------------------------------------------------------


def small_model() -> onnx.ModelProto:
    """16 numbers in, 4 out, one hidden layer: what costs is everything around it."""
    chance = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(chance.standard_normal(shape).astype("f4"), name)
        for name, shape in (("first", (16, 32)), ("second", (32, 4)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 16])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])]
    graph = helper.make_graph(nodes, "small", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def open_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The first axis of inputs and outputs without a size."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    del model.graph.value_info[:]
    return model


def models(caffe: Path) -> dict[str, onnx.ModelProto]:
    from tonnage.program.caffe import load
    from tonnage.program.caffe.onnx_export import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "squeezenet.onnx")
        export_onnx(load(caffe / "squeezenet.prototxt", caffe / "squeezenet.caffemodel"), path)
        return {"small": small_model(), "squeezenet": open_batch(onnx.load(path))}


def tensor_names(model: onnx.ModelProto) -> tuple[str, str]:
    return model.graph.input[0].name, model.graph.output[0].name


# -- servers --------------------------------------------------------------------------------------------------------------


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


def tonnage_server(folder: Path, found: dict[str, onnx.ModelProto], log: Path) -> Any:
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


def triton_server(environment: Path, folder: Path, found: dict[str, onnx.ModelProto], log: Path) -> Any:
    for name, model in found.items():
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        onnx.save(model, version / "model.onnx")
        shutil.copy(HERE / "peers" / "triton_model.py", version / "model.py")
        load = next(each for each in LOADS if each.model == name)
        given, made = tensor_names(model)
        dims = [size.dim_value for size in model.graph.output[0].type.tensor_type.shape.dim][1:]
        (folder / "models" / name / "config.pbtxt").write_text(
            f'backend: "python"\nmax_batch_size: 32\ndynamic_batching {{ }}\n'
            f'input [ {{ name: "{given}" data_type: TYPE_FP32 dims: {list(load.shape[1:])} }} ]\n'
            f'output [ {{ name: "{made}" data_type: TYPE_FP32 dims: {dims} }} ]\n'
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
    return process(command, port, "/v2/health/ready", log, LD_LIBRARY_PATH=libraries, PYTHONPATH=str(site))


def mlserver_server(environment: Path, folder: Path, found: dict[str, onnx.ModelProto], log: Path) -> Any:
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


# -- asking ---------------------------------------------------------------------------------------------------------------


def lua(load: Load, names: tuple[str, str], binary: bool, folder: Path) -> Path:
    """What wrk sends."""
    values = np.random.default_rng(1).standard_normal(load.shape).astype("f4")
    tensor: dict[str, Any] = {"name": names[0], "shape": load.shape, "datatype": "FP32"}
    headers = {"Content-Type": "application/json"}
    if binary:
        tensor["parameters"] = {"binary_data_size": values.nbytes}
        head = json.dumps(
            {"inputs": [tensor], "outputs": [{"name": names[1], "parameters": {"binary_data": True}}]}
        ).encode()
        body = head + values.tobytes()
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    else:
        body = json.dumps({"inputs": [tensor | {"data": values.ravel().tolist()}]}).encode()
    kind = "binary" if binary else "json"
    (folder / f"{load.model}-{kind}.body").write_bytes(body)
    path = folder / f"{load.model}-{kind}.lua"
    path.write_text(
        'wrk.method = "POST"\n'
        f'local file = io.open("{folder / f"{load.model}-{kind}.body"}", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
        + "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in headers.items())
    )
    return path


def ask(url: str, load: Load, script: Path, seconds: float) -> dict[str, float]:
    command = [
        "wrk",
        "-t1",
        f"-c{load.clients}",
        f"-d{seconds:g}s",
        "--latency",
        "-s",
        str(script),
        f"{url}/v2/models/{load.model}/infer",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"Socket errors: (.*)", text)
    return {
        "requests_second": float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),  # type: ignore[index]
        "p50_ms": milliseconds(text, "50%"),
        "p99_ms": milliseconds(text, "99%"),
        "failed": float(failed[1]) if failed else 0.0,
        "broken": float(sum(map(int, re.findall(r"\d+", broken[1])))) if broken else 0.0,
    }


def milliseconds(text: str, share: str) -> float:
    number, unit = re.search(rf"{share}\s+([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def main() -> None:
    options = read_options()
    found = models(options.caffe)
    now = datetime.now(UTC)
    rows = []
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        servers = {"tonnage": stack.enter_context(tonnage_server(folder / "tonnage", found, folder / "tonnage.log"))}
        if options.triton:
            servers["triton"] = stack.enter_context(
                triton_server(options.triton, folder / "triton", found, folder / "triton.log")
            )
        if options.mlserver:
            servers["mlserver"] = stack.enter_context(
                mlserver_server(options.mlserver, folder / "mlserver", found, folder / "mlserver.log")
            )
        for load in LOADS:
            for kind in ("binary", "json"):
                script = lua(load, tensor_names(found[load.model]), kind == "binary", folder)
                asked = {name: url for name, url in servers.items() if (name, kind) != ("mlserver", "binary")}
                for url in asked.values():
                    ask(url, load, script, 1.0)
                for repeat in range(options.repeats):
                    for name, url in asked.items():
                        row = {
                            "server": name,
                            "model": load.model,
                            "clients": load.clients,
                            "kind": kind,
                            "repeat": repeat,
                        }
                        rows.append(row | ask(url, load, script, options.seconds))
                show([row for row in rows if (row["model"], row["kind"]) == (load.model, kind)])
    common = {"date": now.isoformat(timespec="seconds"), "python": platform.python_version(), "cores": os.cpu_count()}
    path = HERE / "results" / f"throughput-{now.date()}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row | common) + "\n" for row in rows))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caffe", type=Path, required=True, help="folder with squeezenet.prototxt and its caffemodel")
    parser.add_argument("--triton", type=Path)
    parser.add_argument("--mlserver", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    return parser.parse_args()


def show(rows: list[dict[str, Any]]) -> None:
    """Medians over the repeats, and the ratio to ours of the same repeat."""
    ours = {row["repeat"]: row["requests_second"] for row in rows if row["server"] == "tonnage"}
    for server in dict.fromkeys(row["server"] for row in rows):
        chosen = [row for row in rows if row["server"] == server]
        ratio = median(ours[row["repeat"]] / row["requests_second"] for row in chosen)
        print(
            f"| {rows[0]['model']} | {rows[0]['kind']} | {server} | {median(row['requests_second'] for row in chosen):,.0f}/s | "
            f"p50 {median(row['p50_ms'] for row in chosen):.2f} ms | p99 {median(row['p99_ms'] for row in chosen):.2f} ms | "
            f"ours is {ratio:.2f} x | failed {sum(row['failed'] + row['broken'] for row in chosen):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
