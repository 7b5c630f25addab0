"""A real server with small models, for what is done to it by `robustness.py` and by tests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import psutil
from onnx import TensorProto, helper

COLUMNS = 8  # of the model `add`


@dataclass
class Rig:
    """A server that runs."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    is_ready: threading.Event = field(default_factory=threading.Event)

    def port(self, what: str) -> int:
        """Of `REST`, `gRPC` or `metrics`."""
        return int(self.addresses[what].removesuffix("/metrics").rpartition(":")[2])

    @property
    def nurseries(self) -> list[psutil.Process]:
        """The processes that start instances."""
        return _living(psutil.Process(self.process.pid))

    @property
    def instances(self) -> list[psutil.Process]:
        return [each for nursery in self.nurseries for each in _living(nursery)]

    @property
    def used_bytes(self) -> int:
        """Of the server and its instances, each with its part of what they share."""
        own = psutil.Process(self.process.pid)
        return sum(each.memory_full_info().pss for each in (own, *self.nurseries, *self.instances))

    def loaded(self) -> int:
        """How many instances have their model, of all models."""
        with urllib.request.urlopen(self.addresses["metrics"], timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith("tonnage_instances{"))

    def stop(self, seconds: float = 90.0) -> int:
        self.process.terminate()
        return self.process.wait(seconds)


def _living(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return [each for each in parent.children() if each.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def serving(folder: Path, *options: str, wait: bool = True) -> Iterator[Rig]:
    """On free ports; `wait` until all models are loaded."""
    command = [sys.executable, "-m", "tonnage", "serve", "run", str(folder), *options]
    for port in ("--http-port", "--grpc-port", "--metrics-port"):
        if port not in options:
            command += [port, "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    rig = Rig(process)
    reading = threading.Thread(target=_read, args=(rig,))
    reading.start()
    try:
        if wait and (not rig.is_ready.wait(120) or "metrics" not in rig.addresses):
            raise RuntimeError("the server is not ready:\n" + "\n".join(rig.log))
        yield rig
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reading.join()


def _read(rig: Rig) -> None:
    assert rig.process.stderr is not None
    with rig.process.stderr as lines:
        for line in lines:
            rig.log.append(line.rstrip())
            what, _, address = line.strip().partition(" at ")
            if what in ("REST", "gRPC", "metrics"):
                rig.addresses[what] = address
                if what == "metrics":
                    rig.is_ready.set()
    rig.is_ready.set()


def wait_for(condition: object, seconds: float = 30.0) -> None:
    """Until a function says yes."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.02)


# -- models ---------------------------------------------------------------------------------------------------------------


def write_models(folder: Path, instances: int = 2) -> None:
    """`add` adds one to rows of numbers, in batches; `loop` counts to a number, which takes as long as one likes."""
    _write(folder / "add", _add(), f"instance_group {{ count: {instances} }}")
    _write(folder / "loop", _loop(), 'parameters { key: "run_timeout_seconds" value { string_value: "60" } }')


def _write(folder: Path, model: onnx.ModelProto, settings: str) -> None:
    (folder / "1").mkdir(parents=True)
    onnx.save(model, str(folder / "1" / "model.onnx"))
    (folder / "config.pbtxt").write_text(settings)


def _add() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", COLUMNS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", COLUMNS])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "add", [x], [y], [one])
    return _model(graph)


def _loop() -> onnx.ModelProto:
    number = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["goes_on"]),
            helper.make_node("Add", ["counted", "step"], ["counts"]),
        ],
        "body",
        [
            number("turn", TensorProto.INT64, []),
            number("go_on", TensorProto.BOOL, []),
            number("counted", TensorProto.INT64, [1]),
        ],
        [number("goes_on", TensorProto.BOOL, []), number("counts", TensorProto.INT64, [1])],
        [helper.make_tensor("step", TensorProto.INT64, [1], [1])],
    )
    nodes = [
        helper.make_node("Squeeze", ["n"], ["times"]),
        helper.make_node("Loop", ["times", "", "zero"], ["counted_all"], body=body),
    ]
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    graph = helper.make_graph(
        nodes,
        "loop",
        [number("n", TensorProto.INT64, [1])],
        [number("counted_all", TensorProto.INT64, [1])],
        [zero],
    )
    return _model(graph)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model
