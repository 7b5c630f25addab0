"""How many requests a second, and how soon: this server beside Triton's Python backend and MLServer, with the same ONNX files.

    python throughput.py --caffe FOLDER --triton ENVIRONMENT --mlserver ENVIRONMENT [--repeats 5] [--seconds 5]

All servers run on this machine at the same time, each with one instance of one thread and requests batched as they come; `wrk`
(Debian's package) asks one after the other in turns, so that whatever else the machine does falls on all of them. Before that
each of them has to answer right. Environments are virtual ones with the peers and onnxruntime:

    pip install nvidia-pytriton==0.7.0 onnxruntime                 Triton 2.51 and its Python backend
    pip install mlserver==1.7.1 onnxruntime 'uvloop<0.22'          MLServer, which does not start with a newer uvloop

The rows go to results/throughput-DATE.jsonl, one for each run of wrk.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from throughput_servers import mlserver_server, tensor_names, tonnage_server, triton_server

HERE = Path(__file__).parent
TOLERANCE = 1e-4
HEADER_SIZE = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Load:
    """A model and who asks it."""

    model: str
    clients: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """What each client sends again and again."""

    body: bytes
    headers: dict[str, str]
    right: np.ndarray  # what has to come back


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


# -- asking ---------------------------------------------------------------------------------------------------------------


def message(load: Load, model: onnx.ModelProto, kind: str) -> Message:
    values = np.random.default_rng(1).standard_normal(load.shape).astype("f4")
    given, made = tensor_names(model)
    right = onnxruntime.InferenceSession(model.SerializeToString()).run([made], {given: values})[0]
    tensor: dict[str, Any] = {"name": given, "shape": load.shape, "datatype": "FP32"}
    if kind == "json":
        body = json.dumps({"inputs": [tensor | {"data": values.ravel().tolist()}]}).encode()
        return Message(body, {"Content-Type": "application/json"}, right)
    tensor["parameters"] = {"binary_data_size": values.nbytes}
    wanted = {"name": made, "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    headers = {"Content-Type": "application/octet-stream", HEADER_SIZE: str(len(head))}
    return Message(head + values.tobytes(), headers, right)


def check(server: str, url: str, load: Load, sent: Message) -> None:
    """A server that answers fast and wrong is not fast."""
    with urllib.request.urlopen(
        urllib.request.Request(infer(url, load), sent.body, sent.headers), timeout=60
    ) as answer:
        body, size = answer.read(), answer.headers.get(HEADER_SIZE)
    if size is None:
        found = np.array(json.loads(body)["outputs"][0]["data"], "f4")
    else:
        found = np.frombuffer(body[int(size) :], "f4")
    if found.size != sent.right.size or np.abs(found - sent.right.ravel()).max() > TOLERANCE:
        sys.exit(f"{server} answers wrong to {load.model}")


def infer(url: str, load: Load) -> str:
    return f"{url}/v2/models/{load.model}/infer"


def script(sent: Message, folder: Path) -> Path:
    """Tells wrk what to send."""
    (folder / "body").write_bytes(sent.body)
    path = folder / "wrk.lua"
    path.write_text(
        f'wrk.method = "POST"\nlocal file = io.open("{folder / "body"}", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
        + "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in sent.headers.items())
    )
    return path


def ask(url: str, load: Load, path: Path, seconds: float) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{load.clients}", f"-d{seconds:g}s", "--latency", "-s", str(path), infer(url, load)]
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
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        servers = {"tonnage": stack.enter_context(tonnage_server(folder / "tonnage", found, folder / "tonnage.log"))}
        for name, start, where in (
            ("triton", triton_server, options.triton),
            ("mlserver", mlserver_server, options.mlserver),
        ):
            if where:
                servers[name] = stack.enter_context(start(where, folder / name, found, folder / f"{name}.log"))
        for load in (each for each in LOADS if each.model in options.models):
            for kind in ("binary", "json"):
                asked = {name: url for name, url in servers.items() if (name, kind) != ("mlserver", "binary")}
                sent = message(load, found[load.model], kind)
                rows += measure(asked, load, kind, sent, script(sent, folder), options)
    common = {
        "date": now.isoformat(timespec="seconds"), "python": platform.python_version(), "cores": os.cpu_count(),
        "processor": processor(), "onnxruntime": onnxruntime.__version__, "seconds": options.seconds,
    }  # fmt: skip
    path = HERE / "results" / f"throughput-{now.date()}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row | common) + "\n" for row in rows))


def measure(
    servers: dict[str, str], load: Load, kind: str, sent: Message, path: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    for name, url in servers.items():
        check(name, url, load, sent)
        ask(url, load, path, 1.0)
    for repeat in range(options.repeats):
        for name, url in servers.items():
            row = {"server": name, "model": load.model, "clients": load.clients, "kind": kind, "repeat": repeat}
            rows.append(row | ask(url, load, path, options.seconds))
    show(rows)
    return rows


def processor() -> str:
    return next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caffe", type=Path, required=True, help="folder with squeezenet.prototxt and its caffemodel")
    parser.add_argument("--triton", type=Path)
    parser.add_argument("--mlserver", type=Path)
    parser.add_argument("--models", nargs="+", default=[each.model for each in LOADS])
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
