"""Sees every operator of a run, backward and optimizer included, and what the allocator did inside it.

Allocating and freeing are host-side and synchronous, so reading the allocator's counters around an operator needs no
wait for the device.
"""

import json
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDING_BYTES = 512  # the caching allocator counts blocks in multiples of this
KEPT_FLOATS = {"p", "dropout_p", "dropout", "scale", "eps", "scale_factors"}  # others change from step to step


class Counter(Protocol):
    def read(self) -> tuple[int, int]: ...  # bytes allocated now, and at most since the last reset
    def reset(self) -> None: ...


class CudaCounter:
    """Straight to the binding: `torch.cuda.memory_stats` sorts a hundred entries at each call."""

    def read(self) -> tuple[int, int]:
        allocated = torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]
        return allocated["current"], allocated["peak"]

    def reset(self) -> None:
        torch._C._cuda_resetPeakMemoryStats(0)


class NoCounter:
    def read(self) -> tuple[int, int]:
        return 0, 0

    def reset(self) -> None:
        pass


class OperatorRecorder(TorchDispatchMode):
    """One row per distinct call: operator, shapes, layouts and scalar arguments."""

    def __init__(self, device_type: str = "cuda", counter: Counter | None = None) -> None:
        super().__init__()
        self.device_type = device_type
        self.counter = counter or (CudaCounter() if device_type == "cuda" else NoCounter())
        self.rows: dict[str, dict[str, Any]] = {}
        self.peak_bytes = 0
        self.between_bytes = 0
        self._last_after = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "is_view", False):
            return func(*args, **kwargs)
        before, peak = self.counter.read()
        self.peak_bytes = max(self.peak_bytes, peak)
        self.between_bytes = max(self.between_bytes, peak - max(before, self._last_after))
        self.counter.reset()
        out = func(*args, **kwargs)
        after, peak = self.counter.read()
        self.peak_bytes = max(self.peak_bytes, peak)
        self._last_after = after
        inputs, outputs = tensors_in((args, kwargs)), tensors_in(out)
        if any(tensor.device.type == self.device_type for tensor in (*inputs, *outputs)):
            self._count(func, args, kwargs, inputs, outputs, out, peak - max(before, after), after - before)
        return out

    def _count(
        self, func: Any, args: Any, kwargs: Any, inputs: Any, outputs: Any, out: Any, temporary: int, delta: int
    ) -> None:
        names = [argument.name for argument in func._schema.arguments]
        arguments = {name: describe(value, name) for name, value in [*zip(names, args, strict=False), *kwargs.items()]}
        identity = {
            "operator": str(func),
            # The engine sets the id of the graph it is running, also in its device threads.
            "backward": torch._C._current_graph_task_id() != -1,
            "arguments": {name: value for name, value in arguments.items() if value is not None},
            "outputs": describe(out, "out"),
        }
        key = json.dumps(identity)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = identity | {
                "count": 0,
                "output_bytes": new_bytes(inputs, outputs, self.device_type),
                "temporary_first": temporary,
                "temporary_min": temporary,
                "temporary_max": temporary,
                "delta_first": delta,
                "delta_min": delta,
                "delta_max": delta,
            }
        row["count"] += 1
        row["temporary_min"] = min(row["temporary_min"], temporary)
        row["temporary_max"] = max(row["temporary_max"], temporary)
        row["delta_min"] = min(row["delta_min"], delta)
        row["delta_max"] = max(row["delta_max"], delta)


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def new_bytes(inputs: list[torch.Tensor], outputs: list[torch.Tensor], device_type: str) -> int:
    """What the results occupy, not counting results that are (views of) an input."""
    known = {_storage_id(tensor) for tensor in inputs if tensor.layout == torch.strided}
    total = 0
    for tensor in outputs:
        if tensor.layout != torch.strided or tensor.device.type != device_type or _storage_id(tensor) in known:
            continue
        known.add(_storage_id(tensor))
        total += -(-tensor.untyped_storage().nbytes() // ROUNDING_BYTES) * ROUNDING_BYTES
    return total


def _storage_id(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def describe(value: Any, name: str) -> Any:
    """A JSON value that is equal for calls that should need equal memory; None for what does not matter."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, torch.Tensor) for item in value) and len(value) > 8:
            return describe_many(value)
        items = [describe(item, name) for item in value]
        return items if any(item is not None for item in items) else None
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return round(value, 6) if name in KEPT_FLOATS else None
    return str(value)


def describe_tensor(tensor: torch.Tensor) -> str:
    """`float16[8,64,56,56]` with the layout after a slash unless contiguous and the device after @ unless CUDA."""
    text = f"{_dtype(tensor)}[{','.join(map(str, tensor.shape))}]"
    if tensor.layout != torch.strided:
        return f"{text}/{tensor.layout}"
    if not tensor.is_contiguous():
        text += "/" + _strides(tensor)
    return text if tensor.device.type == "cuda" else f"{text}@{tensor.device.type}"


def _strides(tensor: torch.Tensor) -> str:
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return "channels_last_3d"
    return ",".join(map(str, tensor.stride()))


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def describe_many(tensors: list[torch.Tensor]) -> str:
    """A foreach operator takes hundreds of tensors: their number, total and largest say what it needs."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    dtypes = "+".join(sorted({_dtype(tensor) for tensor in tensors}))
    return f"{len(tensors)} x {dtypes}, {sum(sizes)} bytes, largest {max(sizes)}"
