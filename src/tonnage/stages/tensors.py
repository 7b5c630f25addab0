"""Values between processes: a description in JSON, and the bytes of tensors as they lie in memory.

Shape, strides and alignment are kept, so that operators choose the same kernels on the other side and give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tonnage.errors import UsageError

_ALIGNMENT = 64  # of what torch allocates on the processor


def pack(value: Any) -> tuple[Any, list[memoryview]]:
    """The description, and the parts that follow it."""
    parts: list[memoryview] = []
    return _pack(value, parts), parts


def unpack(spec: Any, read: Callable[[memoryview], None]) -> Any:
    """The value; `read` fills the parts one after the other."""
    if isinstance(spec, list):
        return [unpack(each, read) for each in spec]
    if not isinstance(spec, dict):
        return spec
    ((kind, what),) = spec.items()
    if kind == "tensor":
        return _unpack_tensor(what, read)
    if kind == "tuple":
        return tuple(unpack(each, read) for each in what)
    if kind == "dict":
        return {key: unpack(each, read) for key, each in what.items()}
    return complex(*what)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same value with its tensors replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(each, change) for each in value)
    if isinstance(value, dict):
        return {key: map_tensors(each, change) for key, each in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def _pack(value: Any, parts: list[memoryview]) -> Any:
    if isinstance(value, torch.Tensor):
        return {"tensor": _pack_tensor(value, parts)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_pack(each, parts) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_pack(each, parts) for each in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): _pack(each, parts) for key, each in value.items()}}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise UsageError(f"a {type(value).__name__} cannot go from one stage to another", "cut the network elsewhere")


def _pack_tensor(tensor: torch.Tensor, parts: list[memoryview]) -> list[Any]:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UsageError(
            f"a tensor with the layout {tensor.layout} cannot go to another stage", "cut the network elsewhere"
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    shape, stride, span = list(plain.shape), list(plain.stride()), _span(plain.shape, plain.stride())
    skip = plain.data_ptr() % _ALIGNMENT if plain.device.type == "cpu" and plain.numel() else 0
    has_gaps = span > plain.numel()
    memory = plain.contiguous() if has_gaps else plain
    region = memory.as_strided((min(span, plain.numel()),), (1,)).cpu()
    parts.append(_bytes_of(region))
    return [str(plain.dtype).removeprefix("torch."), shape, stride, skip, has_gaps, tensor.requires_grad]


def _unpack_tensor(spec: list[Any], read: Callable[[memoryview], None]) -> torch.Tensor:
    name, shape, stride, skip, has_gaps, requires_grad = spec
    dtype: torch.dtype = getattr(torch, name)
    count = 1
    for size in shape:
        count *= size
    span = _span(shape, stride)
    memory = torch.empty(skip + span * dtype.itemsize, dtype=torch.uint8)
    tensor = memory[skip:].view(dtype).as_strided(shape, stride, skip // dtype.itemsize)
    region = torch.empty(count, dtype=dtype) if has_gaps else memory[skip:]
    read(_bytes_of(region))
    if has_gaps:
        tensor.copy_(region.view(shape))
    return tensor.requires_grad_(requires_grad)


def _bytes_of(region: torch.Tensor) -> memoryview:
    """The memory itself, of a tensor with one dimension and no gaps."""
    array: Any = region.view(torch.uint8).numpy()
    return memoryview(array)


def _span(shape: Any, stride: Any) -> int:
    """Elements from the first to the last in memory."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(shape, stride, strict=True))
