"""`torch.save` and `torch.load` during a capture: everything but the bytes of large tensors.

A checkpoint of seven billion parameters is not worth writing, but programs read back what they saved: to resume, to
restore the best epoch, to copy a state through a buffer. So a file holds the pickle with each tensor described in place.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Mapping
from typing import Any

import torch

from tonnage.program.virtual_gpu.device import DeviceMode
from tonnage.program.virtual_gpu.recorder import Recorder

_MARK = b"saved on a virtual GPU\n"
_MOST_BYTES = 1 << 20  # of values that are kept; more are zeros when they come back


def install(mode: DeviceMode, recorder: Recorder) -> None:
    original = torch.load

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        with torch._C.DisableTorchFunction():
            recorder.storage_bytes = max(recorder.storage_bytes, bytes_of(obj, set()))
            content = _pickled(mode, obj)
        recorder.checkpoints += 1
        if isinstance(f, str | os.PathLike):
            with open(f, "wb") as file:  # goes to the scratch layer
                file.write(content)
        else:
            f.write(content)

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        content = _read(f)
        if content is not None:
            return _Unpickler(io.BytesIO(content), map_location).load()
        loaded = original(f, "cpu", *args, **kwargs)
        return _moved(loaded) if _place(map_location, "cpu").startswith("cuda") else loaded

    torch.save, torch.load = save, load


def _pickled(mode: DeviceMode, obj: Any) -> bytes:
    buffer = io.BytesIO()
    buffer.write(_MARK)
    _Pickler(buffer, mode).dump(obj)
    return buffer.getvalue()


def _read(f: Any) -> bytes | None:
    """What we wrote; None for a file of torch's own."""
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return file.read() if file.read(len(_MARK)) == _MARK else None
    start = f.tell()
    if f.read(len(_MARK)) == _MARK:
        content: bytes = f.read()
        return content
    f.seek(start)
    return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, mode: DeviceMode) -> None:
        super().__init__(file, protocol=4)
        self._mode = mode

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.layout is not torch.strided:
            return None
        virtual = self._mode.is_virtual(obj)
        known = self._mode.operators.twins.value(obj) if virtual else None if obj.is_meta else obj.detach()
        values = None
        if known is not None and known.numel() * known.element_size() <= _MOST_BYTES:
            values = bytes(known.contiguous().reshape(-1).view(torch.uint8).tolist())
        return (
            id(obj), tuple(obj.shape), tuple(obj.stride()), str(obj.dtype).removeprefix("torch."), obj.requires_grad,
            isinstance(obj, torch.nn.Parameter), virtual, values,
        )  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, map_location: Any) -> None:
        super().__init__(file)
        self._map_location = map_location
        self._made: dict[int, torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> torch.Tensor:
        key, shape, stride, dtype, gradient, is_parameter, virtual, values = pid
        if key not in self._made:
            real = torch.empty_strided(shape, stride, dtype=getattr(torch, dtype))
            if values:
                real.copy_(torch.frombuffer(bytearray(values), dtype=real.dtype).reshape(shape))
            elif real.numel() <= _MOST_BYTES:
                real.zero_()
            place = _place(self._map_location, "cuda:0" if virtual else "cpu")
            tensor = real.to("cuda") if place.startswith("cuda") else real
            self._made[key] = torch.nn.Parameter(tensor, gradient) if is_parameter else tensor.requires_grad_(gradient)
        return self._made[key]


class _Moves:
    """Stands for a storage in `map_location=lambda storage, location: storage.cuda()`."""

    place = "cpu"

    def cuda(self, *args: Any, **kwargs: Any) -> _Moves:  # noqa: ARG002
        self.place = "cuda:0"
        return self

    def cpu(self) -> _Moves:
        self.place = "cpu"
        return self


def _place(map_location: Any, saved_on: str) -> str:
    """Where a tensor goes that was saved on `saved_on`."""
    if map_location is None:
        return saved_on
    if isinstance(map_location, dict):
        return str(map_location.get(saved_on, saved_on))
    if isinstance(map_location, int) and not isinstance(map_location, bool):
        return f"cuda:{map_location}"
    if callable(map_location):
        moved = map_location(_Moves(), saved_on)
        return moved.place if isinstance(moved, _Moves) else saved_on
    return str(map_location)


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("cuda")
    if isinstance(value, dict):
        return type(value)((k, _moved(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value)(_moved(v) for v in value)
    return value


def bytes_of(value: Any, seen: set[int]) -> int:
    """Bytes of all distinct storages that a pickle of this value would hold."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.numel() * value.element_size()
        key = value.untyped_storage()._cdata
        if key in seen:
            return 0
        seen.add(key)
        return value.untyped_storage().nbytes()
    if isinstance(value, torch.nn.Module):
        return bytes_of(dict(value.state_dict()), seen)
    if isinstance(value, dict):
        return sum(bytes_of(v, seen) for v in value.values())
    if isinstance(value, list | tuple | set):
        return sum(bytes_of(v, seen) for v in value)
    return 0


_SAFETENSORS_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def write_safetensors(path: Any, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None) -> None:
    """A file that can be loaded again: the header, then zeros, which take no room on the disk."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _SAFETENSORS_TYPES[tensor.dtype]
        entries[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
