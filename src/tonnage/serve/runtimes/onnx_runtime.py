"""ONNX models, by onnxruntime."""

from __future__ import annotations

import ctypes
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile, MissingDependency, UsageError
from tonnage.program.no_telemetry import keep_quiet
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.datatypes import BF16, BYTES, as_array, rounded_to_bf16
from tonnage.serve.runtimes import Arrays, LoadOrder, sentence, shares_first_axis

_TYPES = {
    "tensor(bool)": "BOOL", "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32",
    "tensor(int64)": "INT64", "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(bfloat16)": BF16, "tensor(string)": BYTES,
}  # fmt: skip
_BF16_NUMBER = 16  # ONNX's number of this type


class OnnxRuntime:
    """A session of onnxruntime."""

    def __init__(self, order: LoadOrder) -> None:
        path = Path(order.path)
        self._session = _session(path, order)
        given = self._session.get_inputs()
        told = {each.name for each in order.configuration.outputs}
        # Lists and maps cannot be sent; a configuration may leave them out.
        made = [each for each in self._session.get_outputs() if each.type in _TYPES or not told or each.name in told]
        optional = [each for each in self._session.get_overridable_initializers() if each.type in _TYPES]
        self.inputs = (*(_spec(each, path) for each in given), *(_spec(each, path, optional=True) for each in optional))
        self.outputs = tuple(_spec(each, path) for each in made)
        self.batch_axis = shares_first_axis(each.shape for each in (*given, *made))
        self.most_rows = 0
        self._strings = {each.name for each in self.inputs if each.datatype == BYTES}
        self._halves = {each.name for each in (*self.inputs, *self.outputs) if each.datatype == BF16}
        self._all = tuple(each.name for each in self.outputs)
        if self._halves and BYTES in {each.datatype for each in (*self.inputs, *self.outputs)}:
            raise InvalidFile(f"{path} has tensors of BF16 and of strings, which onnxruntime cannot take in one run")

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        for name in self._strings & inputs.keys():
            inputs[name] = _text(inputs[name], name)
        names = wanted or self._all
        try:
            made = self._run_halves(names, inputs) if self._halves else self._session.run(names, inputs)
        except Exception as error:  # onnxruntime has its own classes for what is wrong with an input
            raise UsageError(sentence(error)) from error
        return dict(zip(names, made, strict=True))

    def _run_halves(self, names: tuple[str, ...], inputs: Arrays) -> list[npt.NDArray[Any]]:
        """numpy has no BF16, so such tensors go in and out by their bits."""
        from onnxruntime import OrtValue

        given = {
            name: OrtValue.ortvalue_from_numpy_with_onnx_type(rounded_to_bf16(array), _BF16_NUMBER)
            if name in self._halves
            else OrtValue.ortvalue_from_numpy(array)
            for name, array in inputs.items()
        }
        made = self._session.run_with_ort_values(names, given)
        return [
            _widened(value) if name in self._halves else value.numpy() for name, value in zip(names, made, strict=True)
        ]


def load(order: LoadOrder) -> OnnxRuntime:
    return OnnxRuntime(order)


def _session(path: Path, order: LoadOrder) -> Any:
    keep_quiet()
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
        raise InvalidFile(f"{path}: {sentence(error)}") from error


def _spec(described: Any, path: Path, *, optional: bool = False) -> TensorSpec:
    if described.type not in _TYPES:
        raise InvalidFile(
            f"{path}: {described.name} is a {described.type}, which the protocol cannot carry",
            "where it is an output, name only the others in the configuration",
        )
    dims = tuple(size if isinstance(size, int) else -1 for size in described.shape)
    return TensorSpec(name=described.name, datatype=_TYPES[described.type], dims=dims, optional=optional)


def _widened(value: Any) -> npt.NDArray[Any]:
    """The numbers of a BF16 tensor in main memory."""
    size = 2 * prod(value.shape())
    bits = ctypes.string_at(value.data_ptr(), size) if size else b""
    return as_array(BF16, tuple(value.shape()), bits)


def _text(array: Any, name: str) -> Any:
    try:
        return np.array([value.decode() for value in array.ravel()], dtype=object).reshape(array.shape)
    except UnicodeDecodeError:
        raise UsageError(f"input {name} holds strings that are not UTF-8") from None
