"""What an ONNX file holds before it is followed: the model, and the shapes of its inputs once open sizes are chosen.

Weights in external files are never read. Needs the `onnx` package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import helper

from tonnage.errors import CaptureError, InvalidFile, NotFound, UsageError
from tonnage.program.trace import TensorSpec

# The type in a Trace and the bits it takes. Narrower ones are packed in memory; a Trace knows them as bytes.
_TYPES: Mapping[str, tuple[str, int]] = {
    "FLOAT": ("float32", 32), "FLOAT16": ("float16", 16), "BFLOAT16": ("bfloat16", 16), "DOUBLE": ("float64", 64),
    "INT8": ("int8", 8), "UINT8": ("uint8", 8), "INT16": ("int16", 16), "UINT16": ("uint16", 16),
    "INT32": ("int32", 32), "UINT32": ("uint32", 32), "INT64": ("int64", 64), "UINT64": ("uint64", 64),
    "BOOL": ("bool", 8), "COMPLEX64": ("complex64", 64), "COMPLEX128": ("complex128", 128),
    "FLOAT8E4M3FN": ("float8_e4m3fn", 8), "FLOAT8E4M3FNUZ": ("float8_e4m3fnuz", 8), "FLOAT8E8M0": ("uint8", 8),
    "FLOAT8E5M2": ("float8_e5m2", 8), "FLOAT8E5M2FNUZ": ("float8_e5m2fnuz", 8), "FLOAT4E2M1": ("uint8", 4),
    "INT4": ("int8", 4), "UINT4": ("uint8", 4), "INT2": ("int8", 2), "UINT2": ("uint8", 2),
}  # fmt: skip
_MOST_BYTES = 1 << 50  # of one tensor: beyond a pebibyte a file or a request is wrong
_MOST_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and type (a number of ONNX's) of one value."""

    shape: tuple[int, ...]
    elem_type: int

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, _TYPES[onnx.TensorProto.DataType.Name(self.elem_type)][0])

    @property
    def nbytes(self) -> int:
        return -(-prod(self.shape) * _TYPES[onnx.TensorProto.DataType.Name(self.elem_type)][1] // 8)


# -- the file ---------------------------------------------------------------------------------------------------------


def read_model(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
        model: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    except DecodeError:
        raise InvalidFile(f"{path} is not an ONNX file, or is only a part of one") from None
    if not content:
        raise InvalidFile(f"{path} is empty")
    _check_text(model, path)
    _check_versions(model, path)
    return model


def _check_text(message: Message, path: Path) -> None:
    """protobuf gives text that is no UTF-8 as bytes; no name may be that."""
    if isinstance(message, onnx.TensorProto):
        texts = [message.name]
    else:
        fields = [(field, value) for field, value in message.ListFields() if not isinstance(value, int | float)]
        texts = [text for field, value in fields if field.type == field.TYPE_STRING for text in _several(value)]
        for part in (p for field, value in fields if field.type == field.TYPE_MESSAGE for p in _several(value)):
            _check_text(part, path)
    if any(not isinstance(text, str) for text in texts):
        raise InvalidFile(f"{path} is damaged: a name in it is no text")


def _several(value: Any) -> Sequence[Any]:
    return [value] if isinstance(value, str | bytes | Message) else value


def _check_versions(model: onnx.ModelProto, path: Path) -> None:
    upgrade = f"the installed onnx is {onnx.__version__}; a newer one may read it: pip install --upgrade onnx"
    if model.ir_version < 1 or not model.HasField("graph") or (model.ir_version >= 3 and not model.opset_import):
        raise InvalidFile(f"{path} is not an ONNX file, or is only a part of one")
    if model.ir_version > onnx.IR_VERSION:
        raise InvalidFile(f"{path} has IR version {model.ir_version}, newer than {onnx.IR_VERSION}", upgrade)
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > onnx.defs.onnx_opset_version():
            raise InvalidFile(
                f"{path} uses operator set {opset.version}, newer than {onnx.defs.onnx_opset_version()}", upgrade
            )
    if not model.opset_import:
        model.opset_import.append(helper.make_opsetid("", 1))


# -- open dimensions --------------------------------------------------------------------------------------------------


def fix_inputs(
    graph: onnx.GraphProto, file: str, batch: int | None, sizes: Mapping[str, int]
) -> tuple[dict[str, Tensor], dict[str, int]]:
    """The inputs, and the size of every named dimension."""
    constants = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    infos = [info for info in graph.input if info.name not in constants]
    dims = {info.name: _input_dims(info, file) for info in infos}
    _check_sizes(sizes, file, {dim for shape in dims.values() for dim in shape if isinstance(dim, str)} | _named(graph))
    bound = dict(sizes)
    first = [shape[0] for shape in dims.values() if shape]
    if batch is not None:
        bound = {dim: batch for dim in first if isinstance(dim, str)} | bound
        _check_batch(batch, [bound[dim] if isinstance(dim, str) else dim for dim in first], file)
    missing = dict.fromkeys(d for shape in dims.values() for d in shape if isinstance(d, str) and d not in bound)
    if missing:
        options = ["--batch 8"] if set(missing) & set(first) else []
        options += [f"--size {dim}=128" for dim in missing if dim not in first]
        raise UsageError(
            f"{file} leaves the size of {', '.join(missing)} open", f"say how large, for example {' '.join(options)}"
        )
    shapes = {n: tuple(bound[d] if isinstance(d, str) else d for d in shape) for n, shape in dims.items()}
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    return {name: checked_tensor(shapes[name], types[name], f"input {name}") for name in shapes}, bound


def _input_dims(info: onnx.ValueInfoProto, file: str) -> list[int | str]:
    """Sizes, or names where a size is open; an open dimension without a name is called `INPUT.AXIS`."""
    check_kind(info.type, f"input {info.name} of {file}")
    if not info.type.tensor_type.HasField("shape"):
        raise CaptureError(f"input {info.name} of {file} has no shape", "export the model with shapes of its inputs")
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or f"{info.name}.{axis}"
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
    ]


def _named(graph: onnx.GraphProto) -> set[str]:
    infos = (*graph.value_info, *graph.output)
    return {dim.dim_param for info in infos for dim in info.type.tensor_type.shape.dim if dim.dim_param}


def _check_sizes(sizes: Mapping[str, int], file: str, known: set[str]) -> None:
    for name, size in sizes.items():
        if name not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "all its sizes are fixed"
            raise UsageError(f"{file} has no open dimension {name}", has)
        if not 0 <= size <= _MOST_SIZE:
            raise UsageError(f"the size of {name} is {size}, not a number from 0 to {_MOST_SIZE}")


def _check_batch(batch: int, first: Sequence[int], file: str) -> None:
    if batch not in first:
        fixed = f"fixed at {', '.join(map(str, dict.fromkeys(first)))}" if first else "absent: it has no such input"
        raise UsageError(
            f"batch {batch} cannot be chosen: the batch of {file} is {fixed}", "export it with an open batch dimension"
        )


def check_kind(kind: onnx.TypeProto, what: str) -> None:
    value = kind.WhichOneof("value")
    if value not in ("tensor_type", None):
        raise CaptureError(f"{what} is not a tensor but a {str(value).removesuffix('_type')}, which cannot be followed")


def checked_tensor(shape: Sequence[int], elem_type: int, what: str) -> Tensor:
    """A checked Tensor."""
    name = onnx.TensorProto.DataType.Name(elem_type) if elem_type in onnx.TensorProto.DataType.values() else "unknown"
    if name not in _TYPES:
        raise CaptureError(f"{what} is of type {name.lower()}, which no GPU computes with")
    if any(size < 0 for size in shape):
        raise InvalidFile(f"{what} has the shape {tuple(shape)}")
    tensor = Tensor(tuple(shape), elem_type)
    if tensor.nbytes > _MOST_BYTES:
        raise UsageError(f"{what} with the shape {tensor.shape} would take {tensor.nbytes:,} bytes", "is a size wrong?")
    return tensor
