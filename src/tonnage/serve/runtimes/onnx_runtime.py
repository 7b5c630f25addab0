"""ONNX models, by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tonnage.errors import InvalidFile, MissingDependency, UsageError
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.datatypes import BF16, BYTES
from tonnage.serve.runtimes import Arrays, LoadOrder
from tonnage.serve.runtimes.onnx_halves import run_with_halves

_TYPES = {
    "tensor(bool)": "BOOL", "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32",
    "tensor(int64)": "INT64", "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(bfloat16)": BF16, "tensor(string)": BYTES,
}  # fmt: skip


class OnnxRuntime:
    """A session of onnxruntime."""

    def __init__(self, order: LoadOrder) -> None:
        path = Path(order.path)
        self._session = _session(path, order)
        given, made = self._session.get_inputs(), self._session.get_outputs()
        self.inputs = tuple(_spec(each, path) for each in given)
        self.outputs = tuple(_spec(each, path) for each in made)
        first = {each.shape[0] if each.shape else None for each in (*given, *made)}
        self.batch_axis = len(first) == 1 and isinstance(next(iter(first)), str)
        self._strings = {each.name for each in self.inputs if each.datatype == BYTES}
        self._all = tuple(each.name for each in self.outputs)
        self._halves = {each.name for each in self.inputs if each.datatype == BF16}
        datatypes = {each.datatype for each in (*self.inputs, *self.outputs)}
        self._has_halves = BF16 in datatypes
        if {BF16, BYTES} <= datatypes:
            raise InvalidFile(f"{path} has tensors of BF16 and of strings, which onnxruntime cannot take in one run")

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        for name in self._strings & inputs.keys():
            inputs[name] = _text(inputs[name], name)
        names = wanted or self._all
        try:
            if self._has_halves:
                made = run_with_halves(self._session, names, inputs, self._halves)
            else:
                made = self._session.run(names, inputs)
        except Exception as error:  # onnxruntime has its own classes for what is wrong with an input
            raise UsageError(_sentence(error)) from error
        return dict(zip(names, made, strict=True))


def load(order: LoadOrder) -> OnnxRuntime:
    return OnnxRuntime(order)


def _session(path: Path, order: LoadOrder) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingDependency("ONNX models are run by onnxruntime", "pip install 'tonnage[serve]'") from None
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = order.setting("intra_op_thread_count", order.threads)
    options.inter_op_num_threads = order.setting("inter_op_thread_count", 1)
    options.log_severity_level = 3
    providers: list[Any] = ["CPUExecutionProvider"]
    if order.device != "cpu":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise MissingDependency("this onnxruntime cannot use GPUs", "pip install onnxruntime-gpu")
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": int(order.device.partition(":")[2] or 0)}))
    try:
        return onnxruntime.InferenceSession(str(path), options, providers)
    except Exception as error:  # protobuf, an unknown operator, a missing file of weights: each has its own class
        raise InvalidFile(f"{path}: {_sentence(error)}") from error


def _spec(described: Any, path: Path) -> TensorSpec:
    if described.type not in _TYPES:
        raise InvalidFile(f"{path}: {described.name} is a {described.type}, which the protocol cannot carry")
    dims = tuple(size if isinstance(size, int) else -1 for size in described.shape)
    return TensorSpec(name=described.name, datatype=_TYPES[described.type], dims=dims)


def _text(array: Any, name: str) -> Any:
    try:
        return np.array([value.decode() for value in array.ravel()], dtype=object).reshape(array.shape)
    except UnicodeDecodeError:
        raise UsageError(f"input {name} holds strings that are not UTF-8") from None


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
