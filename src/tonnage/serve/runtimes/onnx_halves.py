"""BF16 in ONNX models: numpy has no such kind, so onnxruntime's own values are used, whose bytes are read from memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.serve.datatypes import BF16, DTYPES, as_array, rounded_to_bf16
from tonnage.serve.runtimes import Arrays

_BFLOAT16 = 16  # as ONNX counts element types


def run_with_halves(session: Any, names: tuple[str, ...], inputs: Arrays, halves: set[str]) -> list[npt.NDArray[Any]]:
    """`halves` are the inputs that are BF16; they and the outputs that are come as FP32."""
    import onnxruntime

    make = onnxruntime.OrtValue
    given = {
        name: make.ortvalue_from_numpy_with_onnx_type(rounded_to_bf16(array), _BFLOAT16)
        if name in halves
        else make.ortvalue_from_numpy(array)
        for name, array in inputs.items()
    }
    return [_array(value) for value in session.run_with_ort_values(names, given)]


def _array(value: Any) -> npt.NDArray[Any]:
    if value.data_type() != "tensor(bfloat16)":
        array: npt.NDArray[Any] = value.numpy()
        return array
    shape = tuple(value.shape())
    size = int(np.prod(shape)) * DTYPES[BF16].itemsize
    return as_array(BF16, shape, ctypes.string_at(value.data_ptr(), size) if size else b"")
